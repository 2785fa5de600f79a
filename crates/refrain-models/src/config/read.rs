//! Reads the hyperparameters that nearly all families share. Each family's file reads the rest.

use refrain_formats::{Error, Key, Metadata};

pub use super::defaults::{Biases, Defaults};
pub use super::key_names::{
    CONTEXT_LENGTH, EPS, HEAD_DIM, HEADS, HIDDEN_SIZE, INTERMEDIATE_SIZE, KV_HEADS, LAYERS, LOGIT_CAP, VOCABULARY,
};
use super::key_names::{MTP_LAYERS, VALUE_HEAD_DIM};
use super::layers::Activation;
use super::{
    AttentionConfig, FeedForwardConfig, ModelConfig, Multipliers, NormConfig, PositionConfig, rope_gguf, rope_json,
};

/// Reads a boolean of `config.json`; false by default.
///
/// # Errors
/// If the value is not a boolean.
pub fn flag(metadata: &Metadata<'_>, key: &'static str) -> Result<bool, Error> {
    Ok(metadata.flag(Key::json(key))?.unwrap_or(false))
}

/// Reads a count that GGUF files require; `default` is for a missing key of `config.json`.
///
/// # Errors
/// If it is missing in GGUF, or invalid.
pub fn count_or(metadata: &Metadata<'_>, key: Key, default: usize) -> Result<usize, Error> {
    match metadata.count(key)? {
        Some(count) => Ok(count),
        None if metadata.is_gguf() => Err(metadata.missing(key)),
        None => Ok(default),
    }
}

/// Reads the hyperparameters of a decoder with full attention in all layers. `inner` overrides the MLP's intermediate
/// size.
///
/// # Errors
/// If a value is missing, invalid or not supported.
pub fn decoder(metadata: &Metadata<'_>, defaults: &Defaults, inner: Option<usize>) -> Result<ModelConfig, Error> {
    let hidden_size = metadata.required(HIDDEN_SIZE)?;
    let layers = layers(metadata)?;
    let or_default = |found: Option<usize>, default: Option<usize>, key: Key| {
        found
            .or(default.filter(|_| !metadata.is_gguf()))
            .ok_or_else(|| metadata.missing(key))
    };
    let heads = or_default(metadata.uniform_count(HEADS)?, defaults.heads, HEADS)?;
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
            .uniform_count(INTERMEDIATE_SIZE)?
            .ok_or_else(|| metadata.missing(INTERMEDIATE_SIZE))?,
    };
    let kv_heads = metadata
        .uniform_count(KV_HEADS)?
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
        mtp_layers: 0,
        vocab_size,
        max_position,
        tie_word_embeddings,
        norm: NormConfig { eps, offset: 0.0 },
        positions,
        attention: AttentionConfig {
            bias: biases.attention,
            output_bias: biases.output,
            value_dim,
            ..AttentionConfig::from_heads(heads, kv_heads, head_dim)
        },
        delta_net: None,
        feed_forward: FeedForwardConfig {
            bias: biases.mlp,
            activation: activation(metadata, defaults)?,
            ..FeedForwardConfig::from_width(intermediate_size)
        },
        multipliers: Multipliers::NONE,
        bos_ids: metadata.bos_ids()?,
        eos_ids: metadata.eos_ids()?,
        quantisation: metadata.quantisation()?,
    })
}

fn layers(metadata: &Metadata<'_>) -> Result<usize, Error> {
    let all = metadata.required(LAYERS)?;
    let predicting = metadata.number(MTP_LAYERS)?.unwrap_or(0.0);
    if !(0.0..all as f64).contains(&predicting) {
        let (own, all_layers) = (metadata.name(MTP_LAYERS), metadata.name(LAYERS));
        return Err(metadata.error(format!("{own} is {predicting}, but {all_layers} is only {all}")));
    }
    Ok(all - predicting as usize)
}

/// Reads the number of multi-token prediction layers: 1 if there are any. Directories state it under `key`, GGUF files by
/// their tensors.
///
/// # Errors
/// If the value is not a number.
pub fn mtp_layers(metadata: &Metadata<'_>, config: &ModelConfig, key: Key) -> Result<usize, Error> {
    let has_some = if metadata.is_gguf() {
        let [_, fc] = config.family.mtp.fc_weight(config.layers);
        metadata.tensor_shape(&fc).is_some()
    } else {
        metadata.number(key)?.is_some_and(|layers| layers > 0.0)
    };
    Ok(usize::from(has_some))
}

/// Reads the rotary embedding and the maximum context.
fn positions(metadata: &Metadata<'_>, defaults: &Defaults, head_dim: usize) -> Result<(PositionConfig, usize), Error> {
    if !metadata.is_gguf() {
        let max_position = metadata.count(CONTEXT_LENGTH)?.unwrap_or(defaults.max_position);
        let rope = rope_json::read(metadata, defaults, max_position)?;
        let positions = PositionConfig {
            theta: rope.theta,
            local_theta: rope_json::local_theta(metadata)?.unwrap_or(rope.theta),
            scaling: rope.scaling,
            dims: (head_dim as f64 * rope.partial_rotary_factor) as usize,
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
    Ok((positions, metadata.required(CONTEXT_LENGTH)?))
}

/// Reads the sizes of key and value heads, with the defaults of transformers and llama.cpp.
fn head_dims(
    metadata: &Metadata<'_>,
    defaults: &Defaults,
    hidden_size: usize,
    heads: usize,
) -> Result<[usize; 2], Error> {
    let (keys, values) = (metadata.count(HEAD_DIM)?, metadata.count(VALUE_HEAD_DIM)?);
    if let Some(head_dim) = keys.or(values) {
        return Ok([head_dim, values.unwrap_or(head_dim)]);
    }
    if let Some(head_dim) = defaults.head_dim
        && !metadata.is_gguf()
        && !metadata.contains_key(HEAD_DIM)
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

/// Reads the activation of the MLP.
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

/// Returns the shortest decimal that parses to the same f32.
pub fn decimal(value: f32) -> f64 {
    value.to_string().parse().unwrap_or(f64::from(value))
}
