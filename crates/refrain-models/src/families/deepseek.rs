//! DeepSeek-V2 (DeepSeek-AI 2024, arXiv:2405.04434) and V3 (arXiv:2412.19437): attention by latent vectors, whose values are
//! of another size than its keys, and mixtures with shared experts behind some dense layers.

use refrain_formats::{Error, Key, Metadata};
use serde_json::{Value, json};

use crate::config::read::{self, Defaults};
use crate::config::{
    AttentionConfig, ExpertGroups, LatentConfig, LayerRope, MixtureConfig, MixtureStyle, ModelConfig, RopeScaling,
    RouterConfig, RouterScore, layers, written_json,
};
use crate::family::{Family, Keys};

pub(super) static DEEPSEEK_V2: Family = Family {
    name: "deepseek_v2",
    class: "DeepseekV2ForCausalLM",
    about: "DeepSeek-V2 and V2-Lite, mixtures of experts; not from GGUF",
    read: |metadata| read(metadata, &V2),
    sizes: &[
        ("tiny-deepseek-v2", || tiny(&V2)),
        ("deepseek-v2-lite", v2_lite),
        ("deepseek-v2", v2),
    ],
    ..EITHER
};

pub(super) static DEEPSEEK_V3: Family = Family {
    name: "deepseek_v3",
    class: "DeepseekV3ForCausalLM",
    about: "DeepSeek-V3 and R1, mixtures of experts; not from GGUF",
    read: |metadata| read(metadata, &V3),
    sizes: &[("tiny-deepseek-v3", || tiny(&V3)), ("deepseek-v3", v3)],
    ..EITHER
};

const EITHER: Family = Family {
    keys: Keys {
        followed: &[
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
        // Layers that predict further tokens are not read.
        without_effect: &["num_mtp_layers"],
        ..Keys::COMMON
    },
    rotates_part: true,
    config_json,
    old_keys: &["rope_scaling"],
    ..Family::DENSE
};

const MIXTURE: MixtureStyle = MixtureStyle {
    shared: "mlp.shared_experts",
    shared_gate: false,
    ..MixtureStyle::USUAL
};

/// What one version has, and takes where a `config.json` is silent.
struct Version {
    family: &'static Family,
    score: RouterScore,
    score_name: &'static str,
    /// Whether choices are corrected by what was learned, and by how many experts a group is judged.
    corrected: bool,
    judged: usize,
    vocab_size: usize,
    heads: usize,
    max_position: usize,
    dense_layers: usize,
    experts: usize,
    used: Option<usize>,
    width: usize,
    shared: usize,
    scale: f64,
}

static V2: Version = Version {
    family: &DEEPSEEK_V2,
    score: RouterScore::Softmax,
    score_name: "softmax",
    corrected: false,
    judged: 1,
    vocab_size: 102_400,
    heads: 32,
    max_position: 2048,
    dense_layers: 0,
    experts: 64,
    used: None,
    width: 1407,
    shared: 2,
    scale: 1.0,
};

static V3: Version = Version {
    family: &DEEPSEEK_V3,
    score: RouterScore::Sigmoid,
    score_name: "sigmoid",
    corrected: true,
    judged: 2,
    vocab_size: 129_280,
    heads: 128,
    max_position: 4096,
    dense_layers: 3,
    experts: 256,
    used: Some(8),
    width: 2048,
    shared: 1,
    scale: 2.5,
};

const Q_RANK: Key = Key::json("q_lora_rank");
const KV_RANK: Key = Key::json("kv_lora_rank");
const PLAIN: Key = Key::json("qk_nope_head_dim");
const ROTATED: Key = Key::json("qk_rope_head_dim");
const VALUES: Key = Key::json("v_head_dim");
const EXPERTS: Key = Key::json("n_routed_experts");
const USED: Key = Key::json("num_experts_per_tok");
const WIDTH: Key = Key::json("moe_intermediate_size");
const SHARED: Key = Key::json("n_shared_experts");
const DENSE: Key = Key::json("first_k_dense_replace");
const SCALE: Key = Key::json("routed_scaling_factor");
const RENORMALISED: Key = Key::json("norm_topk_prob");
const GROUPS: Key = Key::json("n_group");
const GROUPS_USED: Key = Key::json("topk_group");
const METHOD: Key = Key::json("topk_method");
const SCORE: Key = Key::json("scoring_func");
const EVERY: Key = Key::json("moe_layer_freq");

fn read(metadata: &Metadata<'_>, version: &'static Version) -> Result<ModelConfig, Error> {
    let defaults = Defaults {
        heads: Some(version.heads),
        vocab_size: Some(version.vocab_size),
        max_position: version.max_position,
        // Replaced below.
        head_dim: Some(64),
        ..Defaults::of(version.family)
    };
    let mut config = read::decoder(metadata, &defaults, None)?;
    let count = |key, usual| read::usual_count(metadata, key, usual);
    let rotated = count(ROTATED, 64)?;
    let heads = config.attention.heads;
    if config.attention.kv_heads != heads {
        let found = config.attention.kv_heads;
        return Err(metadata.unsupported(format!(
            "num_key_value_heads {found} is not supported of {}: keys are made for each of the {heads} heads",
            version.family
        )));
    }
    if config.positions.dims != config.attention.head_dim {
        return Err(metadata.unsupported(format!("partial_rotary_factor is not supported of {}", version.family)));
    }
    if let Some(found) = metadata.count(read::HEAD)?
        && found != rotated
    {
        return Err(metadata.unsupported(format!(
            "head_dim {found} is not supported of {}, whose heads are rotated in {rotated} values",
            version.family
        )));
    }
    let head_dim = count(PLAIN, 128)?.saturating_add(rotated);
    config.attention = AttentionConfig {
        value_dim: count(VALUES, 128)?,
        latent: Some(LatentConfig {
            q_rank: if metadata.mentions(Q_RANK) {
                metadata.count(Q_RANK)?
            } else {
                Some(1536)
            },
            kv_rank: count(KV_RANK, 512)?,
        }),
        ..AttentionConfig::of_heads(heads, heads, head_dim)
    };
    config.attention.layers = layers::with_window(metadata, config.layers, None, LayerRope::Global, |_| false)?;
    config.positions.dims = rotated;
    config.positions.interleaved = metadata.flag(Key::json("rope_interleave"))?.unwrap_or(true);
    let stretched = stretched(&config.positions.scaling, weight_of_all(metadata)?);
    config.attention.scale = ((head_dim as f64).powf(-0.5) * stretched * stretched) as f32;
    config.feed_forward.mixture = Some(read_mixture(metadata, version)?);
    Ok(config)
}

/// `mscale_all_dim` among the settings of the rotary embedding.
fn weight_of_all(metadata: &Metadata<'_>) -> Result<f64, Error> {
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

/// What YaRN multiplies queries, and keys, by in all their values: `weight` is its `mscale_all_dim`.
fn stretched(scaling: &RopeScaling, weight: f64) -> f64 {
    match scaling {
        RopeScaling::Yarn { factor, .. } if *factor > 1.0 => 0.1 * weight * factor.ln() + 1.0,
        _ => 1.0,
    }
}

fn read_mixture(metadata: &Metadata<'_>, version: &Version) -> Result<MixtureConfig, Error> {
    let count = |key, usual| read::usual_count(metadata, key, usual);
    let family = version.family;
    let refuse = |key: Key, value: String| {
        let name = metadata.name(key);
        Err(metadata.unsupported(format!("{name} {value} is not supported of {family}")))
    };
    match metadata.text(SCORE)? {
        Some(score) if score != version.score_name => return refuse(SCORE, format!("{score:?}")),
        _ => (),
    }
    match metadata.number(EVERY)? {
        Some(every) if every != 1.0 => return refuse(EVERY, every.to_string()),
        _ => (),
    }
    let renormalise = metadata.flag(RENORMALISED)?.unwrap_or(version.corrected);
    if renormalise && !version.corrected {
        return refuse(RENORMALISED, "true".to_owned());
    }
    let grouped = match (metadata.text(METHOD)?, version.corrected) {
        (None | Some("greedy"), false) => false,
        (Some("group_limited_greedy"), false) | (None | Some("noaux_tc"), true) => true,
        (Some(method), _) => return refuse(METHOD, format!("{method:?}")),
    };
    let dense_layers = metadata.number(DENSE)?.unwrap_or(version.dense_layers as f64);
    if !(0.0..1e6).contains(&dense_layers) {
        return Err(metadata.error(format!("{} is {dense_layers}", metadata.name(DENSE))));
    }
    let usual = if version.corrected { [8, 4] } else { [1, 1] };
    let groups = ExpertGroups {
        count: count(GROUPS, usual[0])?,
        used: count(GROUPS_USED, usual[1])?,
        judged: version.judged,
    };
    let intermediate_size = count(WIDTH, version.width)?;
    Ok(MixtureConfig {
        experts: count(EXPERTS, version.experts)?,
        router: RouterConfig {
            used: match (metadata.count(USED)?, version.used) {
                (Some(used), _) | (None, Some(used)) => used,
                (None, None) => return Err(metadata.missing(USED)),
            },
            score: version.score,
            corrected: version.corrected,
            groups: (grouped && groups.count > 1).then_some(groups),
            renormalise,
            scale: metadata.number(SCALE)?.unwrap_or(version.scale) as f32,
        },
        intermediate_size,
        shared_intermediate_size: Some(intermediate_size.saturating_mul(count(SHARED, version.shared)?)),
        dense_layers: dense_layers as usize,
        style: &MIXTURE,
    })
}

fn config_json(config: &ModelConfig) -> Value {
    let (Some(mixture), Some(latent)) = (&config.feed_forward.mixture, &config.attention.latent) else {
        return Value::Null;
    };
    let (router, rotated) = (&mixture.router, config.positions.dims);
    let groups = router.groups.unwrap_or(ExpertGroups {
        count: 1,
        used: 1,
        judged: 1,
    });
    let mut own = json!({
        "first_k_dense_replace": mixture.dense_layers,
        "head_dim": rotated,
        "kv_lora_rank": latent.kv_rank,
        "moe_intermediate_size": mixture.intermediate_size,
        "moe_layer_freq": 1,
        "n_group": groups.count,
        "n_routed_experts": mixture.experts,
        "n_shared_experts": mixture.shared_intermediate_size.unwrap_or(0) / mixture.intermediate_size.max(1),
        "norm_topk_prob": router.renormalise,
        "num_experts_per_tok": router.used,
        "num_nextn_predict_layers": 0,
        "q_lora_rank": latent.q_rank,
        "qk_nope_head_dim": config.attention.head_dim - rotated,
        "qk_rope_head_dim": rotated,
        "rope_scaling": rope_scaling(config),
        "routed_scaling_factor": read::decimal(router.scale),
        "topk_group": groups.used,
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

/// With the weights that the factor of the scores, and that of the rotation, were made by.
fn rope_scaling(config: &ModelConfig) -> Value {
    let mut settings = written_json::rope_scaling(&config.positions.scaling);
    if let RopeScaling::Yarn {
        factor,
        attention_factor,
        ..
    } = &config.positions.scaling
        && *factor > 1.0
    {
        let of_all = (f64::from(config.attention.scale) * (config.attention.head_dim as f64).sqrt()).sqrt();
        // Six decimals are what f32 tells.
        let weight = |stretched: f64| ((stretched - 1.0) / (0.1 * factor.ln()) * 1e6).round() / 1e6;
        settings["mscale_all_dim"] = json!(weight(of_all));
        settings["mscale"] = json!(weight(attention_factor * of_all));
    }
    settings
}

/// A model of a version by its sizes (as [`ModelConfig::of_sizes`]), those of a head (not rotated, rotated, of values), the
/// ranks and its mixture.
fn of_sizes(
    version: &Version,
    sizes: [usize; 5],
    [plain, rotated, value_dim]: [usize; 3],
    latent: LatentConfig,
    mixture: MixtureConfig,
) -> ModelConfig {
    let mut config = ModelConfig::of_sizes(version.family, sizes, plain + rotated);
    config.attention.value_dim = value_dim;
    config.attention.latent = Some(latent);
    config.positions.dims = rotated;
    config.positions.interleaved = true;
    config.feed_forward.mixture = Some(mixture);
    config
}

/// `sizes` are those of all experts, of those used, of an expert, how many the shared one is as wide as, and dense layers.
fn mixture(version: &Version, sizes: [usize; 5], groups: Option<[usize; 2]>, scale: f32) -> MixtureConfig {
    let [experts, used, intermediate_size, shared, dense_layers] = sizes;
    MixtureConfig {
        experts,
        router: RouterConfig {
            used,
            score: version.score,
            corrected: version.corrected,
            groups: groups.map(|[count, used]| ExpertGroups {
                count,
                used,
                judged: version.judged,
            }),
            renormalise: version.corrected,
            scale,
        },
        intermediate_size,
        shared_intermediate_size: Some(shared * intermediate_size),
        dense_layers,
        style: &MIXTURE,
    }
}

/// With the vocabulary, context and YaRN of published models, whose `mscale` and `mscale_all_dim` are `weight`.
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
    let stretched = stretched(&config.positions.scaling, weight);
    config.attention.scale = ((config.attention.head_dim as f64).powf(-0.5) * stretched * stretched) as f32;
    config.bos_ids = vec![0];
    config.eos_ids = vec![1];
    config
}

/// The ranks of published models.
const RANKS: LatentConfig = LatentConfig {
    q_rank: Some(1536),
    kv_rank: 512,
};

fn v2_lite() -> ModelConfig {
    let latent = LatentConfig { q_rank: None, ..RANKS };
    let mixture = mixture(&V2, [64, 6, 1408, 2, 1], None, 1.0);
    let config = of_sizes(&V2, [2048, 10_944, 27, 16, 16], [128, 64, 128], latent, mixture);
    published(config, 102_400, 0.707)
}

fn v2() -> ModelConfig {
    let mixture = mixture(&V2, [160, 6, 1536, 2, 1], Some([8, 3]), 16.0);
    let config = of_sizes(&V2, [5120, 12_288, 60, 128, 128], [128, 64, 128], RANKS, mixture);
    published(config, 102_400, 0.707)
}

fn v3() -> ModelConfig {
    let mixture = mixture(&V3, [256, 8, 2048, 1, 3], Some([8, 4]), 2.5);
    let config = of_sizes(&V3, [7168, 18_432, 61, 128, 128], [128, 64, 128], RANKS, mixture);
    published(config, 129_280, 1.0)
}

/// The structure at a size for tests. Rows are whole blocks of every format.
fn tiny(version: &Version) -> ModelConfig {
    let latent = LatentConfig {
        q_rank: version.corrected.then_some(256),
        kv_rank: 256,
    };
    let mixture = mixture(version, [8, 2, 256, 2, 1], Some([4, 2]), 1.5);
    let config = of_sizes(version, [256, 256, 3, 4, 4], [64, 32, 64], latent, mixture);
    let mut config = published(config, 997, 0.8);
    (config.bos_ids, config.eos_ids) = (vec![1], vec![2]);
    config
}

#[cfg(test)]
mod tests;
