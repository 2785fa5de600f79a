//! gpt-oss (OpenAI 2025, arXiv:2508.10925): mixtures of experts with biases and clamped gates, attention with sinks, and
//! windows in every other layer.

use refrain_formats::MetadataValue;
use refrain_formats::{Error, Key, Metadata};
use serde_json::{Value, json};

use crate::config::layers::{self, WINDOW};
use crate::config::read::{self, Biases, Defaults};
use crate::config::{
    Activation, LayerAttention, LayerRope, MixtureConfig, MixtureStyle, ModelConfig, RopeScaling, RouterConfig,
    written_gguf,
};
use crate::family::{Family, Keys};
use crate::transformer::Style;

pub(super) static GPT_OSS: Family = Family {
    name: "gpt_oss",
    class: "GptOssForCausalLM",
    gguf: Some("gpt-oss"),
    about: "gpt-oss, mixtures of experts",
    keys: Keys {
        followed: &[
            "attention_bias",
            "num_experts",
            "num_experts_per_tok",
            "num_local_experts",
            "sliding_window",
        ],
        // The activation is one of its own, whatever the key says.
        without_effect: &["hidden_act"],
        followed_in_gguf: &[EXPERTS.gguf, WINDOW.gguf],
    },
    read,
    tensors: |config| STYLE.tensors(config),
    build: |loader| STYLE.build(loader),
    config_json,
    gguf_metadata,
    sizes: &[
        ("tiny-gpt-oss", tiny),
        ("gpt-oss-20b", || published(24, 32)),
        ("gpt-oss-120b", || published(36, 128)),
    ],
    ..Family::DENSE
};

const STYLE: Style = Style {
    before_mlp: Some(["post_attention_layernorm", "post_attention_norm"]),
    sinks: true,
    ..Style::USUAL
};

const MIXTURE: MixtureStyle = MixtureStyle {
    router: "mlp.router",
    in_mlx: "mlp.experts",
    biases: true,
    transposed: true,
    ..MixtureStyle::USUAL
};

const EXPERTS: Key = Key::new("num_local_experts", "expert_count");
/// What transformers also takes.
const ALL_EXPERTS: Key = Key::json("num_experts");
const USED: Key = Key::new("num_experts_per_tok", "expert_used_count");
const WIDTH: Key = Key::new("intermediate_size", "expert_feed_forward_length");

/// How positions are stretched, from so many tokens to 32 times as many.
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
        ..Defaults::of(&GPT_OSS)
    };
    let count = |key, usual| read::usual_count(metadata, key, usual);
    let experts = match metadata.count(ALL_EXPERTS)? {
        Some(experts) if !metadata.mentions(EXPERTS) => experts,
        _ => count(EXPERTS, 128)?,
    };
    let mixture = mixture(experts, count(USED, 4)?, count(WIDTH, 2880)?);
    let mut config = read::decoder(metadata, &defaults, Some(mixture.intermediate_size))?;
    match &mut config.positions.scaling {
        // GGUF files cannot say that it is not, and no model of the family says that it is.
        RopeScaling::Yarn { truncate, .. } if metadata.is_gguf() => *truncate = false,
        scaling @ RopeScaling::None if !metadata.is_gguf() && is_silent(metadata) => *scaling = yarn(4096.0),
        _ => {}
    }
    let usual = (!metadata.is_gguf() && !metadata.mentions(WINDOW)).then_some(128);
    let window = layers::window(metadata)?.or(usual);
    config.attention.layers = layers::with_window(metadata, config.layers, window, LayerRope::Global, has_window)?;
    config.feed_forward.mixture = Some(mixture);
    Ok(config)
}

/// Whether `config.json` says nothing of how positions are stretched.
fn is_silent(metadata: &Metadata<'_>) -> bool {
    let keys = ["rope_scaling", "rope_parameters"];
    keys.iter().all(|key| metadata.json(key).is_none_or(Value::is_null))
}

/// Every other layer, unless a file lists those that have one.
fn has_window(layer: usize) -> bool {
    layer.is_multiple_of(2)
}

fn config_json(config: &ModelConfig) -> Value {
    let Some(mixture) = &config.feed_forward.mixture else {
        return Value::Null;
    };
    json!({
        "layer_types": config.layer_types(),
        "num_experts_per_tok": mixture.router.used,
        "num_local_experts": mixture.experts,
        "sliding_window": config.window(),
    })
}

fn gguf_metadata(config: &ModelConfig) -> Vec<(&'static str, MetadataValue)> {
    let usual = (0..config.layers).all(|layer| config.layer_attention(layer).window.is_some() == has_window(layer));
    let mut keys = if usual {
        written_gguf::window(config)
    } else {
        written_gguf::listed_windows(config)
    };
    let count = |key: Key, value: usize| (key.gguf, MetadataValue::U32(value as u32));
    if let Some(mixture) = &config.feed_forward.mixture {
        keys.push(count(EXPERTS, mixture.experts));
        keys.push(count(USED, mixture.router.used));
        keys.push(count(WIDTH, mixture.intermediate_size));
    }
    keys
}

/// The scores of a token's experts are a softmax of theirs alone, which is that of all, divided by their sum.
fn mixture(experts: usize, used: usize, intermediate_size: usize) -> MixtureConfig {
    MixtureConfig {
        experts,
        router: RouterConfig::softmax(used),
        intermediate_size,
        shared_intermediate_size: None,
        dense_layers: 0,
        style: &MIXTURE,
    }
}

/// A published size: layers and experts.
fn published(layers: usize, experts: usize) -> ModelConfig {
    let mut config = of_sizes([2880, 2880, layers, 64, 8]);
    config.vocab_size = 201_088;
    config.max_position = 131_072;
    config.attention.layers = windows(layers, 128);
    config.feed_forward.mixture = Some(mixture(experts, 4, 2880));
    config.bos_ids = vec![199_998];
    config.eos_ids = vec![200_002];
    config
}

/// Its structure at a size for tests. Rows are whole blocks of every format.
fn tiny() -> ModelConfig {
    let mut config = of_sizes([256, 256, 4, 4, 2]);
    config.vocab_size = 997;
    config.max_position = 4096;
    config.positions.scaling = yarn(128.0);
    config.attention.layers = windows(4, 16);
    config.feed_forward.mixture = Some(mixture(8, 2, 256));
    config.bos_ids = vec![1];
    config.eos_ids = vec![2];
    config
}

fn of_sizes(sizes: [usize; 5]) -> ModelConfig {
    let mut config = ModelConfig::of_sizes(&GPT_OSS, sizes, 64);
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
    layers::without_usual_end((0..layers).map(attention).collect())
}
