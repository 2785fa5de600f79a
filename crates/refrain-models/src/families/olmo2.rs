//! OLMo 2 (OLMo team 2025, arXiv:2501.00656): norms after attention and MLP, before the residual sum, and norms of
//! queries and keys over all heads. OLMo 3 adds sliding windows; GGUF files use one name for both.

use refrain_formats::{Error, Metadata};
use serde_json::json;

use crate::blocks::QkNorm;
use crate::config::layers::{self, SLIDING_WINDOW, SLIDING_WINDOW_PATTERN};
use crate::config::read::{self, Biases, Defaults};
use crate::config::{LayerRope, ModelConfig, write_gguf};
use crate::family::{Family, Keys};
use crate::transformer::TransformerStyle;

pub(super) static OLMO2: Family = Family {
    name: "olmo2",
    class: "Olmo2ForCausalLM",
    description: "OLMo 2, and OLMo 3 in GGUF files",
    keys: Keys {
        supported: &["attention_bias", "hidden_act"],
        ..KEYS
    },
    read: |metadata| {
        if metadata.is_gguf() {
            read(metadata, &OLMO2, layers::window(metadata)?)
        } else {
            read(metadata, &OLMO2, None)
        }
    },
    config_json: |_| json!({ "pad_token_id": null }),
    gguf_to_hf: |config| {
        if config.window().is_some() {
            config.family = &OLMO3;
        }
    },
    ..FAMILY
};

pub(super) static OLMO3: Family = Family {
    name: "olmo3",
    class: "Olmo3ForCausalLM",
    description: "OLMo 3",
    keys: Keys {
        supported: &["attention_bias", "hidden_act", "sliding_window"],
        ..KEYS
    },
    read: |metadata| {
        let window = layers::window(metadata)?.or((!metadata.contains_key(SLIDING_WINDOW)).then_some(4096));
        read(metadata, &OLMO3, window)
    },
    config_json: |config| json!({ "layer_types": config.layer_types(), "pad_token_id": null, "sliding_window": config.window() }),
    ..FAMILY
};

const FAMILY: Family = Family {
    gguf: Some("olmo2"),
    tensors: |config| STYLE.tensors(config),
    build: |loader| STYLE.build(loader),
    gguf_metadata: write_gguf::window_list,
    ..Family::DENSE
};

const KEYS: Keys = Keys {
    // Queries and keys are always normalised, whatever this key says.
    ignored: &["use_qk_norm"],
    supported_in_gguf: &[SLIDING_WINDOW.gguf],
    ..Keys::COMMON
};

const STYLE: TransformerStyle = TransformerStyle {
    attn_norm: None,
    attn_post_norm: Some(["post_attention_layernorm", "post_attention_norm"]),
    ffn_norm: None,
    ffn_post_norm: Some(["post_feedforward_layernorm", "post_ffw_norm"]),
    qk_norm: QkNorm::Projection,
    ..TransformerStyle::DEFAULT
};

fn read(metadata: &Metadata<'_>, family: &'static Family, window: Option<usize>) -> Result<ModelConfig, Error> {
    let bias = read::flag(metadata, "attention_bias")?;
    let olmo3 = *family == OLMO3;
    let defaults = Defaults {
        max_position: 2048,
        rope_theta: if olmo3 { 5e5 } else { 10_000.0 },
        rope_per_layer_type: olmo3,
        norm_eps: 1e-5,
        biases: Biases {
            attention: bias,
            output: bias,
            mlp: false,
        },
        ..Defaults::new(family)
    };
    let mut config = read::decoder(metadata, &defaults, None)?;
    let period = if metadata.is_gguf() && !metadata.is_list(SLIDING_WINDOW_PATTERN) {
        metadata.count(SLIDING_WINDOW_PATTERN)?.unwrap_or(4)
    } else {
        4
    };
    let local = |layer: usize| (olmo3 || metadata.is_gguf()) && !(layer + 1).is_multiple_of(period);
    config.attention.layers = layers::windowed_layers(metadata, config.layers, window, LayerRope::Local, local)?;
    Ok(config)
}
