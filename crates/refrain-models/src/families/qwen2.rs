//! Qwen2 and Qwen2.5 (Qwen team 2024, arXiv:2407.10671, arXiv:2412.15115): a Llama with biases of q, k and v.

use refrain_formats::{Error, Key, Metadata};
use serde_json::{Value, json};

use crate::config::read::{self, Biases, Defaults};
use crate::config::{LayerAttention, LayerRope, ModelConfig, layers};
use crate::family::{Family, Keys};
use crate::transformer::Style;

pub(super) static QWEN2: Family = Family {
    name: "qwen2",
    class: "Qwen2ForCausalLM",
    gguf: Some("qwen2"),
    about: "Qwen2 and Qwen2.5",
    keys: Keys {
        followed: &[
            "hidden_act",
            "max_window_layers",
            "sliding_window",
            "use_sliding_window",
        ],
        // Queries, keys and values have biases here, and what was mixed has none, whatever the key says.
        without_effect: &["attention_bias", "qkv_bias"],
        ..Keys::COMMON
    },
    read,
    tensors: |config| Style::USUAL.tensors(config),
    build: |loader| Style::USUAL.build(loader),
    config_json,
    ..Family::DENSE
};

fn read(metadata: &Metadata<'_>) -> Result<ModelConfig, Error> {
    let defaults = Defaults {
        biases: Biases {
            attention: true,
            ..Biases::default()
        },
        ..Defaults::of(&QWEN2)
    };
    let mut config = read::decoder(metadata, &defaults, None)?;
    config.attention.layers = windows(metadata, config.layers)?;
    Ok(config)
}

/// A window from some layer on, if it is switched on.
pub(super) fn windows(metadata: &Metadata<'_>, layers: usize) -> Result<Vec<LayerAttention>, Error> {
    let window = if metadata.is_gguf() {
        None
    } else {
        layers::window(metadata)?.filter(|_| metadata.json("use_sliding_window") == Some(&Value::Bool(true)))
    };
    let first = metadata.number(Key::json("max_window_layers"))?.unwrap_or(28.0);
    layers::with_window(metadata, layers, window, LayerRope::Global, |layer| {
        layer as f64 >= first
    })
}

/// What says so in `config.json`.
pub(super) fn config_json(config: &ModelConfig) -> Value {
    let first = (0..config.layers).find(|&layer| config.layer_attention(layer).window.is_some());
    json!({
        "max_window_layers": first.unwrap_or(config.layers),
        "sliding_window": config.window(),
        "use_sliding_window": config.window().is_some(),
    })
}
