//! What nearly all families read alike; each file of a family says what is its own.

use refrain_formats::{Error, Key, Metadata};

use super::layers::Activation;
use super::{
    AttentionConfig, FeedForwardConfig, ModelConfig, Multipliers, NormConfig, PositionConfig, rope_gguf, rope_json,
};
use crate::family::Family;

/// Width of the residual stream.
pub const HIDDEN: Key = Key::new("hidden_size", "embedding_length");
/// Width inside the feed-forward network.
pub const INNER: Key = Key::new("intermediate_size", "feed_forward_length");
/// Number of transformer blocks.
pub const LAYERS: Key = Key::new("num_hidden_layers", "block_count");
/// How many of them, the last ones, predict further tokens and are no part of the model itself.
const PREDICTING: Key = Key::gguf("nextn_predict_layers");
/// Number of query heads.
pub const HEADS: Key = Key::new("num_attention_heads", "attention.head_count");
/// Number of key and value heads.
pub const KV_HEADS: Key = Key::new("num_key_value_heads", "attention.head_count_kv");
/// Width of a head.
pub const HEAD: Key = Key::new("head_dim", "attention.key_length");
/// The same of values, where GGUF speaks of it.
const VALUE_HEAD: Key = Key::gguf("attention.value_length");
/// Rows of the token embedding.
pub const VOCABULARY: Key = Key::new("vocab_size", "vocab_size");
/// Longest context.
pub const CONTEXT: Key = Key::new("max_position_embeddings", "context_length");
/// Added to the mean square in RMS norms.
pub const EPS: Key = Key::new("rms_norm_eps", "attention.layer_norm_rms_epsilon");
/// Bound of the logits.
pub const LOGIT_CAP: Key = Key::new("final_logit_softcapping", "final_logit_softcapping");

/// What a family takes where a `config.json` is silent, as transformers does, and how it reads what is there.
pub struct Defaults {
    /// The family.
    pub family: &'static Family,
    /// `None`: hidden_size / num_attention_heads.
    pub head_dim: Option<usize>,
    /// `None`: there must be one in the file.
    pub heads: Option<usize>,
    /// `None`: num_attention_heads.
    pub kv_heads: Option<usize>,
    /// `None`: there must be one in the file.
    pub vocab_size: Option<usize>,
    /// Longest context.
    pub max_position: usize,
    /// Base of the rotary embedding.
    pub rope_theta: f64,
    /// The fraction of each head that is rotated.
    pub rotated: f64,
    /// Whether layers with a window have rotary settings of their own.
    pub rope_by_layer_type: bool,
    /// The context length of the pretraining; early files of such a family call LongRoPE by other names.
    pub longrope_original: Option<f64>,
    /// Added to the mean square in norms.
    pub norm_eps: f64,
    /// Whether the token embedding is also the output head.
    pub tie_word_embeddings: bool,
    /// What the activation is called in `config.json`; `None` where there is no choice.
    pub activation_key: Option<&'static str>,
    /// What is applied to the gate of the feed-forward network.
    pub activation: Activation,
    /// Which projections have biases in `config.json`; in GGUF, those that there are.
    pub biases: Biases,
}

/// Which projections have biases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Biases {
    /// Those to queries, keys and values.
    pub attention: bool,
    /// That of what attention mixed.
    pub output: bool,
    /// Those of the feed-forward network.
    pub mlp: bool,
}

impl Defaults {
    /// What transformers takes for most families.
    pub const fn of(family: &'static Family) -> Defaults {
        Defaults {
            family,
            head_dim: None,
            heads: None,
            kv_heads: None,
            vocab_size: None,
            max_position: 32768,
            rope_theta: 10_000.0,
            rotated: 1.0,
            rope_by_layer_type: false,
            longrope_original: None,
            norm_eps: 1e-6,
            tie_word_embeddings: false,
            activation_key: Some("hidden_act"),
            activation: Activation::Silu,
            biases: Biases {
                attention: false,
                output: false,
                mlp: false,
            },
        }
    }
}

/// A flag of `config.json`, false where it is silent.
///
/// # Errors
/// If the file says what cannot be, or asks for what is not supported.
pub fn flag(metadata: &Metadata<'_>, key: &'static str) -> Result<bool, Error> {
    Ok(metadata.flag(Key::json(key))?.unwrap_or(false))
}

/// A count that GGUF files must say; `usual` where `config.json` is silent.
///
/// # Errors
/// If a GGUF file does not say it, or a file says what cannot be.
pub fn usual_count(metadata: &Metadata<'_>, key: Key, usual: usize) -> Result<usize, Error> {
    match (metadata.count(key)?, metadata.is_gguf()) {
        (Some(count), _) => Ok(count),
        (None, true) => Err(metadata.missing(key)),
        (None, false) => Ok(usual),
    }
}

/// A model of these hyperparameters, whose layers all see everything. `inner` is the width inside the feed-forward
/// network, where it does not stand under the usual name.
///
/// # Errors
/// If the file says what cannot be, or asks for what is not supported.
pub fn decoder(metadata: &Metadata<'_>, defaults: &Defaults, inner: Option<usize>) -> Result<ModelConfig, Error> {
    let hidden_size = metadata.needed(HIDDEN)?;
    let layers = layers(metadata)?;
    let or_default = |found: Option<usize>, default: Option<usize>, key: Key| {
        found
            .or(default.filter(|_| !metadata.is_gguf()))
            .ok_or_else(|| metadata.missing(key))
    };
    let heads = or_default(metadata.count_of_layers(HEADS)?, defaults.heads, HEADS)?;
    let [head_dim, value_dim] = head_dims(metadata, defaults, hidden_size, heads)?;
    let (positions, max_position) = positions(metadata, defaults, head_dim)?;
    let has = |tensor: &str| metadata.tensor_shape(tensor).is_some();
    let biases = if metadata.is_gguf() {
        Biases {
            attention: has("blk.0.attn_q.bias"),
            output: has("blk.0.attn_output.bias"),
            mlp: has("blk.0.ffn_gate.bias"),
        }
    } else {
        defaults.biases
    };
    let intermediate_size = match inner {
        Some(inner) => inner,
        None => metadata
            .count_of_layers(INNER)?
            .ok_or_else(|| metadata.missing(INNER))?,
    };
    let kv_heads = metadata
        .count_of_layers(KV_HEADS)?
        .or(defaults.kv_heads.filter(|_| !metadata.is_gguf()))
        .unwrap_or(heads);
    let vocab_size = match metadata.tensor_shape("token_embd.weight") {
        Some(&[rows, ..]) => rows,
        _ => or_default(metadata.count(VOCABULARY)?, defaults.vocab_size, VOCABULARY)?,
    };
    let eps = match metadata.number(defaults.family.eps)? {
        Some(eps) => eps as f32,
        None if metadata.is_gguf() => 1e-6,
        None => defaults.norm_eps as f32,
    };
    let tie_word_embeddings = if metadata.is_gguf() {
        !has("output.weight")
    } else {
        metadata
            .flag(Key::json("tie_word_embeddings"))?
            .unwrap_or(defaults.tie_word_embeddings)
    };
    Ok(ModelConfig {
        family: defaults.family,
        hidden_size,
        layers,
        vocab_size,
        max_position,
        tie_word_embeddings,
        norm: NormConfig { eps, offset: 0.0 },
        positions,
        attention: AttentionConfig {
            bias: biases.attention,
            output_bias: biases.output,
            value_dim,
            ..AttentionConfig::of_heads(heads, kv_heads, head_dim)
        },
        delta_nets: None,
        feed_forward: FeedForwardConfig {
            bias: biases.mlp,
            activation: activation(metadata, defaults)?,
            ..FeedForwardConfig::of_width(intermediate_size)
        },
        multipliers: Multipliers::NONE,
        bos_ids: metadata.bos_ids()?,
        eos_ids: metadata.eos_ids()?,
        quantisation: metadata.quantisation()?,
    })
}

fn layers(metadata: &Metadata<'_>) -> Result<usize, Error> {
    let all = metadata.needed(LAYERS)?;
    let predicting = metadata.number(PREDICTING)?.unwrap_or(0.0);
    if !(0.0..all as f64).contains(&predicting) {
        let (own, all_layers) = (metadata.name(PREDICTING), metadata.name(LAYERS));
        return Err(metadata.error(format!("{own} is {predicting}, but {all_layers} only {all}")));
    }
    Ok(all - predicting as usize)
}

/// How positions are encoded, and the longest context.
fn positions(metadata: &Metadata<'_>, defaults: &Defaults, head_dim: usize) -> Result<(PositionConfig, usize), Error> {
    if !metadata.is_gguf() {
        let max_position = metadata.count(CONTEXT)?.unwrap_or(defaults.max_position);
        let rope = rope_json::read(metadata, defaults, max_position)?;
        let positions = PositionConfig {
            theta: rope.theta,
            local_theta: rope_json::local_theta(metadata)?.unwrap_or(rope.theta),
            scaling: rope.scaling,
            dims: (head_dim as f64 * rope.rotated) as usize,
            interleaved: false,
        };
        return Ok((positions, rope.max_position));
    }
    let theta = metadata.number(Key::gguf("rope.freq_base"))?.unwrap_or(10_000.0);
    let positions = PositionConfig {
        theta,
        local_theta: metadata.number(Key::gguf("rope.freq_base_swa"))?.unwrap_or(theta),
        scaling: rope_gguf::scaling(metadata)?,
        dims: metadata.count(Key::gguf("rope.dimension_count"))?.unwrap_or(head_dim),
        interleaved: false,
    };
    Ok((positions, metadata.needed(CONTEXT)?))
}

/// The widths of a head of keys and of values, or what transformers and llama.cpp take where they are missing.
fn head_dims(
    metadata: &Metadata<'_>,
    defaults: &Defaults,
    hidden_size: usize,
    heads: usize,
) -> Result<[usize; 2], Error> {
    let (keys, values) = (metadata.count(HEAD)?, metadata.count(VALUE_HEAD)?);
    if let Some(head_dim) = keys.or(values) {
        return Ok([head_dim, values.unwrap_or(head_dim)]);
    }
    if let Some(head_dim) = defaults.head_dim
        && !metadata.is_gguf()
        && !metadata.mentions(HEAD)
    {
        return Ok([head_dim; 2]);
    }
    if hidden_size.is_multiple_of(heads) {
        return Ok([hidden_size / heads; 2]);
    }
    Err(metadata.error(if metadata.is_gguf() {
        format!(
            "embedding_length ({hidden_size}) is not a multiple of head_count ({heads}), and there \
             is no key_length"
        )
    } else {
        format!(
            "hidden_size ({hidden_size}) is not a multiple of num_attention_heads ({heads}), and \
             there is no head_dim"
        )
    }))
}

/// The activation of the feed-forward network.
fn activation(metadata: &Metadata<'_>, defaults: &Defaults) -> Result<Activation, Error> {
    let Some((key, value)) = defaults.activation_key.and_then(|key| Some((key, metadata.json(key)?))) else {
        return Ok(defaults.activation);
    };
    match value.as_str() {
        Some("silu" | "swish") => Ok(Activation::Silu),
        Some("gelu_pytorch_tanh") => Ok(Activation::GeluTanh),
        _ => Err(metadata.unsupported(format!(
            "{key} {value} is not supported (supported: \"silu\", \"gelu_pytorch_tanh\")"
        ))),
    }
}

/// The shortest decimal that gives the same f32 again.
pub fn decimal(value: f32) -> f64 {
    value.to_string().parse().unwrap_or(f64::from(value))
}
