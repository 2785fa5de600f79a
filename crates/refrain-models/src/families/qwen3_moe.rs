//! Qwen3's mixtures of experts (Qwen team 2025, arXiv:2505.09388): Qwen3 with a mixture in each layer.

use refrain_formats::MetadataValue;
use refrain_formats::{Error, Key, Metadata};
use serde_json::{Value, json};

use super::qwen2;
use super::qwen3::STYLE;
use crate::config::read::{self, Biases, Defaults};
use crate::config::{ModelConfig, MoeConfig, MoeStyle, RouterConfig};
use crate::family::{Family, Keys};

pub(super) static QWEN3_MOE: Family = Family {
    name: "qwen3_moe",
    class: "Qwen3MoeForCausalLM",
    gguf: Some("qwen3moe"),
    description: "Qwen3, mixtures of experts",
    keys: Keys {
        supported: &[
            "attention_bias",
            "hidden_act",
            "max_window_layers",
            "moe_intermediate_size",
            "norm_topk_prob",
            "num_experts",
            "num_experts_per_tok",
            "num_local_experts",
            "sliding_window",
            "use_sliding_window",
        ],
        // Queries and keys are always normalised, whatever this key says; every layer is a mixture.
        ignored: &["intermediate_size", "use_qk_norm"],
        supported_in_gguf: &[EXPERTS.gguf],
    },
    read,
    tensors: |config| STYLE.tensors(config),
    build: |loader| STYLE.build(loader),
    config_json,
    gguf_metadata: |config| {
        let Some(moe) = &config.feed_forward.moe else {
            return Vec::new();
        };
        vec![
            (EXPERTS.gguf, MetadataValue::U32(moe.experts as u32)),
            (
                EXPERTS_PER_TOKEN.gguf,
                MetadataValue::U32(moe.router.experts_per_token as u32),
            ),
            (
                EXPERT_INTERMEDIATE_SIZE.gguf,
                MetadataValue::U32(moe.intermediate_size as u32),
            ),
        ]
    },
    presets: &[("tiny-mixture", tiny), ("qwen3-30b-a3b", a3b_30b)],
    ..Family::DENSE
};

const EXPERTS: Key = Key::new("num_experts", "expert_count");
/// Key in transformers since version 5.
const LOCAL_EXPERTS: Key = Key::json("num_local_experts");
const EXPERTS_PER_TOKEN: Key = Key::new("num_experts_per_tok", "expert_used_count");
const EXPERT_INTERMEDIATE_SIZE: Key = Key::new("moe_intermediate_size", "expert_feed_forward_length");

fn read(metadata: &Metadata<'_>) -> Result<ModelConfig, Error> {
    let bias = read::flag(metadata, "attention_bias")?;
    let defaults = Defaults {
        kv_heads: Some(4),
        biases: Biases {
            attention: bias,
            output: bias,
            mlp: false,
        },
        ..Defaults::new(&QWEN3_MOE)
    };
    let count = |key, default| read::count_or(metadata, key, default);
    let experts = match metadata.count(LOCAL_EXPERTS)? {
        Some(experts) => experts,
        None => count(EXPERTS, 128)?,
    };
    let moe = MoeConfig {
        experts,
        router: RouterConfig {
            // llama.cpp always renormalises.
            renormalise: metadata.is_gguf() || read::flag(metadata, "norm_topk_prob")?,
            ..RouterConfig::softmax(count(EXPERTS_PER_TOKEN, 8)?)
        },
        intermediate_size: count(EXPERT_INTERMEDIATE_SIZE, 768)?,
        shared_intermediate_size: None,
        dense_layers: 0,
        style: &MoeStyle::DEFAULT,
    };
    let mut config = read::decoder(metadata, &defaults, Some(moe.intermediate_size))?;
    config.attention.layers = qwen2::windows(metadata, config.layers)?;
    config.feed_forward.moe = Some(moe);
    Ok(config)
}

fn config_json(config: &ModelConfig) -> Value {
    let mut fields = qwen2::config_json(config);
    if let Some(moe) = &config.feed_forward.moe {
        fields["decoder_sparse_step"] = json!(1);
        fields["mlp_only_layers"] = json!([]);
        fields["moe_intermediate_size"] = json!(moe.intermediate_size);
        fields["norm_topk_prob"] = json!(moe.router.renormalise);
        fields["num_experts"] = json!(moe.experts);
        fields["num_experts_per_tok"] = json!(moe.router.experts_per_token);
    }
    fields
}

/// Qwen3-30B-A3B.
fn a3b_30b() -> ModelConfig {
    let mut config = ModelConfig::from_sizes(&QWEN3_MOE, [2048, 768, 48, 32, 4], 128);
    config.vocab_size = 151_936;
    config.positions.theta = 1e6;
    config.positions.local_theta = 1e6;
    config.max_position = 40_960;
    config.feed_forward.moe = Some(moe(128, 8, 768));
    config.bos_ids = vec![151_643];
    config.eos_ids = vec![151_645];
    config
}

/// A small model for tests. Rows are whole blocks of every format.
fn tiny() -> ModelConfig {
    let mut config = ModelConfig::from_sizes(&QWEN3_MOE, [256, 256, 3, 4, 2], 64);
    config.vocab_size = 997;
    config.positions.theta = 1e6;
    config.positions.local_theta = 1e6;
    config.max_position = 4096;
    config.feed_forward.moe = Some(moe(8, 2, 256));
    config.bos_ids = vec![1];
    config.eos_ids = vec![2];
    config
}

fn moe(experts: usize, used: usize, intermediate_size: usize) -> MoeConfig {
    MoeConfig {
        experts,
        router: RouterConfig::softmax(used),
        intermediate_size,
        shared_intermediate_size: None,
        dense_layers: 0,
        style: &MoeStyle::DEFAULT,
    }
}
