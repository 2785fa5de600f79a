//! GLM-4.5 (Zhipu AI 2025, arXiv:2508.06471): mixtures of experts with a shared expert after some dense layers,
//! selected by sigmoid scores with a learned correction; half of each head is rotated.

use refrain_formats::MetadataValue;
use refrain_formats::{Error, Key, Metadata};
use serde_json::{Value, json};

use crate::blocks::QkNorm;
use crate::config::read::{self, Biases, Defaults};
use crate::config::{ExpertGroups, LayerRope, ModelConfig, MoeConfig, MoeStyle, RouterConfig, RouterScore, layers};
use crate::family::{Family, Keys};
use crate::transformer::TransformerStyle;

pub(super) static GLM4_MOE: Family = Family {
    name: "glm4_moe",
    class: "Glm4MoeForCausalLM",
    gguf: Some("glm4moe"),
    description: "GLM-4.5, mixtures of experts",
    keys: Keys {
        supported: &[
            "attention_bias",
            "first_k_dense_replace",
            "hidden_act",
            "moe_intermediate_size",
            "n_group",
            "n_routed_experts",
            "n_shared_experts",
            "norm_topk_prob",
            "num_experts_per_tok",
            MTP_LAYERS.json,
            "routed_scaling_factor",
            "topk_group",
            "use_qk_norm",
        ],
        // Another name of the number of multi-token prediction layers.
        ignored: &["num_mtp_layers"],
        supported_in_gguf: &[EXPERTS.gguf],
    },
    partial_rotary: true,
    read,
    tensors: |config| style(config).tensors(config),
    build: |loader| style(loader.config).build(loader),
    config_json,
    gguf_metadata,
    presets: &[
        ("tiny-glm-moe", tiny),
        ("glm-4.5-air", || {
            published([4096, 10_944, 46, 96, 8], moe(128, 1408, 1, 1.0), false)
        }),
        ("glm-4.5", || {
            published([5120, 12_288, 92, 96, 8], moe(160, 1536, 3, 2.5), true)
        }),
    ],
    ..Family::DENSE
};

const STYLE: TransformerStyle = TransformerStyle {
    ffn_norm: Some(["post_attention_layernorm", "post_attention_norm"]),
    ..TransformerStyle::DEFAULT
};

const WITH_NORMS: TransformerStyle = TransformerStyle {
    qk_norm: QkNorm::Heads,
    ..STYLE
};

fn style(config: &ModelConfig) -> &'static TransformerStyle {
    if config.attention.qk_norm { &WITH_NORMS } else { &STYLE }
}

const MOE: MoeStyle = MoeStyle {
    shared_expert: "mlp.shared_experts",
    shared_gate: false,
    ..MoeStyle::DEFAULT
};

const EXPERTS: Key = Key::new("n_routed_experts", "expert_count");
const EXPERTS_PER_TOKEN: Key = Key::new("num_experts_per_tok", "expert_used_count");
const EXPERT_INTERMEDIATE_SIZE: Key = Key::new("moe_intermediate_size", "expert_feed_forward_length");
const SHARED_EXPERTS: Key = Key::new("n_shared_experts", "expert_shared_count");
const DENSE_LAYERS: Key = Key::new("first_k_dense_replace", "leading_dense_block_count");
const ROUTED_SCALING_FACTOR: Key = Key::new("routed_scaling_factor", "expert_weights_scale");
const NORM_TOPK_PROB: Key = Key::new("norm_topk_prob", "expert_weights_norm");
const MTP_LAYERS: Key = Key::json("num_nextn_predict_layers");
const GROUPS: Key = Key::new("n_group", "expert_group_count");
const TOPK_GROUP: Key = Key::new("topk_group", "expert_group_used_count");
/// Score function, in GGUF.
const SCORING_FUNC: Key = Key::gguf("expert_gating_func");
/// Its value for sigmoid.
const SIGMOID: u32 = 2;

fn read(metadata: &Metadata<'_>) -> Result<ModelConfig, Error> {
    let defaults = Defaults {
        heads: Some(96),
        kv_heads: Some(8),
        vocab_size: Some(151_552),
        max_position: 131_072,
        partial_rotary_factor: 0.5,
        norm_eps: 1e-5,
        biases: Biases {
            attention: read::flag(metadata, "attention_bias")?,
            output: false,
            mlp: false,
        },
        ..Defaults::new(&GLM4_MOE)
    };
    let mut config = read::decoder(metadata, &defaults, None)?;
    config.attention.qk_norm = if metadata.is_gguf() {
        metadata.tensor_shape("blk.0.attn_q_norm.weight").is_some()
    } else {
        read::flag(metadata, "use_qk_norm")?
    };
    config.attention.layers = layers::windowed_layers(metadata, config.layers, None, LayerRope::Global, |_| false)?;
    config.feed_forward.moe = Some(read_moe(metadata)?);
    config.mtp_layers = read::mtp_layers(metadata, &config, MTP_LAYERS)?;
    Ok(config)
}

fn read_moe(metadata: &Metadata<'_>) -> Result<MoeConfig, Error> {
    let count = |key, default| read::count_or(metadata, key, default);
    if let Some(score) = metadata.number(SCORING_FUNC)?
        && score != f64::from(SIGMOID)
    {
        let name = metadata.name(SCORING_FUNC);
        return Err(metadata.unsupported(format!("{name} is {score}, but only sigmoid ({SIGMOID}) is supported")));
    }
    let intermediate_size = count(EXPERT_INTERMEDIATE_SIZE, 1408)?;
    let dense_layers = metadata.number(DENSE_LAYERS)?.unwrap_or(1.0);
    if !(0.0..1e6).contains(&dense_layers) {
        return Err(metadata.error(format!("{} is {dense_layers}", metadata.name(DENSE_LAYERS))));
    }
    let groups = metadata.number(GROUPS)?.unwrap_or(1.0);
    let groups = if groups > 1.0 {
        Some(ExpertGroups {
            count: groups as usize,
            selected: metadata.count(TOPK_GROUP)?.unwrap_or(1),
            top_experts: 2,
        })
    } else {
        None
    };
    Ok(MoeConfig {
        experts: count(EXPERTS, 128)?,
        router: RouterConfig {
            experts_per_token: count(EXPERTS_PER_TOKEN, 8)?,
            score: RouterScore::Sigmoid,
            score_correction: true,
            groups,
            renormalise: metadata.flag(NORM_TOPK_PROB)?.unwrap_or(!metadata.is_gguf()),
            scale: metadata.number(ROUTED_SCALING_FACTOR)?.unwrap_or(1.0) as f32,
        },
        intermediate_size,
        shared_intermediate_size: Some(intermediate_size * metadata.count(SHARED_EXPERTS)?.unwrap_or(1)),
        dense_layers: dense_layers as usize,
        style: &MOE,
    })
}

/// Number of shared experts.
fn shared(moe: &MoeConfig) -> usize {
    moe.shared_intermediate_size.unwrap_or(0) / moe.intermediate_size.max(1)
}

fn config_json(config: &ModelConfig) -> Value {
    let Some(moe) = &config.feed_forward.moe else {
        return Value::Null;
    };
    let router = &moe.router;
    let groups = router.groups.unwrap_or(ExpertGroups {
        count: 1,
        selected: 1,
        top_experts: 2,
    });
    json!({
        "first_k_dense_replace": moe.dense_layers,
        "moe_intermediate_size": moe.intermediate_size,
        "n_group": groups.count,
        "n_routed_experts": moe.experts,
        "n_shared_experts": shared(moe),
        "norm_topk_prob": router.renormalise,
        "num_experts_per_tok": router.experts_per_token,
        "num_nextn_predict_layers": config.mtp_layers,
        "partial_rotary_factor": config.positions.dims as f64 / config.attention.head_dim as f64,
        "routed_scaling_factor": read::decimal(router.scale),
        "topk_group": groups.selected,
        "use_qk_norm": config.attention.qk_norm,
    })
}

fn gguf_metadata(config: &ModelConfig) -> Vec<(&'static str, MetadataValue)> {
    let Some(moe) = &config.feed_forward.moe else {
        return Vec::new();
    };
    let count = |key: Key, value: usize| (key.gguf, MetadataValue::U32(value as u32));
    let mut keys = vec![
        count(EXPERTS, moe.experts),
        count(EXPERTS_PER_TOKEN, moe.router.experts_per_token),
        count(EXPERT_INTERMEDIATE_SIZE, moe.intermediate_size),
        count(SHARED_EXPERTS, shared(moe)),
        count(DENSE_LAYERS, moe.dense_layers),
        (SCORING_FUNC.gguf, MetadataValue::U32(SIGMOID)),
        (ROUTED_SCALING_FACTOR.gguf, MetadataValue::F32(moe.router.scale)),
        (NORM_TOPK_PROB.gguf, MetadataValue::Bool(moe.router.renormalise)),
    ];
    if let Some(ExpertGroups {
        count: all, selected, ..
    }) = moe.router.groups
    {
        keys.extend([count(GROUPS, all), count(TOPK_GROUP, selected)]);
    }
    keys
}

fn moe(experts: usize, intermediate_size: usize, dense_layers: usize, scale: f32) -> MoeConfig {
    MoeConfig {
        experts,
        router: RouterConfig {
            score: RouterScore::Sigmoid,
            score_correction: true,
            scale,
            ..RouterConfig::softmax(8)
        },
        intermediate_size,
        shared_intermediate_size: Some(intermediate_size),
        dense_layers,
        style: &MOE,
    }
}

fn published(sizes: [usize; 5], moe: MoeConfig, qk_norm: bool) -> ModelConfig {
    let mut config = from_sizes(sizes, 128);
    config.vocab_size = 151_552;
    config.max_position = 131_072;
    config.attention.qk_norm = qk_norm;
    config.feed_forward.moe = Some(moe);
    config.eos_ids = vec![151_329];
    config
}

/// A small model for tests, with groups of experts. Rows are whole blocks of every format.
fn tiny() -> ModelConfig {
    let mut config = from_sizes([256, 256, 3, 4, 2], 64);
    config.vocab_size = 997;
    config.max_position = 4096;
    config.attention.qk_norm = true;
    let mut moe = moe(8, 256, 1, 1.5);
    moe.router.experts_per_token = 2;
    moe.router.groups = Some(ExpertGroups {
        count: 4,
        selected: 2,
        top_experts: 2,
    });
    config.feed_forward.moe = Some(moe);
    config.bos_ids = vec![1];
    config.eos_ids = vec![2];
    config
}

fn from_sizes(sizes: [usize; 5], head_dim: usize) -> ModelConfig {
    let mut config = ModelConfig::from_sizes(&GLM4_MOE, sizes, head_dim);
    config.norm.eps = 1e-5;
    config.positions.theta = 1e6;
    config.positions.local_theta = 1e6;
    config.positions.dims = head_dim / 2;
    config.attention.bias = true;
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Validates a model with `groups` groups, of which `taken` are selected, and `used` experts per token of 8.
    fn validate_groups(groups: usize, taken: usize, used: usize) -> Result<(), String> {
        let config = json!({
            "model_type": "glm4_moe", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 40,
            "n_routed_experts": 8, "num_experts_per_tok": used, "n_group": groups, "topk_group": taken
        });
        let metadata = Metadata::from_json(config.as_object().unwrap(), "config.json");
        let read = read(&metadata).and_then(|config| config.validate("config.json"));
        read.map_err(|error| error.to_string())
    }

    #[test]
    fn rejects_more_experts_per_token_than_the_groups_have() {
        for (groups, taken, used) in [(1, 1, 8), (4, 2, 4), (2, 1, 4), (4, 4, 8)] {
            assert_eq!(validate_groups(groups, taken, used), Ok(()), "{groups} {taken} {used}");
        }
        for (groups, taken, used) in [(3, 1, 2), (4, 1, 3), (8, 4, 2)] {
            let message = validate_groups(groups, taken, used).unwrap_err();
            assert!(message.contains("cannot be selected from"), "{message}");
        }
        assert!(validate_groups(4, 5, 2).unwrap_err().contains("topk_group is 5"));
    }
}
