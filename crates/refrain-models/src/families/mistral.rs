//! Mistral (Jiang et al. 2023, arXiv:2310.06825): Llama with a sliding window. GGUF files use the name `llama`.

use refrain_formats::{Error, Metadata};
use serde_json::json;

use crate::config::layers::{self, SLIDING_WINDOW};
use crate::config::read::{self, Defaults};
use crate::config::{LayerRope, ModelConfig};
use crate::family::{Family, Keys};
use crate::transformer::TransformerStyle;

pub(super) static MISTRAL: Family = Family {
    name: "mistral",
    class: "MistralForCausalLM",
    gguf: Some("llama"),
    description: "Mistral",
    keys: Keys {
        supported: &["hidden_act", "sliding_window"],
        ..Keys::COMMON
    },
    read,
    tensors: |config| TransformerStyle::DEFAULT.tensors(config),
    build: |loader| TransformerStyle::DEFAULT.build(loader),
    config_json: |config| json!({ "sliding_window": config.window() }),
    ..Family::DENSE
};

fn read(metadata: &Metadata<'_>) -> Result<ModelConfig, Error> {
    let defaults = Defaults {
        kv_heads: Some(8),
        max_position: 131_072,
        ..Defaults::new(&MISTRAL)
    };
    let mut config = read::decoder(metadata, &defaults, None)?;
    let window = layers::window(metadata)?.or((!metadata.contains_key(SLIDING_WINDOW)).then_some(4096));
    let local = window.is_some();
    config.attention.layers = layers::windowed_layers(metadata, config.layers, window, LayerRope::Global, |_| local)?;
    Ok(config)
}
