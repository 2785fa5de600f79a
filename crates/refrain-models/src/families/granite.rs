//! Granite 3 (IBM 2024): Llama with scaling factors of the embedding, the attention scores, the residual stream and
//! the logits.

use refrain_formats::MetadataValue;
use refrain_formats::{Error, Key, Metadata};
use serde_json::json;

use crate::config::read::{self, Biases, Defaults};
use crate::config::{LayerRope, ModelConfig, layers};
use crate::family::{Family, Keys};
use crate::transformer::TransformerStyle;

pub(super) static GRANITE: Family = Family {
    name: "granite",
    class: "GraniteForCausalLM",
    gguf: Some("granite"),
    description: "Granite 3, dense",
    keys: Keys {
        supported: &[
            "attention_bias",
            "attention_multiplier",
            "embedding_multiplier",
            "hidden_act",
            "logits_scaling",
            "mlp_bias",
            "residual_multiplier",
        ],
        supported_in_gguf: &[ATTENTION.gguf, EMBEDDING.gguf, RESIDUAL.gguf, LOGIT_SCALE.gguf],
        ..Keys::COMMON
    },
    read,
    tensors: |config| STYLE.tensors(config),
    build: |loader| STYLE.build(loader),
    config_json: |config| {
        json!({
            "attention_multiplier": read::decimal(config.attention.scale),
            "embedding_multiplier": read::decimal(config.multipliers.embedding),
            "logits_scaling": read::decimal(config.multipliers.logit_divisor),
            "mlp_bias": config.feed_forward.bias,
            "residual_multiplier": read::decimal(config.multipliers.residual),
        })
    },
    gguf_metadata: |config| {
        vec![
            (ATTENTION.gguf, MetadataValue::F32(config.attention.scale)),
            (EMBEDDING.gguf, MetadataValue::F32(config.multipliers.embedding)),
            (RESIDUAL.gguf, MetadataValue::F32(config.multipliers.residual)),
            (LOGIT_SCALE.gguf, MetadataValue::F32(config.multipliers.logit_divisor)),
        ]
    },
    presets: &[
        ("granite-3.3-2b", || sized([2048, 8192, 40, 32, 8], 64, 8.0)),
        ("granite-3.3-8b", || sized([4096, 12800, 40, 32, 8], 128, 16.0)),
    ],
    ..Family::DENSE
};

const STYLE: TransformerStyle = TransformerStyle {
    interleaved: true,
    ..TransformerStyle::DEFAULT
};

/// Factor of the attention scores.
const ATTENTION: Key = Key::new("attention_multiplier", "attention.scale");
/// Factor of the token embedding.
const EMBEDDING: Key = Key::new("embedding_multiplier", "embedding_scale");
/// Factor of what each block adds to the residual stream.
const RESIDUAL: Key = Key::new("residual_multiplier", "residual_scale");
/// Divisor of the logits.
const LOGIT_SCALE: Key = Key::new("logits_scaling", "logit_scale");

fn read(metadata: &Metadata<'_>) -> Result<ModelConfig, Error> {
    let bias = read::flag(metadata, "attention_bias")?;
    let defaults = Defaults {
        max_position: 2048,
        biases: Biases {
            attention: bias,
            output: bias,
            mlp: read::flag(metadata, "mlp_bias")?,
        },
        ..Defaults::new(&GRANITE)
    };
    let mut config = read::decoder(metadata, &defaults, None)?;
    let multiplier = |key: Key, otherwise: f32| match metadata.number(key)? {
        None => Ok(otherwise),
        Some(value) if (value as f32).is_finite() && value as f32 > 0.0 => Ok(value as f32),
        Some(value) => Err(metadata.error(format!("{} is {value}, not a positive number", metadata.name(key)))),
    };
    // In GGUF files, 0 means the default.
    let default = metadata.is_gguf() && metadata.number(ATTENTION)?.is_none_or(|scale| scale == 0.0);
    config.attention.scale = if default {
        config.attention.scale
    } else {
        multiplier(ATTENTION, 1.0)?
    };
    config.multipliers.embedding = multiplier(EMBEDDING, 1.0)?;
    config.multipliers.residual = multiplier(RESIDUAL, 1.0)?;
    config.multipliers.logit_divisor = multiplier(LOGIT_SCALE, 1.0)?;
    config.attention.layers = layers::windowed_layers(metadata, config.layers, None, LayerRope::Global, |_| false)?;
    Ok(config)
}

/// Granite 3.3.
fn sized(sizes: [usize; 5], head_dim: usize, logit_divisor: f32) -> ModelConfig {
    let mut config = ModelConfig::from_sizes(&GRANITE, sizes, head_dim);
    config.vocab_size = 49_159;
    config.norm.eps = 1e-5;
    config.positions.theta = 1e7;
    config.positions.local_theta = 1e7;
    config.max_position = 131_072;
    config.tie_word_embeddings = true;
    config.attention.scale = 1.0 / head_dim as f32;
    config.multipliers.embedding = 12.0;
    config.multipliers.residual = 0.22;
    config.multipliers.logit_divisor = logit_divisor;
    config.bos_ids = vec![0];
    config.eos_ids = vec![0];
    config
}
