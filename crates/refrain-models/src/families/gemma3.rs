//! Gemma 3's text decoder (Gemma team 2025, arXiv:2503.19786): norms before and after attention and MLP, norms of
//! query and key heads, and sliding windows in five of six layers, with their own rotary base.

use refrain_formats::MetadataValue;
use refrain_formats::{Error, Key, Metadata};
use serde_json::json;

use crate::blocks::QkNorm;
use crate::config::layers::{self, SLIDING_WINDOW, SLIDING_WINDOW_PATTERN};
use crate::config::read::{self, Biases, Defaults, LOGIT_CAP};
use crate::config::{Activation, LayerRope, ModelConfig, rope_json, write_gguf};
use crate::family::{Family, Keys};
use crate::transformer::TransformerStyle;

pub(super) static GEMMA3: Family = Family {
    name: "gemma3_text",
    class: "Gemma3ForCausalLM",
    gguf: Some("gemma3"),
    description: "Gemma 3 (text decoder)",
    keys: Keys {
        supported: &[
            "attention_bias",
            "final_logit_softcapping",
            "hidden_activation",
            "query_pre_attn_scalar",
            "rope_local_base_freq",
            "sliding_window",
            "sliding_window_pattern",
        ],
        ignored: &["hidden_act", "use_qk_norm"],
        supported_in_gguf: &[SLIDING_WINDOW.gguf, LOGIT_CAP.gguf],
    },
    mlx_keeps_head: true,
    read,
    tensors: |config| STYLE.tensors(config),
    build: |loader| STYLE.build(loader),
    config_json: |config| {
        json!({
            "attn_logit_softcapping": null,
            "final_logit_softcapping": config.multipliers.logit_cap,
            "hidden_activation": "gelu_pytorch_tanh",
            "layer_types": config.layer_types(),
            "query_pre_attn_scalar": f64::from(config.attention.scale).powi(-2).round() as u64,
            "rope_local_base_freq": config.positions.local_theta,
            "sliding_window": config.window(),
            "sliding_window_pattern": config.first_without_window().map(|first| first + 1),
        })
    },
    legacy_keys: &["rope_local_base_freq", "sliding_window_pattern"],
    gguf_metadata: |config| {
        let mut keys = write_gguf::window_pattern(config);
        keys.extend(
            config
                .multipliers
                .logit_cap
                .map(|cap| (LOGIT_CAP.gguf, MetadataValue::F32(cap))),
        );
        keys
    },
    // Directories store norms' weights minus 1; GGUF files store them in full.
    gguf_to_hf: |config| config.norm.offset = 1.0,
    ..Family::DENSE
};

const STYLE: TransformerStyle = TransformerStyle {
    attn_norm: Some(["input_layernorm", "attn_norm"]),
    attn_post_norm: Some(["post_attention_layernorm", "post_attention_norm"]),
    ffn_norm: Some(["pre_feedforward_layernorm", "ffn_norm"]),
    ffn_post_norm: Some(["post_feedforward_layernorm", "post_ffw_norm"]),
    qk_norm: QkNorm::Heads,
    ..TransformerStyle::DEFAULT
};

/// Rotary base of sliding-window layers.
const LOCAL_BASE: Key = Key::new("rope_local_base_freq", "rope.freq_base_swa");
/// Attention scores are divided by the root of this. GGUF files have no such key.
const QUERY_PRE_ATTN_SCALAR: Key = Key::json("query_pre_attn_scalar");

fn read(metadata: &Metadata<'_>) -> Result<ModelConfig, Error> {
    let bias = read::flag(metadata, "attention_bias")?;
    let defaults = Defaults {
        head_dim: Some(256),
        heads: Some(8),
        kv_heads: Some(4),
        vocab_size: Some(262_208),
        max_position: 131_072,
        rope_theta: 1e6,
        rope_per_layer_type: true,
        tie_word_embeddings: true,
        activation_key: Some("hidden_activation"),
        activation: Activation::GeluTanh,
        biases: Biases {
            attention: bias,
            output: bias,
            mlp: false,
        },
        ..Defaults::new(&GEMMA3)
    };
    let mut config = read::decoder(metadata, &defaults, None)?;
    config.multipliers.embedding = (config.hidden_size as f32).sqrt();
    config.norm.offset = if metadata.is_gguf() { 0.0 } else { 1.0 };
    config.multipliers.logit_cap = metadata.number(LOGIT_CAP)?.map(|cap| cap as f32);
    let scored = if !metadata.is_gguf() {
        metadata.number(QUERY_PRE_ATTN_SCALAR)?.unwrap_or(256.0)
    } else if config.layers == 62 {
        // Only the model with 62 layers (27B) derives this from the width.
        (config.hidden_size / config.attention.heads) as f64
    } else {
        config.attention.head_dim as f64
    };
    config.attention.scale = scored.powf(-0.5) as f32;
    config.positions.local_theta = match rope_json::local_theta(metadata)? {
        Some(theta) => theta,
        None => metadata.number(LOCAL_BASE)?.unwrap_or(10_000.0),
    };
    let default = (!metadata.is_gguf() && !metadata.contains_key(SLIDING_WINDOW)).then_some(4096);
    let window = layers::window(metadata)?.or(default);
    let period = if metadata.is_gguf() && metadata.is_list(SLIDING_WINDOW_PATTERN) {
        6
    } else {
        metadata.count(SLIDING_WINDOW_PATTERN)?.unwrap_or(6)
    };
    let local = |layer: usize| !(layer + 1).is_multiple_of(period);
    config.attention.layers = layers::windowed_layers(metadata, config.layers, window, LayerRope::Local, local)?;
    Ok(config)
}
