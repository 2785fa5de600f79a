//! Qwen3.5 (Qwen team 2026), the structure of Qwen3-Next (2025): gated delta nets, gated attention in every fourth layer,
//! and in each a feed-forward network or a mixture of experts.

use refrain_formats::MetadataValue;
use refrain_formats::{Error, Key, Metadata};
use serde_json::{Value, json};

use crate::blocks::{AttentionStyle, QkNorm, QkvStyle};
use crate::config::read::{self, Biases, Defaults};
use crate::config::written_gguf::OwnMetadata;
use crate::config::{DeltaNets, FeedForwardConfig, MAX_LAYERS, MixtureConfig, MixtureStyle, ModelConfig, RouterConfig};
use crate::family::{Family, Keys};
use crate::hybrid::{self, Hybrid};

pub(super) static QWEN3_5: Family = Family {
    name: "qwen3_5_text",
    // mlx-lm takes the name of the whole model for that of its text decoder.
    also: &["qwen3_5"],
    class: "Qwen3_5ForCausalLM",
    gguf: Some("qwen35"),
    about: "Qwen3.5, dense, its text decoder",
    keys: Keys {
        followed: &[
            "attention_bias",
            "full_attention_interval",
            "hidden_act",
            "linear_conv_kernel_dim",
            "linear_key_head_dim",
            "linear_num_key_heads",
            "linear_num_value_heads",
            "linear_value_head_dim",
        ],
        ..Keys::COMMON
    },
    whole: Some(["Qwen3_5ForConditionalGeneration", "qwen3_5"]),
    read: |metadata| read(metadata, &QWEN3_5, 4, None),
    sizes: &[("tiny-hybrid-dense", tiny_dense), ("qwen3.5-9b", dense_9b)],
    ..HYBRID
};

pub(super) static QWEN3_5_MOE: Family = Family {
    name: "qwen3_5_moe_text",
    also: &["qwen3_5_moe"],
    class: "Qwen3_5MoeForCausalLM",
    gguf: Some("qwen35moe"),
    about: "Qwen3.5's mixtures of experts (and those that followed in their structure), their text decoder",
    keys: Keys {
        followed: &[
            "attention_bias",
            "full_attention_interval",
            "hidden_act",
            "linear_conv_kernel_dim",
            "linear_key_head_dim",
            "linear_num_key_heads",
            "linear_num_value_heads",
            "linear_value_head_dim",
            "moe_intermediate_size",
            "num_experts",
            "num_experts_per_tok",
            "shared_expert_intermediate_size",
        ],
        // Only mixtures have feed-forward networks.
        without_effect: &["intermediate_size"],
        followed_in_gguf: &[EXPERTS.gguf],
    },
    whole: Some(["Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe"]),
    read: |metadata| read(metadata, &QWEN3_5_MOE, 2, Some(mixture(metadata)?)),
    sizes: &[("tiny-hybrid", tiny), ("qwen3.5-35b-a3b", a3b_35b)],
    ..HYBRID
};

const ATTENTION: AttentionStyle = AttentionStyle {
    qk_norm: QkNorm::Heads,
    qkv: QkvStyle::Gated,
    sinks: false,
};

const HYBRID: Family = Family {
    rotates_part: true,
    tensors: |config| hybrid::tensors(config, ATTENTION),
    build: |loader| Ok(Box::new(Hybrid::load(loader, ATTENTION)?)),
    config_json,
    gguf_metadata,
    in_directory: |config| {
        config.norm.offset = 1.0;
        if let Some(nets) = &mut config.delta_nets {
            nets.rates = false;
        }
    },
    ..Family::DENSE
};

const KEY_HEADS: Key = Key::new("linear_num_key_heads", "ssm.group_count");
const VALUE_HEADS: Key = Key::new("linear_num_value_heads", "ssm.time_step_rank");
const KEY_DIM: Key = Key::new("linear_key_head_dim", "ssm.state_size");
const VALUE_DIM: Key = Key::json("linear_value_head_dim");
/// The width of all value heads.
const VALUES: Key = Key::gguf("ssm.inner_size");
const TAPS: Key = Key::new("linear_conv_kernel_dim", "ssm.conv_kernel");
/// Every how many layers there is one that attends.
const INTERVAL: Key = Key::new("full_attention_interval", "full_attention_interval");
/// Which layers do not, where that is no number.
const RECURRENT: Key = Key::gguf("attention.recurrent_layers");
/// How pairs of a rotated head are divided among the axes of positions, which are alike in texts.
const SECTIONS: Key = Key::gguf("rope.dimension_sections");
const EXPERTS: Key = Key::new("num_experts", "expert_count");
const USED: Key = Key::new("num_experts_per_tok", "expert_used_count");
const WIDTH: Key = Key::new("moe_intermediate_size", "expert_feed_forward_length");
const SHARED: Key = Key::new("shared_expert_intermediate_size", "expert_shared_feed_forward_length");

fn read(
    metadata: &Metadata<'_>,
    family: &'static Family,
    kv_heads: usize,
    mixture: Option<MixtureConfig>,
) -> Result<ModelConfig, Error> {
    let bias = read::flag(metadata, "attention_bias")?;
    let defaults = Defaults {
        head_dim: Some(256),
        kv_heads: Some(kv_heads),
        rotated: 0.25,
        biases: Biases {
            attention: bias,
            output: bias,
            mlp: false,
        },
        ..Defaults::of(family)
    };
    let inner = mixture.as_ref().map(|mixture| mixture.intermediate_size);
    let mut config = read::decoder(metadata, &defaults, inner)?;
    let count = |key, usual| read::usual_count(metadata, key, usual);
    let value_heads = count(VALUE_HEADS, 32)?;
    let nets = DeltaNets {
        key_heads: count(KEY_HEADS, 16)?,
        value_heads,
        key_dim: count(KEY_DIM, 128)?,
        value_dim: if metadata.is_gguf() {
            value_width(metadata, value_heads)?
        } else {
            count(VALUE_DIM, 128)?
        },
        taps: count(TAPS, 4)?,
        layers: recurrent_layers(metadata, config.layers.min(MAX_LAYERS))?,
        rates: metadata.is_gguf(),
    };
    if metadata.is_gguf() {
        let attending = nets.layers.iter().position(|recurrent| !recurrent).unwrap_or(0);
        let has = |part: &str| metadata.tensor_shape(&format!("blk.{attending}.{part}.bias")).is_some();
        (config.attention.bias, config.attention.output_bias) = (has("attn_q"), has("attn_output"));
    }
    config.norm.offset = if metadata.is_gguf() { 0.0 } else { 1.0 };
    config.delta_nets = Some(nets);
    config.feed_forward.mixture = mixture;
    Ok(config)
}

/// The width of a value head in GGUF files, which speak of all together.
fn value_width(metadata: &Metadata<'_>, heads: usize) -> Result<usize, Error> {
    let all = metadata.needed(VALUES)?;
    if all.is_multiple_of(heads) {
        Ok(all / heads)
    } else {
        Err(metadata.error(format!(
            "{} is {all}, which is no multiple of {} ({heads})",
            metadata.name(VALUES),
            metadata.name(VALUE_HEADS)
        )))
    }
}

fn mixture(metadata: &Metadata<'_>) -> Result<MixtureConfig, Error> {
    let count = |key, usual| read::usual_count(metadata, key, usual);
    let intermediate_size = count(WIDTH, 512)?;
    let shared = if metadata.is_gguf() {
        metadata.count(SHARED)?.unwrap_or(intermediate_size)
    } else {
        count(SHARED, 512)?
    };
    Ok(MixtureConfig {
        experts: count(EXPERTS, 256)?,
        router: RouterConfig::softmax(count(USED, 8)?),
        intermediate_size,
        shared_intermediate_size: Some(shared),
        dense_layers: 0,
        style: &MixtureStyle::USUAL,
    })
}

/// Which layers are gated delta nets: those that the file lists, or all but each `full_attention_interval`th.
fn recurrent_layers(metadata: &Metadata<'_>, layers: usize) -> Result<Vec<bool>, Error> {
    if metadata.is_list(RECURRENT) {
        let flags = metadata.numbers(RECURRENT)?.unwrap_or_default();
        return Ok(flags.iter().take(layers).map(|&flag| flag != 0.0).collect());
    }
    let Some(kinds) = metadata.for_layers("layer_types", layers)? else {
        let interval = metadata.count(INTERVAL)?.unwrap_or(4);
        return Ok(all_but_each(interval, layers));
    };
    let recurrent = |kind: &Value| match kind.as_str() {
        Some("linear_attention") => Ok(true),
        Some("full_attention") => Ok(false),
        _ => Err(metadata.unsupported(format!(
            "layers of type {kind} are not supported (supported: \"linear_attention\", \"full_attention\")"
        ))),
    };
    kinds.iter().take(layers).map(recurrent).collect()
}

fn all_but_each(interval: usize, layers: usize) -> Vec<bool> {
    (1..=layers).map(|number| !number.is_multiple_of(interval)).collect()
}

/// What `config.json` says of recurrent layers, mixtures and the rotated part of a head.
fn config_json(config: &ModelConfig) -> Value {
    let Some(nets) = &config.delta_nets else {
        return Value::Null;
    };
    let kinds = (0..config.layers).map(|number| {
        if config.is_recurrent(number) {
            "linear_attention"
        } else {
            "full_attention"
        }
    });
    let kinds = Vec::from_iter(kinds);
    let mut fields = json!({
        "full_attention_interval": kinds.iter().position(|kind| *kind == "full_attention").map(|first| first + 1),
        "layer_types": kinds,
        "linear_conv_kernel_dim": nets.taps,
        "linear_key_head_dim": nets.key_dim,
        "linear_num_key_heads": nets.key_heads,
        "linear_num_value_heads": nets.value_heads,
        "linear_value_head_dim": nets.value_dim,
        "rope_parameters": {
            "mrope_interleaved": true,
            "mrope_section": sections(config),
            "partial_rotary_factor": config.positions.dims as f64 / config.attention.head_dim as f64,
            "rope_theta": config.positions.theta,
            "rope_type": "default",
        },
    });
    if let Some(mixture) = &config.feed_forward.mixture {
        fields["moe_intermediate_size"] = json!(mixture.intermediate_size);
        fields["num_experts"] = json!(mixture.experts);
        fields["num_experts_per_tok"] = json!(mixture.router.used);
        fields["shared_expert_intermediate_size"] = json!(mixture.shared_intermediate_size);
    }
    fields
}

/// How many pairs of a rotated head each axis of positions has.
fn sections(config: &ModelConfig) -> [usize; 3] {
    let pairs = config.positions.dims / 2;
    [pairs.div_ceil(3), (pairs + 1) / 3, pairs / 3]
}

/// What llama.cpp wants to know of delta nets and mixtures.
fn gguf_metadata(config: &ModelConfig) -> OwnMetadata {
    let Some(nets) = &config.delta_nets else {
        return Vec::new();
    };
    let count = |key: Key, value: usize| (key.gguf, MetadataValue::U32(value as u32));
    let recurrent = Vec::from_iter((0..config.layers).map(|number| config.is_recurrent(number)));
    let interval = recurrent
        .iter()
        .position(|recurrent| !recurrent)
        .map_or(config.layers + 1, |first| first + 1);
    let mut sections = sections(config).map(|pairs| pairs as i32).to_vec();
    sections.push(0);
    let mut keys = vec![
        count(INTERVAL, interval),
        count(TAPS, nets.taps),
        count(KEY_DIM, nets.key_dim),
        count(KEY_HEADS, nets.key_heads),
        count(VALUE_HEADS, nets.value_heads),
        count(VALUES, nets.value_heads * nets.value_dim),
        (SECTIONS.gguf, MetadataValue::I32s(sections)),
    ];
    if recurrent != all_but_each(interval, config.layers) {
        keys.push((RECURRENT.gguf, MetadataValue::Bools(recurrent)));
    }
    if let Some(mixture) = &config.feed_forward.mixture {
        keys.push(count(EXPERTS, mixture.experts));
        keys.push(count(USED, mixture.router.used));
        keys.push(count(WIDTH, mixture.intermediate_size));
        keys.extend(mixture.shared_intermediate_size.map(|width| count(SHARED, width)));
    }
    keys
}

/// Qwen3.5-9B.
fn dense_9b() -> ModelConfig {
    let mut config = a3b_35b();
    config.family = &QWEN3_5;
    config.hidden_size = 4096;
    config.layers = 32;
    config.attention.kv_heads = 4;
    config.feed_forward = FeedForwardConfig::of_width(12288);
    config.delta_nets = Some(nets_of_128(32));
    config
}

/// Those of published models, of heads of 128, in so many layers.
fn nets_of_128(layers: usize) -> DeltaNets {
    DeltaNets {
        key_heads: 16,
        value_heads: 32,
        key_dim: 128,
        value_dim: 128,
        taps: 4,
        layers: all_but_each(4, layers),
        rates: false,
    }
}

/// The dense one's structure at a size for tests.
fn tiny_dense() -> ModelConfig {
    let mut config = tiny();
    config.family = &QWEN3_5;
    config.feed_forward = FeedForwardConfig::of_width(512);
    config
}

/// Qwen3.5-35B-A3B.
fn a3b_35b() -> ModelConfig {
    let mut config = ModelConfig::of_sizes(&QWEN3_5_MOE, [2048, 512, 40, 16, 2], 256);
    config.vocab_size = 248_320;
    config.positions.theta = 1e7;
    config.positions.local_theta = 1e7;
    config.positions.dims = 64;
    config.max_position = 262_144;
    config.norm.offset = 1.0;
    config.delta_nets = Some(nets_of_128(40));
    config.feed_forward.mixture = Some(MixtureConfig {
        experts: 256,
        router: RouterConfig::softmax(8),
        intermediate_size: 512,
        shared_intermediate_size: Some(512),
        dense_layers: 0,
        style: &MixtureStyle::USUAL,
    });
    config.bos_ids = vec![248_044];
    config.eos_ids = vec![248_046];
    config
}

/// Its structure at a size for tests. Rows are whole blocks of every format.
fn tiny() -> ModelConfig {
    let mut config = ModelConfig::of_sizes(&QWEN3_5_MOE, [256, 256, 4, 4, 2], 64);
    config.vocab_size = 997;
    config.positions.theta = 1e7;
    config.positions.local_theta = 1e7;
    config.positions.dims = 16;
    config.max_position = 4096;
    config.norm.offset = 1.0;
    config.delta_nets = Some(DeltaNets {
        key_heads: 2,
        value_heads: 4,
        key_dim: 64,
        value_dim: 64,
        taps: 4,
        layers: all_but_each(4, 4),
        rates: false,
    });
    config.feed_forward.mixture = Some(MixtureConfig {
        experts: 8,
        router: RouterConfig::softmax(2),
        intermediate_size: 256,
        shared_intermediate_size: Some(256),
        dense_layers: 0,
        style: &MixtureStyle::USUAL,
    });
    config.bos_ids = vec![1];
    config.eos_ids = vec![2];
    config
}
