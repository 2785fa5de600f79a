//! The shapes of published models, from the `config.json` of each.

use crate::{Activation, Architecture, DeltaNets, MixtureConfig, ModelConfig, RopeScaling};

/// Makes a model's hyperparameters.
pub(super) type Config = fn() -> ModelConfig;

/// All of them by name.
pub(super) const ALL: &[(&str, Config)] = &[
    ("tiny", tiny),
    ("tiny-llama", tiny_llama),
    ("tiny-hybrid", tiny_hybrid),
    ("qwen3-0.6b", || qwen3([1024, 3072, 28, 16, 8], true)),
    ("qwen3-1.7b", || qwen3([2048, 6144, 28, 16, 8], true)),
    ("qwen3-4b", || qwen3([2560, 9728, 36, 32, 8], true)),
    ("qwen3-8b", || qwen3([4096, 12288, 36, 32, 8], false)),
    ("qwen3-14b", || qwen3([5120, 17408, 40, 40, 8], false)),
    ("qwen3-32b", || qwen3([5120, 25600, 64, 64, 8], false)),
    ("llama-3.2-1b", || llama3([2048, 8192, 16, 32, 8], 64, 32.0, true)),
    ("llama-3.2-3b", || llama3([3072, 8192, 28, 24, 8], 128, 32.0, true)),
    ("llama-3.1-8b", || llama3([4096, 14336, 32, 32, 8], 128, 8.0, false)),
    ("qwen3.5-35b-a3b", qwen3_5_35b),
];

/// Qwen3's structure at a size for tests. Rows are whole blocks of every format.
fn tiny() -> ModelConfig {
    ModelConfig {
        head_dim: 64,
        attention_scale: 0.125,
        rope_dims: 64,
        vocab_size: 997,
        max_position: 4096,
        bos_ids: vec![1],
        eos_ids: vec![2],
        ..qwen3([256, 512, 6, 8, 2], false)
    }
}

/// Llama 3's structure at a size for tests.
fn tiny_llama() -> ModelConfig {
    ModelConfig {
        vocab_size: 997,
        max_position: 16_384,
        bos_ids: vec![1],
        eos_ids: vec![2],
        ..llama3([256, 768, 2, 8, 4], 32, 8.0, true)
    }
}

/// Hidden size, intermediate size, layers, heads, key and value heads.
type ModelSizes = [usize; 5];

fn qwen3(sizes: ModelSizes, tied: bool) -> ModelConfig {
    let [hidden_size, intermediate_size, layers, heads, kv_heads] = sizes;
    ModelConfig {
        architecture: Architecture::Qwen3,
        hidden_size,
        intermediate_size,
        layers,
        heads,
        kv_heads,
        head_dim: 128,
        vocab_size: 151_936,
        rms_norm_eps: 1e-6,
        rope_theta: 1e6,
        rope_scaling: RopeScaling::None,
        local_rope_theta: 1e6,
        rope_dims: 128,
        max_position: 40_960,
        tie_word_embeddings: tied,
        attention_bias: false,
        attention_output_bias: false,
        attention_scale: (128.0f64).powf(-0.5) as f32,
        mlp_bias: false,
        activation: Activation::Silu,
        embedding_scale: 1.0,
        norm_offset: 0.0,
        logit_cap: None,
        layer_attention: Vec::new(),
        delta_nets: None,
        mixture: None,
        bos_ids: vec![151_643],
        eos_ids: vec![151_645],
        quantisation: None,
    }
}

/// Llama 3.1 and 3.2, which differ in the factor of their rope scaling.
fn llama3(sizes: ModelSizes, head_dim: usize, rope_factor: f64, tied: bool) -> ModelConfig {
    ModelConfig {
        architecture: Architecture::Llama,
        head_dim,
        attention_scale: (head_dim as f64).powf(-0.5) as f32,
        vocab_size: 128_256,
        rms_norm_eps: 1e-5,
        rope_theta: 5e5,
        local_rope_theta: 5e5,
        rope_scaling: RopeScaling::Llama3 {
            factor: rope_factor,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_max_position: 8192.0,
        },
        rope_dims: head_dim,
        max_position: 131_072,
        bos_ids: vec![128_000],
        eos_ids: vec![128_001],
        ..qwen3(sizes, tied)
    }
}

/// Qwen3.5-35B-A3B.
fn qwen3_5_35b() -> ModelConfig {
    ModelConfig {
        architecture: Architecture::Qwen3_5Moe,
        head_dim: 256,
        attention_scale: 0.0625,
        vocab_size: 248_320,
        rope_theta: 1e7,
        local_rope_theta: 1e7,
        rope_dims: 64,
        max_position: 262_144,
        norm_offset: 1.0,
        delta_nets: Some(DeltaNets {
            key_heads: 16,
            value_heads: 32,
            key_dim: 128,
            value_dim: 128,
            taps: 4,
            layers: three_of_four(40),
        }),
        mixture: Some(MixtureConfig {
            experts: 256,
            used: 8,
            intermediate_size: 512,
            shared_intermediate_size: 512,
        }),
        bos_ids: vec![248_044],
        eos_ids: vec![248_046],
        ..qwen3([2048, 512, 40, 16, 2], false)
    }
}

/// Its structure at a size for tests. Rows are whole blocks of every format.
fn tiny_hybrid() -> ModelConfig {
    ModelConfig {
        head_dim: 64,
        attention_scale: 0.125,
        vocab_size: 997,
        rope_dims: 16,
        max_position: 4096,
        delta_nets: Some(DeltaNets {
            key_heads: 2,
            value_heads: 4,
            key_dim: 64,
            value_dim: 64,
            taps: 4,
            layers: three_of_four(4),
        }),
        mixture: Some(MixtureConfig {
            experts: 8,
            used: 2,
            intermediate_size: 256,
            shared_intermediate_size: 256,
        }),
        bos_ids: vec![1],
        eos_ids: vec![2],
        hidden_size: 256,
        intermediate_size: 256,
        layers: 4,
        heads: 4,
        ..qwen3_5_35b()
    }
}

/// Delta nets but in every fourth layer.
fn three_of_four(layers: usize) -> Vec<bool> {
    (1..=layers).map(|number| !number.is_multiple_of(4)).collect()
}
