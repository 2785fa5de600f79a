//! gpt-oss (OpenAI 2025, arXiv:2508.10925): mixtures of experts with biases and clamped gates, attention sinks, and
//! sliding windows in every other layer.

use refrain_formats::MetadataValue;
use refrain_formats::{Error, Key, Metadata};
use serde_json::{Value, json};

use crate::config::layers::{self, SLIDING_WINDOW};
use crate::config::read::{self, Biases, Defaults};
use crate::config::{
    Activation, LayerAttention, LayerRope, ModelConfig, MoeConfig, MoeStyle, RopeScaling, RouterConfig, write_gguf,
};
use crate::family::{Family, Keys};
use crate::transformer::TransformerStyle;

pub(super) static GPT_OSS: Family = Family {
    name: "gpt_oss",
    class: "GptOssForCausalLM",
    gguf: Some("gpt-oss"),
    description: "gpt-oss, mixtures of experts",
    keys: Keys {
        supported: &[
            "attention_bias",
            "num_experts",
            "num_experts_per_tok",
            "num_local_experts",
            "sliding_window",
        ],
        // The activation is fixed, whatever this key says.
        ignored: &["hidden_act"],
        supported_in_gguf: &[EXPERTS.gguf, SLIDING_WINDOW.gguf],
    },
    read,
    tensors: |config| STYLE.tensors(config),
    build: |loader| STYLE.build(loader),
    config_json,
    gguf_metadata,
    presets: &[
        ("tiny-gpt-oss", tiny),
        ("gpt-oss-20b", || published(24, 32)),
        ("gpt-oss-120b", || published(36, 128)),
    ],
    ..Family::DENSE
};

const STYLE: TransformerStyle = TransformerStyle {
    ffn_norm: Some(["post_attention_layernorm", "post_attention_norm"]),
    sinks: true,
    ..TransformerStyle::DEFAULT
};

const MOE: MoeStyle = MoeStyle {
    router: "mlp.router",
    mlx_prefix: "mlp.experts",
    biases: true,
    transposed: true,
    ..MoeStyle::DEFAULT
};

const EXPERTS: Key = Key::new("num_local_experts", "expert_count");
/// Alternative key in transformers.
const ALL_EXPERTS: Key = Key::json("num_experts");
const EXPERTS_PER_TOKEN: Key = Key::new("num_experts_per_tok", "expert_used_count");
const EXPERT_INTERMEDIATE_SIZE: Key = Key::new("intermediate_size", "expert_feed_forward_length");

/// YaRN scaling by 32 from the original context.
const fn yarn(original_max_position: f64) -> RopeScaling {
    RopeScaling::Yarn {
        factor: 32.0,
        original_max_position,
        beta_fast: 32.0,
        beta_slow: 1.0,
        truncate: false,
        // 0.1 ln(32) + 1
        attention_factor: 1.346_573_590_279_972_7,
    }
}

fn read(metadata: &Metadata<'_>) -> Result<ModelConfig, Error> {
    let bias = metadata.flag(Key::json("attention_bias"))?.unwrap_or(true);
    let defaults = Defaults {
        head_dim: Some(64),
        heads: Some(64),
        kv_heads: Some(8),
        vocab_size: Some(201_088),
        max_position: 131_072,
        rope_theta: 150_000.0,
        norm_eps: 1e-5,
        activation_key: None,
        activation: Activation::ClampedSwiglu,
        biases: Biases {
            attention: bias,
            output: bias,
            mlp: false,
        },
        ..Defaults::new(&GPT_OSS)
    };
    let count = |key, default| read::count_or(metadata, key, default);
    let experts = match metadata.count(ALL_EXPERTS)? {
        Some(experts) if !metadata.contains_key(EXPERTS) => experts,
        _ => count(EXPERTS, 128)?,
    };
    let moe = moe(
        experts,
        count(EXPERTS_PER_TOKEN, 4)?,
        count(EXPERT_INTERMEDIATE_SIZE, 2880)?,
    );
    let mut config = read::decoder(metadata, &defaults, Some(moe.intermediate_size))?;
    match &mut config.positions.scaling {
        // GGUF files cannot express `truncate: false`, which all models of the family use.
        RopeScaling::Yarn { truncate, .. } if metadata.is_gguf() => *truncate = false,
        scaling @ RopeScaling::None if !metadata.is_gguf() && has_no_rope_settings(metadata) => *scaling = yarn(4096.0),
        _ => {}
    }
    let default = (!metadata.is_gguf() && !metadata.contains_key(SLIDING_WINDOW)).then_some(128);
    let window = layers::window(metadata)?.or(default);
    config.attention.layers = layers::windowed_layers(metadata, config.layers, window, LayerRope::Global, has_window)?;
    config.feed_forward.moe = Some(moe);
    Ok(config)
}

/// Whether `config.json` has no rotary scaling settings.
fn has_no_rope_settings(metadata: &Metadata<'_>) -> bool {
    let keys = ["rope_scaling", "rope_parameters"];
    keys.iter().all(|key| metadata.json(key).is_none_or(Value::is_null))
}

/// Default layers with a window: every other one.
fn has_window(layer: usize) -> bool {
    layer.is_multiple_of(2)
}

fn config_json(config: &ModelConfig) -> Value {
    let Some(moe) = &config.feed_forward.moe else {
        return Value::Null;
    };
    json!({
        "layer_types": config.layer_types(),
        "num_experts_per_tok": moe.router.experts_per_token,
        "num_local_experts": moe.experts,
        "sliding_window": config.window(),
    })
}

fn gguf_metadata(config: &ModelConfig) -> Vec<(&'static str, MetadataValue)> {
    let default = (0..config.layers).all(|layer| config.layer_attention(layer).window.is_some() == has_window(layer));
    let mut keys = if default {
        write_gguf::window(config)
    } else {
        write_gguf::window_list(config)
    };
    let count = |key: Key, value: usize| (key.gguf, MetadataValue::U32(value as u32));
    if let Some(moe) = &config.feed_forward.moe {
        keys.push(count(EXPERTS, moe.experts));
        keys.push(count(EXPERTS_PER_TOKEN, moe.router.experts_per_token));
        keys.push(count(EXPERT_INTERMEDIATE_SIZE, moe.intermediate_size));
    }
    keys
}

/// Creates the mixture. The family applies softmax to the selected logits only, which equals the renormalised softmax
/// over all.
fn moe(experts: usize, used: usize, intermediate_size: usize) -> MoeConfig {
    MoeConfig {
        experts,
        router: RouterConfig::softmax(used),
        intermediate_size,
        shared_intermediate_size: None,
        dense_layers: 0,
        style: &MOE,
    }
}

/// A published model with these numbers of layers and experts.
fn published(layers: usize, experts: usize) -> ModelConfig {
    let mut config = from_sizes([2880, 2880, layers, 64, 8]);
    config.vocab_size = 201_088;
    config.max_position = 131_072;
    config.attention.layers = windows(layers, 128);
    config.feed_forward.moe = Some(moe(experts, 4, 2880));
    config.bos_ids = vec![199_998];
    config.eos_ids = vec![200_002];
    config
}

/// A small model for tests. Rows are whole blocks of every format.
fn tiny() -> ModelConfig {
    let mut config = from_sizes([256, 256, 4, 4, 2]);
    config.vocab_size = 997;
    config.max_position = 4096;
    config.positions.scaling = yarn(128.0);
    config.attention.layers = windows(4, 16);
    config.feed_forward.moe = Some(moe(8, 2, 256));
    config.bos_ids = vec![1];
    config.eos_ids = vec![2];
    config
}

fn from_sizes(sizes: [usize; 5]) -> ModelConfig {
    let mut config = ModelConfig::from_sizes(&GPT_OSS, sizes, 64);
    config.norm.eps = 1e-5;
    config.positions.theta = 150_000.0;
    config.positions.local_theta = 150_000.0;
    config.positions.scaling = yarn(4096.0);
    config.attention.bias = true;
    config.attention.output_bias = true;
    config.feed_forward.activation = Activation::ClampedSwiglu;
    config
}

fn windows(layers: usize, window: usize) -> Vec<LayerAttention> {
    let attention = |layer| LayerAttention {
        window: has_window(layer).then_some(window),
        rope: LayerRope::Global,
    };
    layers::trim_defaults((0..layers).map(attention).collect())
}
