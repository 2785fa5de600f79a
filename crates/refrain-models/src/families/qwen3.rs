//! Qwen3, dense (Qwen team 2025, arXiv:2505.09388): Llama with normalised query and key heads.

use refrain_formats::{Error, Key, Metadata};
use serde_json::{Value, json};

use super::qwen2;
use crate::blocks::QkNorm;
use crate::config::ModelConfig;
use crate::config::read::{self, Biases, Defaults};
use crate::family::{Family, Keys};
use crate::mtp::MtpNames;
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
            MTP_LAYERS.json,
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
    config_json,
    // Published models have no such head: one that was trained for them has Qwen3.5's names, and plain norms. A GGUF file
    // with one is read here, but not by llama.cpp.
    mtp: MtpNames::AS_MTP,
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

const MTP_LAYERS: Key = Key::json("mtp_num_hidden_layers");

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
    config.mtp_layers = read::mtp_layers(metadata, &config, MTP_LAYERS)?;
    Ok(config)
}

fn config_json(config: &ModelConfig) -> Value {
    let mut fields = qwen2::config_json(config);
    if config.mtp_layers > 0 {
        fields[MTP_LAYERS.json] = json!(config.mtp_layers);
    }
    fields
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_multi_token_prediction_head_is_written_as_it_is_read() {
        for heads in [None, Some(0), Some(1)] {
            let mut config = json!({
                "model_type": "qwen3", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
                "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 40,
            });
            if let Some(heads) = heads {
                config[MTP_LAYERS.json] = json!(heads);
            }
            let metadata = Metadata::from_json(config.as_object().unwrap(), "config.json");
            let config = read(&metadata).unwrap();
            let found = heads.filter(|heads| *heads > 0);
            assert_eq!(config.mtp_layers, found.unwrap_or(0));
            assert_eq!(config.norm.offset, 0.0);
            let written = config_json(&config);
            assert_eq!(written.get(MTP_LAYERS.json), found.map(|heads| json!(heads)).as_ref());
            let has_tensor = |name: &str| STYLE.tensors(&config).iter().any(|row| row.name == name);
            for name in [
                "mtp.fc.weight",
                "mtp.norm.weight",
                "mtp.layers.0.self_attn.q_norm.weight",
            ] {
                assert_eq!(has_tensor(name), found.is_some(), "{name}");
            }
        }
    }
}
