//! SmolLM3 (Hugging Face 2025): Llama without positions in every fourth layer (NoPE; Yang et al. 2025,
//! arXiv:2501.18795).

use refrain_formats::{Error, Key, Metadata};
use serde_json::{Value, json};

use crate::config::read::{self, Biases, Defaults};
use crate::config::{LayerAttention, LayerRope, MAX_LAYERS, ModelConfig, layers};
use crate::family::{Family, Keys};
use crate::transformer::TransformerStyle;

pub(super) static SMOLLM3: Family = Family {
    name: "smollm3",
    class: "SmolLM3ForCausalLM",
    gguf: Some("smollm3"),
    description: "SmolLM3",
    keys: Keys {
        supported: &[
            "attention_bias",
            "hidden_act",
            "mlp_bias",
            "no_rope_layer_interval",
            "no_rope_layers",
            "sliding_window",
            "use_sliding_window",
        ],
        ..Keys::COMMON
    },
    read,
    tensors: |config| STYLE.tensors(config),
    build: |loader| STYLE.build(loader),
    config_json: |config| {
        let rotated = (0..config.layers).map(|layer| config.layer_attention(layer).rope != LayerRope::None);
        json!({
            "mlp_bias": config.feed_forward.bias,
            // 1 means rotated, despite the name.
            "no_rope_layers": rotated.map(u8::from).collect::<Vec<_>>(),
            "layer_types": config.layer_types(),
            "pad_token_id": null,
            "sliding_window": config.window(),
            "use_sliding_window": config.window().is_some(),
        })
    },
    ..Family::DENSE
};

const STYLE: TransformerStyle = TransformerStyle {
    interleaved: true,
    ..TransformerStyle::DEFAULT
};

/// Period of layers without positions. llama.cpp has no key for it and supports only the default.
const INTERVAL: Key = Key::json("no_rope_layer_interval");

fn read(metadata: &Metadata<'_>) -> Result<ModelConfig, Error> {
    let bias = read::flag(metadata, "attention_bias")?;
    let defaults = Defaults {
        kv_heads: Some(4),
        rope_theta: 2e6,
        tie_word_embeddings: true,
        biases: Biases {
            attention: bias,
            output: bias,
            mlp: read::flag(metadata, "mlp_bias")?,
        },
        ..Defaults::new(&SMOLLM3)
    };
    let mut config = read::decoder(metadata, &defaults, None)?;
    let rotated = rotated_layers(metadata, config.layers.min(MAX_LAYERS))?;
    let switched_on = metadata.json("use_sliding_window") == Some(&Value::Bool(true));
    let window = if metadata.is_gguf() {
        None
    } else {
        layers::window(metadata)?.filter(|_| switched_on)
    };
    let windows = layers::windowed_layers(metadata, config.layers, window, LayerRope::Global, |layer| {
        !rotated[layer]
    })?;
    let attention = |(layer, &rotated): (usize, &bool)| LayerAttention {
        rope: if rotated { LayerRope::Global } else { LayerRope::None },
        ..windows.get(layer).copied().unwrap_or_default()
    };
    config.attention.layers = layers::trim_defaults(rotated.iter().enumerate().map(attention).collect());
    Ok(config)
}

/// Reads which layers are rotated: 1 in `no_rope_layers`, despite its name.
fn rotated_layers(metadata: &Metadata<'_>, layers: usize) -> Result<Vec<bool>, Error> {
    let Some(listed) = metadata.per_layer("no_rope_layers", layers)? else {
        let interval = metadata.count(INTERVAL)?.unwrap_or(4);
        return Ok((1..=layers).map(|number| !number.is_multiple_of(interval)).collect());
    };
    let flags = listed.iter().map(|flag| match flag.as_u64() {
        Some(flag @ (0 | 1)) => Ok(flag == 1),
        _ => Err(metadata.error(format!("no_rope_layers holds {flag}, neither 0 nor 1"))),
    });
    flags.collect()
}
