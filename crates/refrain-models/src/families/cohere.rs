//! Command R (Cohere 2024) and its successors: parallel attention and MLP after one LayerNorm without bias,
//! interleaved rotary embeddings, scaled logits. Command R7B and A (Cohere 2025, arXiv:2504.00698) have sliding
//! windows in three of four layers, and no positions in the fourth.

use refrain_formats::MetadataValue;
use refrain_formats::{Error, Key, Metadata};
use serde_json::json;

use crate::blocks::{NormKind, QkNorm};
use crate::config::layers::{self, SLIDING_WINDOW};
use crate::config::read::{self, Biases, Defaults};
use crate::config::{LayerAttention, LayerRope, ModelConfig, write_gguf};
use crate::family::{Family, Keys};
use crate::transformer::TransformerStyle;

pub(super) static COHERE: Family = Family {
    name: "cohere",
    class: "CohereForCausalLM",
    gguf: Some("command-r"),
    description: "Command R",
    keys: Keys {
        supported: &[
            "attention_bias",
            "hidden_act",
            "layer_norm_eps",
            "logit_scale",
            "model_max_length",
            "use_qk_norm",
        ],
        ignored: &["rms_norm_eps"],
        supported_in_gguf: &[LOGIT_SCALE.gguf],
    },
    eps: EPS,
    read: |metadata| {
        let mut config = read(metadata, &COHERE, 500_000.0)?;
        config.attention.qk_norm = if metadata.is_gguf() {
            metadata.tensor_shape("blk.0.attn_q_norm.weight").is_some()
        } else {
            read::flag(metadata, "use_qk_norm")?
        };
        config.attention.layers = layers::windowed_layers(metadata, config.layers, None, LayerRope::Global, |_| false)?;
        // In early files, this key holds the context length of the rotary embedding.
        if let Some(context) = metadata.count(Key::json("model_max_length"))? {
            config.max_position = context;
        }
        Ok(config)
    },
    tensors: |config| style(config).tensors(config),
    build: |loader| style(loader.config).build(loader),
    config_json: |config| {
        json!({
            "logit_scale": read::decimal(config.multipliers.logit_scale),
            "use_qk_norm": config.attention.qk_norm,
        })
    },
    gguf_metadata: |config| vec![(LOGIT_SCALE.gguf, MetadataValue::F32(config.multipliers.logit_scale))],
    presets: &[
        ("tiny-cohere", || tiny(&COHERE)),
        ("command-r", || {
            published(&COHERE, [8192, 22_528, 40, 64, 64], 8e6, 0.0625)
        }),
        ("command-r-plus", || {
            let mut config = published(&COHERE, [12_288, 33_792, 64, 96, 8], 75e6, 0.833_333_3);
            config.attention.qk_norm = true;
            config
        }),
    ],
    ..Family::DENSE
};

pub(super) static COHERE2: Family = Family {
    name: "cohere2",
    class: "Cohere2ForCausalLM",
    gguf: Some("cohere2"),
    description: "Command R7B, Command A",
    keys: Keys {
        supported: &[
            "attention_bias",
            "hidden_act",
            "layer_norm_eps",
            "logit_scale",
            "sliding_window",
            "sliding_window_pattern",
        ],
        ignored: &["rms_norm_eps"],
        supported_in_gguf: &[LOGIT_SCALE.gguf, SLIDING_WINDOW.gguf],
    },
    eps: EPS,
    read: |metadata| {
        let mut config = read(metadata, &COHERE2, 10_000.0)?;
        let default = (!metadata.is_gguf() && !metadata.contains_key(SLIDING_WINDOW)).then_some(4096);
        let window = layers::window(metadata)?.or(default);
        if window.is_none() {
            return Err(metadata.unsupported("sliding_window is missing; it determines which layers have positions"));
        }
        let period = metadata
            .count(Key::json(layers::SLIDING_WINDOW_PATTERN.json))?
            .unwrap_or(PERIOD);
        let own = layers::windowed_layers(metadata, config.layers, window, LayerRope::Global, |layer| {
            has_window(layer, period)
        })?;
        config.attention.layers = without_positions(own, config.layers);
        Ok(config)
    },
    tensors: |config| STYLE.tensors(config),
    build: |loader| STYLE.build(loader),
    config_json: |config| {
        json!({
            "layer_types": config.layer_types(),
            "logit_scale": read::decimal(config.multipliers.logit_scale),
            "sliding_window": config.window(),
        })
    },
    gguf_metadata: |config| {
        let mut keys =
            if (0..config.layers).all(|n| config.layer_attention(n).window.is_some() == has_window(n, PERIOD)) {
                write_gguf::window(config)
            } else {
                write_gguf::window_list(config)
            };
        keys.push((LOGIT_SCALE.gguf, MetadataValue::F32(config.multipliers.logit_scale)));
        keys
    },
    legacy_keys: &["layer_types"],
    presets: &[
        ("tiny-cohere2", || with_windows(tiny(&COHERE2), 16)),
        ("command-r7b", || {
            with_windows(published(&COHERE2, [4096, 14_336, 32, 32, 8], 50_000.0, 0.25), 4096)
        }),
        ("command-a", || {
            with_windows(published(&COHERE2, [12_288, 36_864, 64, 96, 8], 50_000.0, 0.25), 4096)
        }),
    ],
    ..Family::DENSE
};

const STYLE: TransformerStyle = TransformerStyle {
    ffn_norm: None,
    norm: NormKind::LayerWithoutBias,
    parallel: true,
    ..TransformerStyle::DEFAULT
};

const WITH_NORMS: TransformerStyle = TransformerStyle {
    qk_norm: QkNorm::EachHead,
    ..STYLE
};

fn style(config: &ModelConfig) -> &'static TransformerStyle {
    if config.attention.qk_norm { &WITH_NORMS } else { &STYLE }
}

const EPS: Key = Key::new("layer_norm_eps", "attention.layer_norm_epsilon");
/// Factor of the logits.
const LOGIT_SCALE: Key = Key::new("logit_scale", "logit_scale");
/// Default period of layers without a window.
const PERIOD: usize = 4;

fn has_window(layer: usize, period: usize) -> bool {
    !(layer + 1).is_multiple_of(period)
}

fn read(metadata: &Metadata<'_>, family: &'static Family, rope_theta: f64) -> Result<ModelConfig, Error> {
    let bias = read::flag(metadata, "attention_bias")?;
    let defaults = Defaults {
        heads: Some(64),
        vocab_size: Some(256_000),
        max_position: 8192,
        rope_theta,
        norm_eps: 1e-5,
        tie_word_embeddings: true,
        biases: Biases {
            attention: bias,
            output: bias,
            mlp: false,
        },
        ..Defaults::new(family)
    };
    let mut config = read::decoder(metadata, &defaults, None)?;
    let default = if metadata.is_gguf() { 1.0 } else { 0.0625 };
    config.multipliers.logit_scale = metadata.number(LOGIT_SCALE)?.unwrap_or(default) as f32;
    config.positions.interleaved = true;
    Ok(config)
}

/// Removes the positions of layers with full attention.
fn without_positions(mut own: Vec<LayerAttention>, layers: usize) -> Vec<LayerAttention> {
    own.resize(layers, LayerAttention::default());
    for layer in own.iter_mut().filter(|layer| layer.window.is_none()) {
        layer.rope = LayerRope::None;
    }
    own
}

fn with_windows(mut config: ModelConfig, window: usize) -> ModelConfig {
    let attention = |layer| LayerAttention {
        window: has_window(layer, PERIOD).then_some(window),
        rope: LayerRope::Global,
    };
    config.attention.layers = without_positions((0..config.layers).map(attention).collect(), config.layers);
    config
}

fn published(family: &'static Family, sizes: [usize; 5], theta: f64, logit_scale: f32) -> ModelConfig {
    let mut config = from_sizes(family, sizes, 128, theta);
    config.vocab_size = 256_000;
    config.max_position = 131_072;
    config.multipliers.logit_scale = logit_scale;
    config.bos_ids = vec![5];
    config.eos_ids = vec![255_001];
    config
}

/// A small model for tests. Rows are whole blocks of every format.
fn tiny(family: &'static Family) -> ModelConfig {
    let mut config = from_sizes(family, [256, 512, 4, 4, 2], 64, 10_000.0);
    config.vocab_size = 997;
    config.max_position = 4096;
    config.multipliers.logit_scale = 0.25;
    config.attention.qk_norm = family.name == COHERE.name;
    config.bos_ids = vec![1];
    config.eos_ids = vec![2];
    config
}

fn from_sizes(family: &'static Family, sizes: [usize; 5], head_dim: usize, theta: f64) -> ModelConfig {
    let mut config = ModelConfig::from_sizes(family, sizes, head_dim);
    config.norm.eps = 1e-5;
    config.tie_word_embeddings = true;
    config.positions.theta = theta;
    config.positions.local_theta = theta;
    config.positions.interleaved = true;
    config
}
