//! Mistral (Jiang et al. 2023, arXiv:2310.06825): a Llama with a window, which GGUF files call by that name.

use refrain_formats::{Error, Metadata};
use serde_json::json;

use crate::config::layers::{self, WINDOW};
use crate::config::read::{self, Defaults};
use crate::config::{LayerRope, ModelConfig};
use crate::family::{Family, Keys};
use crate::transformer::Style;

pub(super) static MISTRAL: Family = Family {
    name: "mistral",
    class: "MistralForCausalLM",
    gguf: Some("llama"),
    about: "Mistral",
    keys: Keys {
        followed: &["hidden_act", "sliding_window"],
        ..Keys::COMMON
    },
    read,
    tensors: |config| Style::USUAL.tensors(config),
    build: |loader| Style::USUAL.build(loader),
    config_json: |config| json!({ "sliding_window": config.window() }),
    ..Family::DENSE
};

fn read(metadata: &Metadata<'_>) -> Result<ModelConfig, Error> {
    let defaults = Defaults {
        kv_heads: Some(8),
        max_position: 131_072,
        ..Defaults::of(&MISTRAL)
    };
    let mut config = read::decoder(metadata, &defaults, None)?;
    let window = layers::window(metadata)?.or((!metadata.mentions(WINDOW)).then_some(4096));
    let local = window.is_some();
    config.attention.layers = layers::with_window(metadata, config.layers, window, LayerRope::Global, |_| local)?;
    Ok(config)
}
