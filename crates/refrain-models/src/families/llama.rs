//! Llama (Touvron et al. 2023, arXiv:2302.13971), up to Llama 3.3: the standard pre-norm transformer.

use refrain_formats::{Error, Metadata};
use serde_json::json;

use crate::config::read::{self, Biases, Defaults};
use crate::config::{LayerRope, ModelConfig, RopeScaling, layers};
use crate::family::{Family, Keys};
use crate::transformer::TransformerStyle;

pub(super) static LLAMA: Family = Family {
    name: "llama",
    class: "LlamaForCausalLM",
    gguf: Some("llama"),
    description: "Llama 1 to 3.3, and other models published as `llama`",
    keys: Keys {
        supported: &["attention_bias", "hidden_act", "mlp_bias"],
        ..Keys::COMMON
    },
    read,
    tensors: |config| STYLE.tensors(config),
    build: |loader| STYLE.build(loader),
    config_json: |config| json!({ "mlp_bias": config.feed_forward.bias, "pretraining_tp": 1 }),
    presets: &[
        ("tiny-llama", tiny),
        ("llama-3.2-1b", || llama3([2048, 8192, 16, 32, 8], 64, 32.0, true)),
        ("llama-3.2-3b", || llama3([3072, 8192, 28, 24, 8], 128, 32.0, true)),
        ("llama-3.1-8b", || llama3([4096, 14336, 32, 32, 8], 128, 8.0, false)),
    ],
    ..Family::DENSE
};

const STYLE: TransformerStyle = TransformerStyle {
    interleaved: true,
    ..TransformerStyle::DEFAULT
};

fn read(metadata: &Metadata<'_>) -> Result<ModelConfig, Error> {
    let bias = read::flag(metadata, "attention_bias")?;
    let defaults = Defaults {
        max_position: 2048,
        biases: Biases {
            attention: bias,
            output: bias,
            mlp: read::flag(metadata, "mlp_bias")?,
        },
        ..Defaults::new(&LLAMA)
    };
    let mut config = read::decoder(metadata, &defaults, None)?;
    config.attention.layers = layers::windowed_layers(metadata, config.layers, None, LayerRope::Global, |_| false)?;
    Ok(config)
}

/// Llama 3.1 and 3.2, which differ in the factor of their rotary scaling.
fn llama3(sizes: [usize; 5], head_dim: usize, rope_factor: f64, tied: bool) -> ModelConfig {
    let mut config = ModelConfig::from_sizes(&LLAMA, sizes, head_dim);
    config.vocab_size = 128_256;
    config.norm.eps = 1e-5;
    config.positions.theta = 5e5;
    config.positions.local_theta = 5e5;
    config.positions.scaling = RopeScaling::Llama3 {
        factor: rope_factor,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_max_position: 8192.0,
    };
    config.max_position = 131_072;
    config.tie_word_embeddings = tied;
    config.bos_ids = vec![128_000];
    config.eos_ids = vec![128_001];
    config
}

/// A small model for tests with Llama 3's structure.
fn tiny() -> ModelConfig {
    let mut config = llama3([256, 768, 2, 8, 4], 32, 8.0, true);
    config.vocab_size = 997;
    config.max_position = 16_384;
    config.bos_ids = vec![1];
    config.eos_ids = vec![2];
    config
}
