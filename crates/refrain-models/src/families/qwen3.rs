//! Qwen3, dense (Qwen team 2025, arXiv:2505.09388): Llama with normalised query and key heads.

use refrain_formats::{Error, Metadata};

use super::qwen2;
use crate::blocks::QkNorm;
use crate::config::ModelConfig;
use crate::config::read::{self, Biases, Defaults};
use crate::family::{Family, Keys};
use crate::transformer::TransformerStyle;

pub(super) static QWEN3: Family = Family {
    name: "qwen3",
    class: "Qwen3ForCausalLM",
    gguf: Some("qwen3"),
    description: "Qwen3, dense",
    keys: Keys {
        supported: &[
            "attention_bias",
            "hidden_act",
            "max_window_layers",
            "sliding_window",
            "use_sliding_window",
        ],
        // Queries and keys are always normalised, whatever this key says.
        ignored: &["use_qk_norm"],
        ..Keys::COMMON
    },
    read,
    tensors: |config| STYLE.tensors(config),
    build: |loader| STYLE.build(loader),
    config_json: qwen2::config_json,
    presets: &[
        ("tiny", tiny),
        ("qwen3-0.6b", || sized([1024, 3072, 28, 16, 8], true)),
        ("qwen3-1.7b", || sized([2048, 6144, 28, 16, 8], true)),
        ("qwen3-4b", || sized([2560, 9728, 36, 32, 8], true)),
        ("qwen3-8b", || sized([4096, 12288, 36, 32, 8], false)),
        ("qwen3-14b", || sized([5120, 17408, 40, 40, 8], false)),
        ("qwen3-32b", || sized([5120, 25600, 64, 64, 8], false)),
    ],
    ..Family::DENSE
};

pub(super) const STYLE: TransformerStyle = TransformerStyle {
    qk_norm: QkNorm::Heads,
    ..TransformerStyle::DEFAULT
};

fn read(metadata: &Metadata<'_>) -> Result<ModelConfig, Error> {
    let bias = read::flag(metadata, "attention_bias")?;
    let defaults = Defaults {
        head_dim: Some(128),
        biases: Biases {
            attention: bias,
            output: bias,
            mlp: false,
        },
        ..Defaults::new(&QWEN3)
    };
    let mut config = read::decoder(metadata, &defaults, None)?;
    config.attention.layers = qwen2::windows(metadata, config.layers)?;
    Ok(config)
}

/// A published model. `sizes` are hidden size, intermediate size, layers, query heads, and key and value heads.
fn sized(sizes: [usize; 5], tied: bool) -> ModelConfig {
    let mut config = ModelConfig::from_sizes(&QWEN3, sizes, 128);
    config.vocab_size = 151_936;
    config.positions.theta = 1e6;
    config.positions.local_theta = 1e6;
    config.max_position = 40_960;
    config.tie_word_embeddings = tied;
    config.bos_ids = vec![151_643];
    config.eos_ids = vec![151_645];
    config
}

/// A small model for tests. Rows are whole blocks of every format.
fn tiny() -> ModelConfig {
    let mut config = ModelConfig::from_sizes(&QWEN3, [256, 512, 6, 8, 2], 64);
    config.vocab_size = 997;
    config.positions.theta = 1e6;
    config.positions.local_theta = 1e6;
    config.max_position = 4096;
    config.bos_ids = vec![1];
    config.eos_ids = vec![2];
    config
}
