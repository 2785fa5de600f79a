//! The hyperparameters in a GGUF file's metadata.

use super::{Gguf, layers, rope, tokenizer};
use crate::Error;
use crate::config::{Activation, Architecture, ModelConfig};

pub(super) fn read(gguf: &Gguf, bytes: &[u8]) -> Result<ModelConfig, Error> {
    let metadata = &gguf.metadata;
    let Some(name) = metadata.string("general.architecture")? else {
        return Err(gguf.error("metadata general.architecture is missing"));
    };
    let architecture = Architecture::by_gguf_name(name, &gguf.file)?;
    let key = |suffix: &str| format!("{name}.{suffix}");
    check_supported(gguf, &key, architecture)?;
    let hidden_size = metadata.needed_count(&key("embedding_length"))?;
    let layer_count = metadata.needed_count(&key("block_count"))?;
    let heads = per_layer(gguf, bytes, &key("attention.head_count"))?
        .ok_or_else(|| gguf.error(format!("metadata {} is missing", key("attention.head_count"))))?;
    let head_dim = head_dim(gguf, &key, hidden_size, heads)?;
    let has = |tensor: &str| gguf.tensors.iter().any(|entry| entry.name == tensor);
    let gemma = architecture == Architecture::Gemma3;
    let rope_theta = metadata.number(&key("rope.freq_base"))?.unwrap_or(10_000.0);
    let config = ModelConfig {
        architecture,
        hidden_size,
        intermediate_size: per_layer(gguf, bytes, &key("feed_forward_length"))?
            .ok_or_else(|| gguf.error(format!("metadata {} is missing", key("feed_forward_length"))))?,
        layers: layer_count,
        heads,
        kv_heads: per_layer(gguf, bytes, &key("attention.head_count_kv"))?.unwrap_or(heads),
        head_dim,
        vocab_size: vocab_size(gguf, &key)?,
        rms_norm_eps: metadata
            .number(&key("attention.layer_norm_rms_epsilon"))?
            .unwrap_or(1e-6) as f32,
        rope_theta,
        rope_scaling: rope::scaling(gguf, bytes, &key)?,
        local_rope_theta: match metadata.number(&key("rope.freq_base_swa"))? {
            Some(theta) => theta,
            None if gemma => 10_000.0,
            None => rope_theta,
        },
        rope_dims: metadata.count(&key("rope.dimension_count"))?.unwrap_or(head_dim),
        max_position: metadata.needed_count(&key("context_length"))?,
        tie_word_embeddings: !has("output.weight"),
        attention_bias: has("blk.0.attn_q.bias"),
        attention_output_bias: has("blk.0.attn_output.bias"),
        attention_scale: attention_scale(architecture, [hidden_size, layer_count, heads, head_dim]),
        mlp_bias: has("blk.0.ffn_gate.bias"),
        activation: match gemma {
            true => Activation::GeluTanh,
            false => Activation::Silu,
        },
        embedding_scale: if gemma { (hidden_size as f32).sqrt() } else { 1.0 },
        // Converters add Gemma's one to the gains.
        norm_offset: 0.0,
        logit_cap: metadata
            .number(&key("final_logit_softcapping"))?
            .filter(|_| gemma)
            .map(|cap| cap as f32),
        layer_attention: layers::attention(gguf, bytes, &key, architecture, layer_count)?,
        delta_nets: None,
        mixture: None,
        bos_ids: metadata.id("tokenizer.ggml.bos_token_id")?.into_iter().collect(),
        eos_ids: tokenizer::eos_ids(gguf, bytes)?,
        quantisation: None,
    };
    config.validate(&gguf.file)?;
    Ok(config)
}

/// Numbers that change what other families compute, and what they may be where nothing follows them.
const REFUSED: [(&str, f64); 13] = [
    ("attention.clamp_kqv", 0.0),
    ("attention.indexer.top_k", 0.0),
    ("attention.kv_lora_rank", 0.0),
    ("attention.max_alibi_bias", 0.0),
    ("attention.q_lora_rank", 0.0),
    ("attention.scale", 0.0),
    ("attention.temperature_length", 0.0),
    ("attention.temperature_scale", 0.0),
    ("attn_logit_softcapping", 0.0),
    ("embedding_scale", 1.0),
    ("expert_count", 0.0),
    ("logit_scale", 1.0),
    ("residual_scale", 1.0),
];

/// Refuses what would change the computation and is not followed.
fn check_supported(gguf: &Gguf, key: &dyn Fn(&str) -> String, architecture: Architecture) -> Result<(), Error> {
    let metadata = &gguf.metadata;
    let refuse = |suffix: &str, value: String| {
        Err(gguf.unsupported(format!(
            "metadata {} is {value}, which is not supported of {architecture}: the model would compute something else \
             without it",
            key(suffix)
        )))
    };
    for (suffix, neutral) in REFUSED {
        if let Some(value) = metadata.number(&key(suffix))?
            && value != neutral
        {
            return refuse(suffix, (value as f32).to_string());
        }
    }
    for (suffix, neutral) in [("attention.causal", true), ("use_parallel_residual", false)] {
        if let Some(flag) = metadata.flag(&key(suffix))?
            && flag != neutral
        {
            return refuse(suffix, flag.to_string());
        }
    }
    let windows = matches!(
        architecture,
        Architecture::Phi3 | Architecture::Gemma3 | Architecture::Olmo2
    );
    let context = metadata.number(&key("context_length"))?.unwrap_or(0.0);
    match metadata.number(&key("attention.sliding_window"))? {
        Some(window) if !windows && window != 0.0 && window < context => {
            return refuse("attention.sliding_window", window.to_string());
        }
        _ => {}
    }
    match metadata.number(&key("final_logit_softcapping"))? {
        Some(cap) if architecture != Architecture::Gemma3 && cap != 0.0 => {
            return refuse("final_logit_softcapping", (cap as f32).to_string());
        }
        _ => {}
    }
    Ok(())
}

/// What scores are multiplied by, for which files have no key: of the Gemma 3 models, only that with 62
/// layers (27B) takes the head size from the width.
fn attention_scale(architecture: Architecture, [hidden_size, layers, heads, head_dim]: [usize; 4]) -> f32 {
    let scored = match (architecture, layers) {
        (Architecture::Gemma3, 62) => hidden_size / heads,
        _ => head_dim,
    };
    (scored as f64).powf(-0.5) as f32
}

/// A count that may be given once or for each layer, where all layers must agree.
fn per_layer(gguf: &Gguf, bytes: &[u8], key: &str) -> Result<Option<usize>, Error> {
    if !matches!(
        gguf.metadata.values.get(key),
        Some(super::value::GgufValue::Array { .. })
    ) {
        return gguf.metadata.count(key);
    }
    let counts = gguf.metadata.numbers(key, bytes)?.unwrap_or_default();
    match counts.first() {
        Some(&first) if first >= 1.0 && counts.iter().all(|&count| count == first) => Ok(Some(first as usize)),
        _ => Err(gguf.unsupported(format!(
            "metadata {key} differs from layer to layer, which is not supported"
        ))),
    }
}

fn head_dim(gguf: &Gguf, key: &dyn Fn(&str) -> String, hidden_size: usize, heads: usize) -> Result<usize, Error> {
    let keys = gguf.metadata.count(&key("attention.key_length"))?;
    let values = gguf.metadata.count(&key("attention.value_length"))?;
    if let (Some(keys), Some(values)) = (keys, values)
        && keys != values
    {
        return Err(gguf.unsupported(format!(
            "keys of {keys} and values of {values} per head are not supported: they must be equal"
        )));
    }
    match keys.or(values) {
        Some(head_dim) => Ok(head_dim),
        None if hidden_size.is_multiple_of(heads) => Ok(hidden_size / heads),
        None => Err(gguf.error(format!(
            "embedding_length ({hidden_size}) is not a multiple of head_count ({heads}), and there \
             is no key_length"
        ))),
    }
}

/// Rows of the token embedding.
fn vocab_size(gguf: &Gguf, key: &dyn Fn(&str) -> String) -> Result<usize, Error> {
    let mut entries = gguf.tensors.iter();
    if let Some(embedding) = entries.find(|entry| entry.name == "token_embd.weight")
        && let Some(&rows) = embedding.shape.first()
    {
        return Ok(rows);
    }
    gguf.metadata.needed_count(&key("vocab_size"))
}
