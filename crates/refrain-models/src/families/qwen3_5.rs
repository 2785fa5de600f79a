//! Qwen3.5 (Qwen team 2026), with the structure of Qwen3-Next (2025): Gated DeltaNets, gated attention in every
//! fourth layer, and an MLP or mixture of experts in each layer.

use refrain_formats::MetadataValue;
use refrain_formats::{Error, Key, Metadata};
use serde_json::{Value, json};

use crate::blocks::{AttentionStyle, QkNorm, QkvStyle};
use crate::config::read::{self, Biases, Defaults};
use crate::config::write_gguf::FamilyMetadata;
use crate::config::{DeltaNetConfig, FeedForwardConfig, MAX_LAYERS, ModelConfig, MoeConfig, MoeStyle, RouterConfig};
use crate::family::{Family, Keys};
use crate::hybrid::{self, Hybrid};
use crate::mtp::MtpNames;

pub(super) static QWEN3_5: Family = Family {
    name: "qwen3_5_text",
    // mlx-lm uses the multimodal model's name for its text decoder.
    aliases: &["qwen3_5"],
    class: "Qwen3_5ForCausalLM",
    gguf: Some("qwen35"),
    description: "Qwen3.5, dense (text decoder)",
    keys: Keys {
        supported: &[
            "attention_bias",
            "full_attention_interval",
            "hidden_act",
            "linear_conv_kernel_dim",
            "linear_key_head_dim",
            "linear_num_key_heads",
            "linear_num_value_heads",
            "linear_value_head_dim",
            MTP_LAYERS.json,
        ],
        ..Keys::COMMON
    },
    wrapper: Some(["Qwen3_5ForConditionalGeneration", "qwen3_5"]),
    read: |metadata| read(metadata, &QWEN3_5, 4, None),
    presets: &[("tiny-hybrid-dense", tiny_dense), ("qwen3.5-9b", dense_9b)],
    ..HYBRID
};

pub(super) static QWEN3_5_MOE: Family = Family {
    name: "qwen3_5_moe_text",
    aliases: &["qwen3_5_moe"],
    class: "Qwen3_5MoeForCausalLM",
    gguf: Some("qwen35moe"),
    description: "Qwen3.5, mixtures of experts, and later models with this structure (text decoder)",
    keys: Keys {
        supported: &[
            "attention_bias",
            "full_attention_interval",
            "hidden_act",
            "linear_conv_kernel_dim",
            "linear_key_head_dim",
            "linear_num_key_heads",
            "linear_num_value_heads",
            "linear_value_head_dim",
            "moe_intermediate_size",
            MTP_LAYERS.json,
            "num_experts",
            "num_experts_per_tok",
            "shared_expert_intermediate_size",
        ],
        // All layers are mixtures of experts.
        ignored: &["intermediate_size"],
        supported_in_gguf: &[EXPERTS.gguf],
    },
    wrapper: Some(["Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe"]),
    read: |metadata| read(metadata, &QWEN3_5_MOE, 2, Some(moe(metadata)?)),
    presets: &[
        ("tiny-hybrid", tiny),
        ("tiny-mtp", tiny_with_mtp),
        ("qwen3.5-35b-a3b", a3b_35b),
    ],
    ..HYBRID
};

const ATTENTION: AttentionStyle = AttentionStyle {
    qk_norm: QkNorm::Heads,
    qkv: QkvStyle::Gated,
    sinks: false,
};

const HYBRID: Family = Family {
    partial_rotary: true,
    tensors: |config| hybrid::tensors(config, ATTENTION),
    build: |loader| Ok(Box::new(Hybrid::load(loader, ATTENTION)?)),
    config_json,
    gguf_metadata,
    gguf_to_hf: |config| {
        config.norm.offset = 1.0;
        if let Some(nets) = &mut config.delta_net {
            nets.holds_decay_rates = false;
        }
    },
    mtp: MtpNames::AS_MTP,
    ..Family::DENSE
};

const KEY_HEADS: Key = Key::new("linear_num_key_heads", "ssm.group_count");
const VALUE_HEADS: Key = Key::new("linear_num_value_heads", "ssm.time_step_rank");
const KEY_DIM: Key = Key::new("linear_key_head_dim", "ssm.state_size");
const VALUE_DIM: Key = Key::json("linear_value_head_dim");
/// Total size of all value heads.
const VALUES_TOTAL: Key = Key::gguf("ssm.inner_size");
const CONV_KERNEL: Key = Key::new("linear_conv_kernel_dim", "ssm.conv_kernel");
/// Period of attention layers.
const INTERVAL: Key = Key::new("full_attention_interval", "full_attention_interval");
/// List of recurrent layers, if they are not periodic.
const RECURRENT: Key = Key::gguf("attention.recurrent_layers");
/// Pairs of a rotated head per position axis; the axes are equal for text.
const SECTIONS: Key = Key::gguf("rope.dimension_sections");
const MTP_LAYERS: Key = Key::json("mtp_num_hidden_layers");
/// Whether the head has an embedding of its own.
const MTP_EMBEDDING: &str = "mtp_use_dedicated_embeddings";
const EXPERTS: Key = Key::new("num_experts", "expert_count");
const EXPERTS_PER_TOKEN: Key = Key::new("num_experts_per_tok", "expert_used_count");
const EXPERT_INTERMEDIATE_SIZE: Key = Key::new("moe_intermediate_size", "expert_feed_forward_length");
const SHARED_INTERMEDIATE_SIZE: Key = Key::new("shared_expert_intermediate_size", "expert_shared_feed_forward_length");

fn read(
    metadata: &Metadata<'_>,
    family: &'static Family,
    kv_heads: usize,
    moe: Option<MoeConfig>,
) -> Result<ModelConfig, Error> {
    let bias = read::flag(metadata, "attention_bias")?;
    let defaults = Defaults {
        head_dim: Some(256),
        kv_heads: Some(kv_heads),
        partial_rotary_factor: 0.25,
        biases: Biases {
            attention: bias,
            output: bias,
            mlp: false,
        },
        ..Defaults::new(family)
    };
    let inner = moe.as_ref().map(|moe| moe.intermediate_size);
    let mut config = read::decoder(metadata, &defaults, inner)?;
    let count = |key, default| read::count_or(metadata, key, default);
    let value_heads = count(VALUE_HEADS, 32)?;
    let nets = DeltaNetConfig {
        key_heads: count(KEY_HEADS, 16)?,
        value_heads,
        key_dim: count(KEY_DIM, 128)?,
        value_dim: if metadata.is_gguf() {
            value_width(metadata, value_heads)?
        } else {
            count(VALUE_DIM, 128)?
        },
        conv_kernel: count(CONV_KERNEL, 4)?,
        layers: recurrent_layers(metadata, config.layers.min(MAX_LAYERS))?,
        holds_decay_rates: metadata.is_gguf(),
    };
    if metadata.is_gguf() {
        let attending = nets.layers.iter().position(|recurrent| !recurrent).unwrap_or(0);
        let has = |part: &str| metadata.tensor_shape(&format!("blk.{attending}.{part}.bias")).is_some();
        (config.attention.bias, config.attention.output_bias) = (has("attn_q"), has("attn_output"));
    }
    // One with an embedding of its own is not supported.
    if metadata.json(MTP_EMBEDDING) != Some(&Value::Bool(true)) {
        config.mtp_layers = read::mtp_layers(metadata, &config, MTP_LAYERS)?;
    }
    config.norm.offset = if metadata.is_gguf() { 0.0 } else { 1.0 };
    config.delta_net = Some(nets);
    config.feed_forward.moe = moe;
    Ok(config)
}

/// Size of a value head in GGUF files, which store the total of all heads.
fn value_width(metadata: &Metadata<'_>, heads: usize) -> Result<usize, Error> {
    let all = metadata.required(VALUES_TOTAL)?;
    if all.is_multiple_of(heads) {
        Ok(all / heads)
    } else {
        Err(metadata.error(format!(
            "{} is {all}, which is not a multiple of {} ({heads})",
            metadata.name(VALUES_TOTAL),
            metadata.name(VALUE_HEADS)
        )))
    }
}

fn moe(metadata: &Metadata<'_>) -> Result<MoeConfig, Error> {
    let count = |key, default| read::count_or(metadata, key, default);
    let intermediate_size = count(EXPERT_INTERMEDIATE_SIZE, 512)?;
    let shared = if metadata.is_gguf() {
        metadata.count(SHARED_INTERMEDIATE_SIZE)?.unwrap_or(intermediate_size)
    } else {
        count(SHARED_INTERMEDIATE_SIZE, 512)?
    };
    Ok(MoeConfig {
        experts: count(EXPERTS, 256)?,
        router: RouterConfig::softmax(count(EXPERTS_PER_TOKEN, 8)?),
        intermediate_size,
        shared_intermediate_size: Some(shared),
        dense_layers: 0,
        style: &MoeStyle::DEFAULT,
    })
}

/// Reads which layers are Gated DeltaNets: those that the file lists, or all except every
/// `full_attention_interval`th.
fn recurrent_layers(metadata: &Metadata<'_>, layers: usize) -> Result<Vec<bool>, Error> {
    if metadata.is_list(RECURRENT) {
        let flags = metadata.numbers(RECURRENT)?.unwrap_or_default();
        return Ok(flags.iter().take(layers).map(|&flag| flag != 0.0).collect());
    }
    let Some(kinds) = metadata.per_layer("layer_types", layers)? else {
        let interval = metadata.count(INTERVAL)?.unwrap_or(4);
        return Ok(recurrent_pattern(interval, layers));
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

fn recurrent_pattern(interval: usize, layers: usize) -> Vec<bool> {
    (1..=layers).map(|number| !number.is_multiple_of(interval)).collect()
}

/// The family's keys of `config.json`.
fn config_json(config: &ModelConfig) -> Value {
    let Some(nets) = &config.delta_net else {
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
        "linear_conv_kernel_dim": nets.conv_kernel,
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
    if config.mtp_layers > 0 {
        fields[MTP_LAYERS.json] = json!(config.mtp_layers);
        fields[MTP_EMBEDDING] = json!(false);
    }
    if let Some(moe) = &config.feed_forward.moe {
        fields["moe_intermediate_size"] = json!(moe.intermediate_size);
        fields["num_experts"] = json!(moe.experts);
        fields["num_experts_per_tok"] = json!(moe.router.experts_per_token);
        fields["shared_expert_intermediate_size"] = json!(moe.shared_intermediate_size);
    }
    fields
}

/// Pairs of a rotated head per position axis.
fn sections(config: &ModelConfig) -> [usize; 3] {
    let pairs = config.positions.dims / 2;
    [pairs.div_ceil(3), (pairs + 1) / 3, pairs / 3]
}

/// The family's GGUF metadata.
fn gguf_metadata(config: &ModelConfig) -> FamilyMetadata {
    let Some(nets) = &config.delta_net else {
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
        count(CONV_KERNEL, nets.conv_kernel),
        count(KEY_DIM, nets.key_dim),
        count(KEY_HEADS, nets.key_heads),
        count(VALUE_HEADS, nets.value_heads),
        count(VALUES_TOTAL, nets.value_heads * nets.value_dim),
        (SECTIONS.gguf, MetadataValue::I32s(sections)),
    ];
    if recurrent != recurrent_pattern(interval, config.layers) {
        keys.push((RECURRENT.gguf, MetadataValue::Bools(recurrent)));
    }
    if let Some(moe) = &config.feed_forward.moe {
        keys.push(count(EXPERTS, moe.experts));
        keys.push(count(EXPERTS_PER_TOKEN, moe.router.experts_per_token));
        keys.push(count(EXPERT_INTERMEDIATE_SIZE, moe.intermediate_size));
        keys.extend(
            moe.shared_intermediate_size
                .map(|width| count(SHARED_INTERMEDIATE_SIZE, width)),
        );
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
    config.feed_forward = FeedForwardConfig::from_width(12288);
    config.delta_net = Some(published_delta_net(32));
    config
}

/// The DeltaNet configuration of the published models, with heads of 128.
fn published_delta_net(layers: usize) -> DeltaNetConfig {
    DeltaNetConfig {
        key_heads: 16,
        value_heads: 32,
        key_dim: 128,
        value_dim: 128,
        conv_kernel: 4,
        layers: recurrent_pattern(4, layers),
        holds_decay_rates: false,
    }
}

/// The dense model at a size for tests.
fn tiny_dense() -> ModelConfig {
    let mut config = tiny();
    config.family = &QWEN3_5;
    config.feed_forward = FeedForwardConfig::from_width(512);
    config
}

/// Qwen3.5-35B-A3B.
fn a3b_35b() -> ModelConfig {
    let mut config = ModelConfig::from_sizes(&QWEN3_5_MOE, [2048, 512, 40, 16, 2], 256);
    config.mtp_layers = 1;
    config.vocab_size = 248_320;
    config.positions.theta = 1e7;
    config.positions.local_theta = 1e7;
    config.positions.dims = 64;
    config.max_position = 262_144;
    config.norm.offset = 1.0;
    config.delta_net = Some(published_delta_net(40));
    config.feed_forward.moe = Some(MoeConfig {
        experts: 256,
        router: RouterConfig::softmax(8),
        intermediate_size: 512,
        shared_intermediate_size: Some(512),
        dense_layers: 0,
        style: &MoeStyle::DEFAULT,
    });
    config.bos_ids = vec![248_044];
    config.eos_ids = vec![248_046];
    config
}

/// The small model with a multi-token prediction head.
fn tiny_with_mtp() -> ModelConfig {
    ModelConfig {
        mtp_layers: 1,
        ..tiny()
    }
}

/// A small model for tests. Rows are whole blocks of every format.
fn tiny() -> ModelConfig {
    let mut config = ModelConfig::from_sizes(&QWEN3_5_MOE, [256, 256, 4, 4, 2], 64);
    config.vocab_size = 997;
    config.positions.theta = 1e7;
    config.positions.local_theta = 1e7;
    config.positions.dims = 16;
    config.max_position = 4096;
    config.norm.offset = 1.0;
    config.delta_net = Some(DeltaNetConfig {
        key_heads: 2,
        value_heads: 4,
        key_dim: 64,
        value_dim: 64,
        conv_kernel: 4,
        layers: recurrent_pattern(4, 4),
        holds_decay_rates: false,
    });
    config.feed_forward.moe = Some(MoeConfig {
        experts: 8,
        router: RouterConfig::softmax(2),
        intermediate_size: 256,
        shared_intermediate_size: Some(256),
        dense_layers: 0,
        style: &MoeStyle::DEFAULT,
    });
    config.bos_ids = vec![1];
    config.eos_ids = vec![2];
    config
}
