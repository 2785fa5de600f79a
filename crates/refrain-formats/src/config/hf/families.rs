//! What transformers takes where a file is silent, and which layers differ, family by family.

use serde_json::Value;

use super::{ConfigReader, number, rope};
use crate::Error;
use crate::config::{Activation, Architecture, LayerAttention, LayerRope, MAX_LAYERS};
use crate::files::JsonObject;

/// Hyperparameters that a `config.json` may leave out.
pub(super) struct FamilyDefaults {
    /// `None`: hidden_size / num_attention_heads.
    pub head_dim: Option<usize>,
    /// `None`: there must be one in the file.
    pub heads: Option<usize>,
    /// `None`: num_attention_heads.
    pub kv_heads: Option<usize>,
    /// `None`: there must be one in the file.
    pub vocab_size: Option<usize>,
    pub max_position: usize,
    pub rope_theta: f64,
    /// The fraction of each head that is rotated.
    pub rotated: f64,
    pub rms_norm_eps: f64,
    pub tie_word_embeddings: bool,
    pub activation: Activation,
}

pub(super) fn defaults(architecture: Architecture) -> FamilyDefaults {
    let common = FamilyDefaults {
        head_dim: None,
        heads: None,
        kv_heads: None,
        vocab_size: None,
        max_position: 32768,
        rope_theta: 10_000.0,
        rotated: 1.0,
        rms_norm_eps: 1e-6,
        tie_word_embeddings: false,
        activation: Activation::Silu,
    };
    match architecture {
        Architecture::Qwen2 => common,
        Architecture::Qwen3 => FamilyDefaults {
            head_dim: Some(128),
            ..common
        },
        Architecture::Llama => FamilyDefaults {
            max_position: 2048,
            ..common
        },
        Architecture::Mistral => FamilyDefaults {
            kv_heads: Some(8),
            max_position: 131_072,
            ..common
        },
        Architecture::SmolLm3 => FamilyDefaults {
            kv_heads: Some(4),
            rope_theta: 2e6,
            tie_word_embeddings: true,
            ..common
        },
        Architecture::Olmo2 | Architecture::Olmo3 => FamilyDefaults {
            max_position: 2048,
            rope_theta: if architecture == Architecture::Olmo3 {
                5e5
            } else {
                10_000.0
            },
            rms_norm_eps: 1e-5,
            ..common
        },
        Architecture::Phi3 => FamilyDefaults {
            max_position: 4096,
            rms_norm_eps: 1e-5,
            ..common
        },
        Architecture::Gemma3 => FamilyDefaults {
            head_dim: Some(256),
            heads: Some(8),
            kv_heads: Some(4),
            vocab_size: Some(262_208),
            max_position: 131_072,
            rope_theta: 1e6,
            tie_word_embeddings: true,
            activation: Activation::GeluTanh,
            ..common
        },
        Architecture::Qwen3_5Moe => FamilyDefaults {
            head_dim: Some(256),
            kv_heads: Some(2),
            rotated: 0.25,
            ..common
        },
    }
}

/// How each layer attends, up to the last that is not as by default.
pub(super) fn layer_attention(
    reader: &ConfigReader<'_>,
    architecture: Architecture,
    layers: usize,
) -> Result<Vec<LayerAttention>, Error> {
    let layers = layers.min(MAX_LAYERS);
    // Its layer types say which layers attend at all; those that do see everything.
    if architecture == Architecture::Qwen3_5Moe {
        return Ok(Vec::new());
    }
    let window = window(reader, architecture)?;
    let ropes = match architecture {
        Architecture::SmolLm3 => Some(rotated_layers(reader, layers)?),
        _ => None,
    };
    let rotated = |layer: usize| ropes.as_ref().is_none_or(|ropes| ropes[layer]);
    let listed = listed_as_local(reader, layers)?;
    if listed.iter().flatten().any(|local| *local) && window.is_none() {
        return Err(reader.error(
            "layer_types names layers of type \"sliding_attention\", but no sliding_window is in force".to_owned(),
        ));
    }
    let pattern = match architecture {
        Architecture::Gemma3 => reader.count("sliding_window_pattern")?.unwrap_or(6),
        _ => 1,
    };
    let first_windowed = match architecture {
        Architecture::Qwen2 | Architecture::Qwen3 => reader.number("max_window_layers")?.unwrap_or(28.0),
        _ => 0.0,
    };
    let local = |layer: usize| match (architecture, &listed) {
        (_, Some(listed)) => listed[layer],
        (Architecture::Llama | Architecture::Olmo2 | Architecture::Qwen3_5Moe, None) => false,
        (Architecture::Mistral | Architecture::Phi3, None) => window.is_some(),
        (Architecture::Gemma3, None) => !(layer + 1).is_multiple_of(pattern),
        (Architecture::Olmo3, None) => !(layer + 1).is_multiple_of(4),
        (Architecture::SmolLm3, None) => !rotated(layer),
        (Architecture::Qwen2 | Architecture::Qwen3, None) => layer as f64 >= first_windowed,
    };
    if architecture == Architecture::Phi3 && window.is_some() && !(0..layers).all(&local) {
        return Err(reader.error(format!(
            "layer_types names layers without a window, which those of {architecture} all have where there is a \
             sliding_window"
        )));
    }
    let local_rope = match architecture {
        Architecture::Gemma3 | Architecture::Olmo3 => LayerRope::Local,
        _ => LayerRope::Global,
    };
    let attention = |layer: usize| LayerAttention {
        window: window.filter(|_| local(layer)),
        rope: match (rotated(layer), local(layer)) {
            (false, _) => LayerRope::None,
            (true, true) => local_rope,
            (true, false) => LayerRope::Global,
        },
    };
    let mut attention: Vec<LayerAttention> = (0..layers).map(attention).collect();
    while attention.last() == Some(&LayerAttention::default()) {
        attention.pop();
    }
    Ok(attention)
}

/// How many positions layers with a window see.
fn window(reader: &ConfigReader<'_>, architecture: Architecture) -> Result<Option<usize>, Error> {
    let given = reader.count("sliding_window")?;
    let silent = !reader.object.contains_key("sliding_window");
    Ok(match architecture {
        Architecture::Llama | Architecture::Olmo2 | Architecture::Qwen3_5Moe => None,
        Architecture::Qwen2 | Architecture::Qwen3 | Architecture::SmolLm3 => {
            given.filter(|_| matches!(reader.value("use_sliding_window"), Some(Value::Bool(true))))
        }
        Architecture::Phi3 => given,
        Architecture::Mistral | Architecture::Olmo3 | Architecture::Gemma3 => {
            if silent {
                Some(4096)
            } else {
                given
            }
        }
    })
}

/// Which layers `layer_types` calls local, if it is there.
fn listed_as_local(reader: &ConfigReader<'_>, layers: usize) -> Result<Option<Vec<bool>>, Error> {
    let Some(value) = reader.value("layer_types") else {
        return Ok(None);
    };
    let listed = list(reader, "layer_types", value, layers)?;
    let kinds = listed.iter().map(|kind| match kind.as_str() {
        Some("full_attention") => Ok(false),
        Some("sliding_attention") => Ok(true),
        _ => Err(reader.unsupported(format!(
            "layers of type {kind} are not supported (supported: \"full_attention\", \"sliding_attention\")"
        ))),
    });
    kinds.collect::<Result<_, _>>().map(Some)
}

/// Which layers of SmolLM3 are rotated: 1 in `no_rope_layers`, despite its name.
fn rotated_layers(reader: &ConfigReader<'_>, layers: usize) -> Result<Vec<bool>, Error> {
    let Some(value) = reader.value("no_rope_layers") else {
        let interval = reader.count("no_rope_layer_interval")?.unwrap_or(4);
        return Ok((1..=layers).map(|number| !number.is_multiple_of(interval)).collect());
    };
    let listed = list(reader, "no_rope_layers", value, layers)?;
    let flags = listed.iter().map(|flag| match flag.as_u64() {
        Some(flag @ (0 | 1)) => Ok(flag == 1),
        _ => Err(reader.error(format!("no_rope_layers holds {flag}, neither 0 nor 1"))),
    });
    flags.collect()
}

/// A list with something for each layer.
pub(super) fn list<'a>(
    reader: &ConfigReader<'_>,
    key: &str,
    value: &'a Value,
    layers: usize,
) -> Result<&'a [Value], Error> {
    match value.as_array() {
        Some(list) if list.len() >= layers => Ok(list),
        Some(list) => Err(reader.error(format!("{key} lists {} layers of {layers}", list.len()))),
        None => Err(reader.error(format!("{key} is not a list"))),
    }
}

/// The base of the rotary embedding of local layers; `theta` is that of the others.
pub(super) fn local_rope_theta(
    reader: &ConfigReader<'_>,
    architecture: Architecture,
    theta: f64,
) -> Result<f64, Error> {
    let otherwise = match architecture {
        Architecture::Gemma3 => reader.number("rope_local_base_freq")?.unwrap_or(10_000.0),
        _ => theta,
    };
    let own = reader
        .value("rope_parameters")
        .and_then(|parameters| parameters.get("sliding_attention"))
        .and_then(Value::as_object);
    match own {
        Some(own) => unscaled_theta(reader, own).map(|theta| theta.unwrap_or(otherwise)),
        None => Ok(otherwise),
    }
}

fn unscaled_theta(reader: &ConfigReader<'_>, parameters: &JsonObject) -> Result<Option<f64>, Error> {
    rope::check_keys(reader, parameters)?;
    if let Some(part) = number(parameters, "partial_rotary_factor", reader.file)?
        && part != 1.0
    {
        return Err(reader.unsupported(format!(
            "partial_rotary_factor {part} of layers with a window is not supported"
        )));
    }
    if let Some(kind) = parameters.get("rope_type").filter(|kind| !kind.is_null())
        && kind.as_str() != Some("default")
    {
        return Err(reader.unsupported(format!(
            "rope scaling {kind} of layers with a window is not supported (supported: \"default\")"
        )));
    }
    number(parameters, "rope_theta", reader.file)
}

/// The activation of the feed-forward network.
pub(super) fn activation(reader: &ConfigReader<'_>, architecture: Architecture) -> Result<Activation, Error> {
    let key = match architecture {
        Architecture::Gemma3 => "hidden_activation",
        _ => "hidden_act",
    };
    let Some(value) = reader.value(key) else {
        return Ok(defaults(architecture).activation);
    };
    match value.as_str() {
        Some("silu" | "swish") => Ok(Activation::Silu),
        Some("gelu_pytorch_tanh") => Ok(Activation::GeluTanh),
        _ => Err(reader.unsupported(format!(
            "{key} {value} is not supported (supported: \"silu\", \"gelu_pytorch_tanh\")"
        ))),
    }
}
