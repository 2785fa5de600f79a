//! Qwen2 and Qwen2.5 (Qwen team 2024, arXiv:2407.10671, arXiv:2412.15115): Llama with biases of q, k and v.

use refrain_formats::{Error, Key, Metadata};
use serde_json::{Value, json};

use crate::config::read::{self, Biases, Defaults};
use crate::config::{LayerAttention, LayerRope, ModelConfig, layers};
use crate::family::{Family, Keys};
use crate::transformer::TransformerStyle;

pub(super) static QWEN2: Family = Family {
    name: "qwen2",
    class: "Qwen2ForCausalLM",
    gguf: Some("qwen2"),
    description: "Qwen2 and Qwen2.5",
    keys: Keys {
        supported: &[
            "hidden_act",
            "max_window_layers",
            "sliding_window",
            "use_sliding_window",
        ],
        // The q, k and v projections always have biases and the output projection never, whatever these keys say.
        ignored: &["attention_bias", "qkv_bias"],
        ..Keys::COMMON
    },
    read,
    tensors: |config| TransformerStyle::DEFAULT.tensors(config),
    build: |loader| TransformerStyle::DEFAULT.build(loader),
    config_json,
    ..Family::DENSE
};

fn read(metadata: &Metadata<'_>) -> Result<ModelConfig, Error> {
    let defaults = Defaults {
        biases: Biases {
            attention: true,
            ..Biases::default()
        },
        ..Defaults::new(&QWEN2)
    };
    let mut config = read::decoder(metadata, &defaults, None)?;
    config.attention.layers = windows(metadata, config.layers)?;
    Ok(config)
}

/// Windows from layer `max_window_layers` on, if enabled.
pub(super) fn windows(metadata: &Metadata<'_>, layers: usize) -> Result<Vec<LayerAttention>, Error> {
    let window = if metadata.is_gguf() {
        None
    } else {
        layers::window(metadata)?.filter(|_| metadata.json("use_sliding_window") == Some(&Value::Bool(true)))
    };
    let first = metadata.number(Key::json("max_window_layers"))?.unwrap_or(28.0);
    layers::windowed_layers(metadata, layers, window, LayerRope::Global, |layer| {
        layer as f64 >= first
    })
}

/// The window's keys of `config.json`.
pub(super) fn config_json(config: &ModelConfig) -> Value {
    let first = (0..config.layers).find(|&layer| config.layer_attention(layer).window.is_some());
    json!({
        "max_window_layers": first.unwrap_or(config.layers),
        "sliding_window": config.window(),
        "use_sliding_window": config.window().is_some(),
    })
}
