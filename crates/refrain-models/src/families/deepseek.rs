//! DeepSeek-V2 (DeepSeek-AI 2024, arXiv:2405.04434) and V3 (arXiv:2412.19437): multi-head latent attention with
//! different key and value sizes, and mixtures with shared experts after some dense layers.

use refrain_formats::{Error, Key, Metadata};
use serde_json::{Value, json};

use crate::config::read::{self, Defaults};
use crate::config::{
    AttentionConfig, ExpertGroups, LayerRope, MlaConfig, ModelConfig, MoeConfig, MoeStyle, RopeScaling, RouterConfig,
    RouterScore, layers, write_json,
};
use crate::family::{Family, Keys};

pub(super) static DEEPSEEK_V2: Family = Family {
    name: "deepseek_v2",
    class: "DeepseekV2ForCausalLM",
    description: "DeepSeek-V2 and V2-Lite, mixtures of experts (not from GGUF)",
    read: |metadata| read(metadata, &V2),
    presets: &[
        ("tiny-deepseek-v2", || tiny(&V2)),
        ("deepseek-v2-lite", v2_lite),
        ("deepseek-v2", v2),
    ],
    ..BASE
};

pub(super) static DEEPSEEK_V3: Family = Family {
    name: "deepseek_v3",
    class: "DeepseekV3ForCausalLM",
    description: "DeepSeek-V3 and R1, mixtures of experts (not from GGUF)",
    read: |metadata| read(metadata, &V3),
    presets: &[("tiny-deepseek-v3", || tiny(&V3)), ("deepseek-v3", v3)],
    ..BASE
};

const BASE: Family = Family {
    keys: Keys {
        supported: &[
            "first_k_dense_replace",
            "hidden_act",
            "kv_lora_rank",
            "moe_intermediate_size",
            "moe_layer_freq",
            "n_group",
            "n_routed_experts",
            "n_shared_experts",
            "norm_topk_prob",
            "num_experts_per_tok",
            MTP_LAYERS.json,
            "q_lora_rank",
            "qk_nope_head_dim",
            "qk_rope_head_dim",
            "rope_interleave",
            "routed_scaling_factor",
            "scoring_func",
            "topk_group",
            "topk_method",
            "v_head_dim",
        ],
        // Another name of the number of multi-token prediction layers.
        ignored: &["num_mtp_layers"],
        ..Keys::COMMON
    },
    partial_rotary: true,
    config_json,
    legacy_keys: &["rope_scaling"],
    ..Family::DENSE
};

const MOE: MoeStyle = MoeStyle {
    shared_expert: "mlp.shared_experts",
    shared_gate: false,
    ..MoeStyle::DEFAULT
};

/// Properties of one version, and defaults for missing keys of `config.json`.
struct Version {
    family: &'static Family,
    score: RouterScore,
    score_name: &'static str,
    /// Whether selection uses a learned correction, and the number of experts that score a group.
    score_correction: bool,
    top_experts: usize,
    vocab_size: usize,
    heads: usize,
    max_position: usize,
    dense_layers: usize,
    experts: usize,
    experts_per_token: Option<usize>,
    width: usize,
    shared: usize,
    scale: f64,
}

static V2: Version = Version {
    family: &DEEPSEEK_V2,
    score: RouterScore::Softmax,
    score_name: "softmax",
    score_correction: false,
    top_experts: 1,
    vocab_size: 102_400,
    heads: 32,
    max_position: 2048,
    dense_layers: 0,
    experts: 64,
    experts_per_token: None,
    width: 1407,
    shared: 2,
    scale: 1.0,
};

static V3: Version = Version {
    family: &DEEPSEEK_V3,
    score: RouterScore::Sigmoid,
    score_name: "sigmoid",
    score_correction: true,
    top_experts: 2,
    vocab_size: 129_280,
    heads: 128,
    max_position: 4096,
    dense_layers: 3,
    experts: 256,
    experts_per_token: Some(8),
    width: 2048,
    shared: 1,
    scale: 2.5,
};

const MTP_LAYERS: Key = Key::json("num_nextn_predict_layers");
const Q_RANK: Key = Key::json("q_lora_rank");
const KV_RANK: Key = Key::json("kv_lora_rank");
const QK_NOPE_HEAD_DIM: Key = Key::json("qk_nope_head_dim");
const QK_ROPE_HEAD_DIM: Key = Key::json("qk_rope_head_dim");
const V_HEAD_DIM: Key = Key::json("v_head_dim");
const EXPERTS: Key = Key::json("n_routed_experts");
const EXPERTS_PER_TOKEN: Key = Key::json("num_experts_per_tok");
const EXPERT_INTERMEDIATE_SIZE: Key = Key::json("moe_intermediate_size");
const SHARED_EXPERTS: Key = Key::json("n_shared_experts");
const DENSE_LAYERS: Key = Key::json("first_k_dense_replace");
const ROUTED_SCALING_FACTOR: Key = Key::json("routed_scaling_factor");
const NORM_TOPK_PROB: Key = Key::json("norm_topk_prob");
const GROUPS: Key = Key::json("n_group");
const TOPK_GROUP: Key = Key::json("topk_group");
const TOPK_METHOD: Key = Key::json("topk_method");
const SCORING_FUNC: Key = Key::json("scoring_func");
const MOE_LAYER_FREQ: Key = Key::json("moe_layer_freq");

fn read(metadata: &Metadata<'_>, version: &'static Version) -> Result<ModelConfig, Error> {
    let defaults = Defaults {
        heads: Some(version.heads),
        vocab_size: Some(version.vocab_size),
        max_position: version.max_position,
        // Replaced below.
        head_dim: Some(64),
        ..Defaults::new(version.family)
    };
    let mut config = read::decoder(metadata, &defaults, None)?;
    let count = |key, default| read::count_or(metadata, key, default);
    let rotated = count(QK_ROPE_HEAD_DIM, 64)?;
    let heads = config.attention.heads;
    if config.attention.kv_heads != heads {
        let found = config.attention.kv_heads;
        return Err(metadata.unsupported(format!(
            "num_key_value_heads {found} is not supported for {}: it must equal the {heads} attention heads",
            version.family
        )));
    }
    if config.positions.dims != config.attention.head_dim {
        return Err(metadata.unsupported(format!("partial_rotary_factor is not supported for {}", version.family)));
    }
    if let Some(found) = metadata.count(read::HEAD_DIM)?
        && found != rotated
    {
        return Err(metadata.unsupported(format!(
            "head_dim {found} is not supported for {}: it must equal qk_rope_head_dim ({rotated})",
            version.family
        )));
    }
    let head_dim = count(QK_NOPE_HEAD_DIM, 128)?.saturating_add(rotated);
    config.attention = AttentionConfig {
        value_dim: count(V_HEAD_DIM, 128)?,
        mla: Some(MlaConfig {
            q_rank: if metadata.contains_key(Q_RANK) {
                metadata.count(Q_RANK)?
            } else {
                Some(1536)
            },
            kv_rank: count(KV_RANK, 512)?,
        }),
        ..AttentionConfig::from_heads(heads, heads, head_dim)
    };
    config.attention.layers = layers::windowed_layers(metadata, config.layers, None, LayerRope::Global, |_| false)?;
    config.positions.dims = rotated;
    config.positions.interleaved = metadata.flag(Key::json("rope_interleave"))?.unwrap_or(true);
    let yarn_scale = yarn_scale(&config.positions.scaling, mscale_all_dim(metadata)?);
    config.attention.scale = ((head_dim as f64).powf(-0.5) * yarn_scale * yarn_scale) as f32;
    config.feed_forward.moe = Some(read_moe(metadata, version)?);
    config.mtp_layers = read::mtp_layers(metadata, &config, MTP_LAYERS)?;
    Ok(config)
}

/// Reads `mscale_all_dim` from the rotary settings.
fn mscale_all_dim(metadata: &Metadata<'_>) -> Result<f64, Error> {
    let settings = ["rope_scaling", "rope_parameters"];
    let found = settings.into_iter().find_map(|key| {
        metadata
            .json(key)?
            .get("mscale_all_dim")
            .filter(|value| !value.is_null())
    });
    match found {
        None => Ok(0.0),
        Some(value) => value
            .as_f64()
            .ok_or_else(|| metadata.error(format!("mscale_all_dim is {value}, not a number"))),
    }
}

/// YaRN's factor of all values of queries and keys; `weight` is `mscale_all_dim`.
fn yarn_scale(scaling: &RopeScaling, weight: f64) -> f64 {
    match scaling {
        RopeScaling::Yarn { factor, .. } if *factor > 1.0 => 0.1 * weight * factor.ln() + 1.0,
        _ => 1.0,
    }
}

fn read_moe(metadata: &Metadata<'_>, version: &Version) -> Result<MoeConfig, Error> {
    let count = |key, default| read::count_or(metadata, key, default);
    let family = version.family;
    let refuse = |key: Key, value: String| {
        let name = metadata.name(key);
        Err(metadata.unsupported(format!("{name} {value} is not supported for {family}")))
    };
    match metadata.text(SCORING_FUNC)? {
        Some(score) if score != version.score_name => return refuse(SCORING_FUNC, format!("{score:?}")),
        _ => (),
    }
    match metadata.number(MOE_LAYER_FREQ)? {
        Some(every) if every != 1.0 => return refuse(MOE_LAYER_FREQ, every.to_string()),
        _ => (),
    }
    let renormalise = metadata.flag(NORM_TOPK_PROB)?.unwrap_or(version.score_correction);
    if renormalise && !version.score_correction {
        return refuse(NORM_TOPK_PROB, "true".to_owned());
    }
    let grouped = match (metadata.text(TOPK_METHOD)?, version.score_correction) {
        (None | Some("greedy"), false) => false,
        (Some("group_limited_greedy"), false) | (None | Some("noaux_tc"), true) => true,
        (Some(method), _) => return refuse(TOPK_METHOD, format!("{method:?}")),
    };
    let dense_layers = metadata.number(DENSE_LAYERS)?.unwrap_or(version.dense_layers as f64);
    if !(0.0..1e6).contains(&dense_layers) {
        return Err(metadata.error(format!("{} is {dense_layers}", metadata.name(DENSE_LAYERS))));
    }
    let default = if version.score_correction { [8, 4] } else { [1, 1] };
    let groups = ExpertGroups {
        count: count(GROUPS, default[0])?,
        selected: count(TOPK_GROUP, default[1])?,
        top_experts: version.top_experts,
    };
    let intermediate_size = count(EXPERT_INTERMEDIATE_SIZE, version.width)?;
    Ok(MoeConfig {
        experts: count(EXPERTS, version.experts)?,
        router: RouterConfig {
            experts_per_token: match (metadata.count(EXPERTS_PER_TOKEN)?, version.experts_per_token) {
                (Some(count), _) | (None, Some(count)) => count,
                (None, None) => return Err(metadata.missing(EXPERTS_PER_TOKEN)),
            },
            score: version.score,
            score_correction: version.score_correction,
            groups: (grouped && groups.count > 1).then_some(groups),
            renormalise,
            scale: metadata.number(ROUTED_SCALING_FACTOR)?.unwrap_or(version.scale) as f32,
        },
        intermediate_size,
        shared_intermediate_size: Some(intermediate_size.saturating_mul(count(SHARED_EXPERTS, version.shared)?)),
        dense_layers: dense_layers as usize,
        style: &MOE,
    })
}

fn config_json(config: &ModelConfig) -> Value {
    let (Some(moe), Some(mla)) = (&config.feed_forward.moe, &config.attention.mla) else {
        return Value::Null;
    };
    let (router, rotated) = (&moe.router, config.positions.dims);
    let groups = router.groups.unwrap_or(ExpertGroups {
        count: 1,
        selected: 1,
        top_experts: 1,
    });
    let mut own = json!({
        "first_k_dense_replace": moe.dense_layers,
        "head_dim": rotated,
        "kv_lora_rank": mla.kv_rank,
        "moe_intermediate_size": moe.intermediate_size,
        "moe_layer_freq": 1,
        "n_group": groups.count,
        "n_routed_experts": moe.experts,
        "n_shared_experts": moe.shared_intermediate_size.unwrap_or(0) / moe.intermediate_size.max(1),
        "norm_topk_prob": router.renormalise,
        "num_experts_per_tok": router.experts_per_token,
        "num_nextn_predict_layers": config.mtp_layers,
        "q_lora_rank": mla.q_rank,
        "qk_nope_head_dim": config.attention.head_dim - rotated,
        "qk_rope_head_dim": rotated,
        "rope_scaling": rope_scaling(config),
        "routed_scaling_factor": read::decimal(router.scale),
        "topk_group": groups.selected,
        "v_head_dim": config.attention.value_dim,
    });
    let (method, score) = match (router.score, router.groups) {
        (RouterScore::Sigmoid, _) => ("noaux_tc", "sigmoid"),
        (RouterScore::Softmax, None) => ("greedy", "softmax"),
        (RouterScore::Softmax, Some(_)) => ("group_limited_greedy", "softmax"),
    };
    (own["topk_method"], own["scoring_func"]) = (json!(method), json!(score));
    if router.score == RouterScore::Sigmoid {
        own["rope_interleave"] = json!(config.positions.interleaved);
    }
    own
}

/// Adds `mscale` and `mscale_all_dim`, recovered from the factors of the scores and of the rotation.
fn rope_scaling(config: &ModelConfig) -> Value {
    let mut settings = write_json::rope_scaling(&config.positions.scaling);
    if let RopeScaling::Yarn {
        factor,
        attention_factor,
        ..
    } = &config.positions.scaling
        && *factor > 1.0
    {
        let of_all = (f64::from(config.attention.scale) * (config.attention.head_dim as f64).sqrt()).sqrt();
        // Six decimals are within f32 precision.
        let weight = |yarn_scale: f64| ((yarn_scale - 1.0) / (0.1 * factor.ln()) * 1e6).round() / 1e6;
        settings["mscale_all_dim"] = json!(weight(of_all));
        settings["mscale"] = json!(weight(attention_factor * of_all));
    }
    settings
}

/// Creates a model of a version from its sizes (see [`ModelConfig::from_sizes`]), head sizes (unrotated, rotated,
/// value), ranks and mixture.
fn from_sizes(
    version: &Version,
    sizes: [usize; 5],
    [plain, rotated, value_dim]: [usize; 3],
    mla: MlaConfig,
    moe: MoeConfig,
) -> ModelConfig {
    let mut config = ModelConfig::from_sizes(version.family, sizes, plain + rotated);
    config.attention.value_dim = value_dim;
    config.attention.mla = Some(mla);
    config.positions.dims = rotated;
    config.positions.interleaved = true;
    config.feed_forward.moe = Some(moe);
    config
}

/// `sizes` are: number of experts, experts per token, intermediate size of an expert, number of shared experts, dense
/// layers.
fn moe(version: &Version, sizes: [usize; 5], groups: Option<[usize; 2]>, scale: f32) -> MoeConfig {
    let [experts, experts_per_token, intermediate_size, shared, dense_layers] = sizes;
    MoeConfig {
        experts,
        router: RouterConfig {
            experts_per_token,
            score: version.score,
            score_correction: version.score_correction,
            groups: groups.map(|[count, selected]| ExpertGroups {
                count,
                selected,
                top_experts: version.top_experts,
            }),
            renormalise: version.score_correction,
            scale,
        },
        intermediate_size,
        shared_intermediate_size: Some(shared * intermediate_size),
        dense_layers,
        style: &MOE,
    }
}

/// Sets vocabulary, context and YaRN of the published models; `weight` is `mscale` and `mscale_all_dim`.
fn published(mut config: ModelConfig, vocab_size: usize, weight: f64) -> ModelConfig {
    config.vocab_size = vocab_size;
    config.max_position = 163_840;
    config.positions.scaling = RopeScaling::Yarn {
        factor: 40.0,
        original_max_position: 4096.0,
        beta_fast: 32.0,
        beta_slow: 1.0,
        truncate: true,
        attention_factor: 1.0,
    };
    let yarn_scale = yarn_scale(&config.positions.scaling, weight);
    config.attention.scale = ((config.attention.head_dim as f64).powf(-0.5) * yarn_scale * yarn_scale) as f32;
    config.bos_ids = vec![0];
    config.eos_ids = vec![1];
    config
}

/// Ranks of the published models.
const RANKS: MlaConfig = MlaConfig {
    q_rank: Some(1536),
    kv_rank: 512,
};

fn v2_lite() -> ModelConfig {
    let mla = MlaConfig { q_rank: None, ..RANKS };
    let moe = moe(&V2, [64, 6, 1408, 2, 1], None, 1.0);
    let config = from_sizes(&V2, [2048, 10_944, 27, 16, 16], [128, 64, 128], mla, moe);
    published(config, 102_400, 0.707)
}

fn v2() -> ModelConfig {
    let moe = moe(&V2, [160, 6, 1536, 2, 1], Some([8, 3]), 16.0);
    let config = from_sizes(&V2, [5120, 12_288, 60, 128, 128], [128, 64, 128], RANKS, moe);
    published(config, 102_400, 0.707)
}

fn v3() -> ModelConfig {
    let moe = moe(&V3, [256, 8, 2048, 1, 3], Some([8, 4]), 2.5);
    let config = from_sizes(&V3, [7168, 18_432, 61, 128, 128], [128, 64, 128], RANKS, moe);
    published(config, 129_280, 1.0)
}

/// A small model for tests. Rows are whole blocks of every format.
fn tiny(version: &Version) -> ModelConfig {
    let mla = MlaConfig {
        q_rank: version.score_correction.then_some(256),
        kv_rank: 256,
    };
    let moe = moe(version, [8, 2, 256, 2, 1], Some([4, 2]), 1.5);
    let config = from_sizes(version, [256, 256, 3, 4, 4], [64, 32, 64], mla, moe);
    let mut config = published(config, 997, 0.8);
    (config.bos_ids, config.eos_ids) = (vec![1], vec![2]);
    config
}

#[cfg(test)]
mod tests;
