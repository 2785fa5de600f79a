//! GLM-4.5 (Zhipu AI 2025, arXiv:2508.06471): mixtures of experts with a shared one, chosen by sigmoids and a learned
//! correction, behind some dense layers; half of each head is rotated.

use refrain_formats::MetadataValue;
use refrain_formats::{Error, Key, Metadata};
use serde_json::{Value, json};

use crate::blocks::QkNorm;
use crate::config::read::{self, Biases, Defaults};
use crate::config::{
    ExpertGroups, LayerRope, MixtureConfig, MixtureStyle, ModelConfig, RouterConfig, RouterScore, layers,
};
use crate::family::{Family, Keys};
use crate::transformer::Style;

pub(super) static GLM4_MOE: Family = Family {
    name: "glm4_moe",
    class: "Glm4MoeForCausalLM",
    gguf: Some("glm4moe"),
    about: "GLM-4.5, mixtures of experts",
    keys: Keys {
        followed: &[
            "attention_bias",
            "first_k_dense_replace",
            "hidden_act",
            "moe_intermediate_size",
            "n_group",
            "n_routed_experts",
            "n_shared_experts",
            "norm_topk_prob",
            "num_experts_per_tok",
            "routed_scaling_factor",
            "topk_group",
            "use_qk_norm",
        ],
        // Layers that predict further tokens are not read.
        without_effect: &["num_mtp_layers"],
        followed_in_gguf: &[EXPERTS.gguf],
    },
    rotates_part: true,
    read,
    tensors: |config| style(config).tensors(config),
    build: |loader| style(loader.config).build(loader),
    config_json,
    gguf_metadata,
    sizes: &[
        ("tiny-glm-moe", tiny),
        ("glm-4.5-air", || {
            published([4096, 10_944, 46, 96, 8], mixture(128, 1408, 1, 1.0), false)
        }),
        ("glm-4.5", || {
            published([5120, 12_288, 92, 96, 8], mixture(160, 1536, 3, 2.5), true)
        }),
    ],
    ..Family::DENSE
};

const STYLE: Style = Style {
    before_mlp: Some(["post_attention_layernorm", "post_attention_norm"]),
    ..Style::USUAL
};

const WITH_NORMS: Style = Style {
    qk_norm: QkNorm::Heads,
    ..STYLE
};

fn style(config: &ModelConfig) -> &'static Style {
    if config.attention.qk_norm { &WITH_NORMS } else { &STYLE }
}

const MIXTURE: MixtureStyle = MixtureStyle {
    shared: "mlp.shared_experts",
    shared_gate: false,
    ..MixtureStyle::USUAL
};

const EXPERTS: Key = Key::new("n_routed_experts", "expert_count");
const USED: Key = Key::new("num_experts_per_tok", "expert_used_count");
const WIDTH: Key = Key::new("moe_intermediate_size", "expert_feed_forward_length");
const SHARED: Key = Key::new("n_shared_experts", "expert_shared_count");
const DENSE: Key = Key::new("first_k_dense_replace", "leading_dense_block_count");
const SCALE: Key = Key::new("routed_scaling_factor", "expert_weights_scale");
const RENORMALISED: Key = Key::new("norm_topk_prob", "expert_weights_norm");
const GROUPS: Key = Key::new("n_group", "expert_group_count");
const GROUPS_USED: Key = Key::new("topk_group", "expert_group_used_count");
/// In GGUF: what makes scores.
const SCORE: Key = Key::gguf("expert_gating_func");
/// The number that this has for sigmoids.
const SIGMOID: u32 = 2;

fn read(metadata: &Metadata<'_>) -> Result<ModelConfig, Error> {
    let defaults = Defaults {
        heads: Some(96),
        kv_heads: Some(8),
        vocab_size: Some(151_552),
        max_position: 131_072,
        rotated: 0.5,
        norm_eps: 1e-5,
        biases: Biases {
            attention: read::flag(metadata, "attention_bias")?,
            output: false,
            mlp: false,
        },
        ..Defaults::of(&GLM4_MOE)
    };
    let mut config = read::decoder(metadata, &defaults, None)?;
    config.attention.qk_norm = if metadata.is_gguf() {
        metadata.tensor_shape("blk.0.attn_q_norm.weight").is_some()
    } else {
        read::flag(metadata, "use_qk_norm")?
    };
    config.attention.layers = layers::with_window(metadata, config.layers, None, LayerRope::Global, |_| false)?;
    config.feed_forward.mixture = Some(read_mixture(metadata)?);
    Ok(config)
}

fn read_mixture(metadata: &Metadata<'_>) -> Result<MixtureConfig, Error> {
    let count = |key, usual| read::usual_count(metadata, key, usual);
    if let Some(score) = metadata.number(SCORE)?
        && score != f64::from(SIGMOID)
    {
        let name = metadata.name(SCORE);
        return Err(metadata.unsupported(format!(
            "{name} is {score}, but only sigmoids ({SIGMOID}) are supported"
        )));
    }
    let intermediate_size = count(WIDTH, 1408)?;
    let dense_layers = metadata.number(DENSE)?.unwrap_or(1.0);
    if !(0.0..1e6).contains(&dense_layers) {
        return Err(metadata.error(format!("{} is {dense_layers}", metadata.name(DENSE))));
    }
    let groups = metadata.number(GROUPS)?.unwrap_or(1.0);
    let groups = if groups > 1.0 {
        Some(ExpertGroups {
            count: groups as usize,
            used: metadata.count(GROUPS_USED)?.unwrap_or(1),
            judged: 2,
        })
    } else {
        None
    };
    Ok(MixtureConfig {
        experts: count(EXPERTS, 128)?,
        router: RouterConfig {
            used: count(USED, 8)?,
            score: RouterScore::Sigmoid,
            corrected: true,
            groups,
            renormalise: metadata.flag(RENORMALISED)?.unwrap_or(!metadata.is_gguf()),
            scale: metadata.number(SCALE)?.unwrap_or(1.0) as f32,
        },
        intermediate_size,
        shared_intermediate_size: Some(intermediate_size * metadata.count(SHARED)?.unwrap_or(1)),
        dense_layers: dense_layers as usize,
        style: &MIXTURE,
    })
}

/// How many experts the shared one is as wide as.
fn shared(mixture: &MixtureConfig) -> usize {
    mixture.shared_intermediate_size.unwrap_or(0) / mixture.intermediate_size.max(1)
}

fn config_json(config: &ModelConfig) -> Value {
    let Some(mixture) = &config.feed_forward.mixture else {
        return Value::Null;
    };
    let router = &mixture.router;
    let groups = router.groups.unwrap_or(ExpertGroups {
        count: 1,
        used: 1,
        judged: 2,
    });
    json!({
        "first_k_dense_replace": mixture.dense_layers,
        "moe_intermediate_size": mixture.intermediate_size,
        "n_group": groups.count,
        "n_routed_experts": mixture.experts,
        "n_shared_experts": shared(mixture),
        "norm_topk_prob": router.renormalise,
        "num_experts_per_tok": router.used,
        "num_nextn_predict_layers": 0,
        "partial_rotary_factor": config.positions.dims as f64 / config.attention.head_dim as f64,
        "routed_scaling_factor": read::decimal(router.scale),
        "topk_group": groups.used,
        "use_qk_norm": config.attention.qk_norm,
    })
}

fn gguf_metadata(config: &ModelConfig) -> Vec<(&'static str, MetadataValue)> {
    let Some(mixture) = &config.feed_forward.mixture else {
        return Vec::new();
    };
    let count = |key: Key, value: usize| (key.gguf, MetadataValue::U32(value as u32));
    let mut keys = vec![
        count(EXPERTS, mixture.experts),
        count(USED, mixture.router.used),
        count(WIDTH, mixture.intermediate_size),
        count(SHARED, shared(mixture)),
        count(DENSE, mixture.dense_layers),
        (SCORE.gguf, MetadataValue::U32(SIGMOID)),
        (SCALE.gguf, MetadataValue::F32(mixture.router.scale)),
        (RENORMALISED.gguf, MetadataValue::Bool(mixture.router.renormalise)),
    ];
    if let Some(ExpertGroups { count: all, used, .. }) = mixture.router.groups {
        keys.extend([count(GROUPS, all), count(GROUPS_USED, used)]);
    }
    keys
}

fn mixture(experts: usize, intermediate_size: usize, dense_layers: usize, scale: f32) -> MixtureConfig {
    MixtureConfig {
        experts,
        router: RouterConfig {
            score: RouterScore::Sigmoid,
            corrected: true,
            scale,
            ..RouterConfig::softmax(8)
        },
        intermediate_size,
        shared_intermediate_size: Some(intermediate_size),
        dense_layers,
        style: &MIXTURE,
    }
}

fn published(sizes: [usize; 5], mixture: MixtureConfig, qk_norm: bool) -> ModelConfig {
    let mut config = of_sizes(sizes, 128);
    config.vocab_size = 151_552;
    config.max_position = 131_072;
    config.attention.qk_norm = qk_norm;
    config.feed_forward.mixture = Some(mixture);
    config.eos_ids = vec![151_329];
    config
}

/// Its structure at a size for tests, with groups of experts. Rows are whole blocks of every format.
fn tiny() -> ModelConfig {
    let mut config = of_sizes([256, 256, 3, 4, 2], 64);
    config.vocab_size = 997;
    config.max_position = 4096;
    config.attention.qk_norm = true;
    let mut mixture = mixture(8, 256, 1, 1.5);
    mixture.router.used = 2;
    mixture.router.groups = Some(ExpertGroups {
        count: 4,
        used: 2,
        judged: 2,
    });
    config.feed_forward.mixture = Some(mixture);
    config.bos_ids = vec![1];
    config.eos_ids = vec![2];
    config
}

fn of_sizes(sizes: [usize; 5], head_dim: usize) -> ModelConfig {
    let mut config = ModelConfig::of_sizes(&GLM4_MOE, sizes, head_dim);
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

    /// What is said of a model with so many groups, of which so many are taken, and so many experts used of 8.
    fn said(groups: usize, taken: usize, used: usize) -> Result<(), String> {
        let config = json!({
            "model_type": "glm4_moe", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 40,
            "n_routed_experts": 8, "num_experts_per_tok": used, "n_group": groups, "topk_group": taken
        });
        let metadata = Metadata::of_json(config.as_object().unwrap(), "config.json");
        let read = read(&metadata).and_then(|config| config.validate("config.json"));
        read.map_err(|error| error.to_string())
    }

    #[test]
    fn experts_that_the_groups_do_not_hold_are_refused() {
        for (groups, taken, used) in [(1, 1, 8), (4, 2, 4), (2, 1, 4), (4, 4, 8)] {
            assert_eq!(said(groups, taken, used), Ok(()), "{groups} {taken} {used}");
        }
        for (groups, taken, used) in [(3, 1, 2), (4, 1, 3), (8, 4, 2)] {
            let message = said(groups, taken, used).unwrap_err();
            assert!(message.contains("cannot be chosen from"), "{message}");
        }
        assert!(said(4, 5, 2).unwrap_err().contains("topk_group is 5"));
    }
}
