//! OLMo 2 (OLMo team 2025, arXiv:2501.00656): norms after the blocks, before they join the residual stream, and of the
//! queries and keys over all heads together. OLMo 3 differs in its windows; GGUF files call both by one name.

use refrain_formats::{Error, Metadata};
use serde_json::json;

use crate::blocks::QkNorm;
use crate::config::layers::{self, PATTERN, WINDOW};
use crate::config::read::{self, Biases, Defaults};
use crate::config::{LayerRope, ModelConfig, written_gguf};
use crate::family::{Family, Keys};
use crate::transformer::Style;

pub(super) static OLMO2: Family = Family {
    name: "olmo2",
    class: "Olmo2ForCausalLM",
    about: "OLMo 2; in GGUF files also OLMo 3",
    keys: Keys {
        followed: &["attention_bias", "hidden_act"],
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
    in_directory: |config| {
        if config.window().is_some() {
            config.family = &OLMO3;
        }
    },
    ..FAMILY
};

pub(super) static OLMO3: Family = Family {
    name: "olmo3",
    class: "Olmo3ForCausalLM",
    about: "OLMo 3",
    keys: Keys {
        followed: &["attention_bias", "hidden_act", "sliding_window"],
        ..KEYS
    },
    read: |metadata| {
        let window = layers::window(metadata)?.or((!metadata.mentions(WINDOW)).then_some(4096));
        read(metadata, &OLMO3, window)
    },
    config_json: |config| json!({ "layer_types": config.layer_types(), "pad_token_id": null, "sliding_window": config.window() }),
    ..FAMILY
};

const FAMILY: Family = Family {
    gguf: Some("olmo2"),
    tensors: |config| STYLE.tensors(config),
    build: |loader| STYLE.build(loader),
    gguf_metadata: written_gguf::listed_windows,
    ..Family::DENSE
};

const KEYS: Keys = Keys {
    // Queries and keys are normalised here, whatever the key says.
    without_effect: &["use_qk_norm"],
    followed_in_gguf: &[WINDOW.gguf],
    ..Keys::COMMON
};

const STYLE: Style = Style {
    before_attention: None,
    after_attention: Some(["post_attention_layernorm", "post_attention_norm"]),
    before_mlp: None,
    after_mlp: Some(["post_feedforward_layernorm", "post_ffw_norm"]),
    qk_norm: QkNorm::Projection,
    ..Style::USUAL
};

fn read(metadata: &Metadata<'_>, family: &'static Family, window: Option<usize>) -> Result<ModelConfig, Error> {
    let bias = read::flag(metadata, "attention_bias")?;
    let olmo3 = *family == OLMO3;
    let defaults = Defaults {
        max_position: 2048,
        rope_theta: if olmo3 { 5e5 } else { 10_000.0 },
        rope_by_layer_type: olmo3,
        norm_eps: 1e-5,
        biases: Biases {
            attention: bias,
            output: bias,
            mlp: false,
        },
        ..Defaults::of(family)
    };
    let mut config = read::decoder(metadata, &defaults, None)?;
    let period = if metadata.is_gguf() && !metadata.is_list(PATTERN) {
        metadata.count(PATTERN)?.unwrap_or(4)
    } else {
        4
    };
    let local = |layer: usize| (olmo3 || metadata.is_gguf()) && !(layer + 1).is_multiple_of(period);
    config.attention.layers = layers::with_window(metadata, config.layers, window, LayerRope::Local, local)?;
    Ok(config)
}
