//! Tables of configuration keys that all families share. A key is supported, ignored (no effect on the output), or
//! unsupported: then only its default value is allowed. Each family has tables of its own keys.
//!
//! The tables were compared with the configuration classes of transformers 5.23, and with what its models read. No
//! model of transformers reads a key that is in none of the tables.

use refrain_formats::{Error, Key, Metadata, json_excerpt};
use serde_json::Value;

use super::key_names::{CONTEXT_LENGTH, SLIDING_WINDOW};
use crate::family::Family;

/// Keys that every family reads.
const SUPPORTED: [&str; 21] = [
    "bos_token_id",
    "eos_token_id",
    "head_dim",
    "hidden_size",
    "intermediate_size",
    "max_position_embeddings",
    "model_type",
    "num_attention_heads",
    "num_hidden_layers",
    "num_key_value_heads",
    "original_max_position_embeddings",
    "partial_rotary_factor",
    "quantization",
    "quantization_config",
    "rms_norm_eps",
    "rope_parameters",
    "rope_scaling",
    "rope_theta",
    "tie_word_embeddings",
    "vocab_size",
    "layer_types",
];

/// Keys that never affect the output for any family: training, storage, reports, other tasks.
const IGNORED: [&str; 35] = [
    "_name_or_path",
    "_sliding_window_pattern",
    "architectures",
    "attention_dropout",
    "attn_implementation",
    "auto_map",
    "chunk_size_feed_forward",
    "dtype",
    "embd_pdrop",
    "experts_implementation",
    "id2label",
    "initializer_range",
    "is_decoder",
    "label2id",
    "max_window_layers",
    "mtp_num_hidden_layers",
    "mtp_use_dedicated_embeddings",
    "name_or_path",
    "num_experts_per_tok",
    "num_labels",
    "num_nextn_predict_layers",
    "output_attentions",
    "output_hidden_states",
    "output_router_logits",
    "pad_token_id",
    "pretraining_tp",
    "problem_type",
    "resid_pdrop",
    "return_dict",
    "router_aux_loss_coef",
    "tie_last_hidden_states",
    "torch_dtype",
    "transformers_version",
    "use_cache",
    "use_sliding_window",
];

/// The value, besides null, that an unsupported key may have.
#[derive(Clone, Copy)]
enum AllowedValue {
    /// None.
    Null,
    /// This boolean.
    Flag(bool),
    /// This number.
    Number(f64),
    /// This string.
    Text(&'static str),
    /// An empty list or object.
    Empty,
    /// A window at least as large as the context.
    FullContext,
}

/// Keys that change the output for other families or for all, and that only families listing them support.
const UNSUPPORTED: [(&str, AllowedValue); 56] = [
    ("add_cross_attention", AllowedValue::Flag(false)),
    ("alibi", AllowedValue::Flag(false)),
    ("attention_bias", AllowedValue::Flag(false)),
    ("attention_chunk_size", AllowedValue::Null),
    ("attention_multiplier", AllowedValue::Null),
    ("attn_logit_softcapping", AllowedValue::Null),
    ("attn_temperature_tuning", AllowedValue::Flag(false)),
    ("bias", AllowedValue::Flag(false)),
    ("clip_qkv", AllowedValue::Null),
    ("decoder_sparse_step", AllowedValue::Number(1.0)),
    ("embedding_multiplier", AllowedValue::Number(1.0)),
    ("final_logit_softcapping", AllowedValue::Null),
    ("first_k_dense_replace", AllowedValue::Number(0.0)),
    ("full_attention_interval", AllowedValue::Number(1.0)),
    ("hidden_activation", AllowedValue::Text("silu")),
    ("is_causal", AllowedValue::Flag(true)),
    ("is_encoder_decoder", AllowedValue::Flag(false)),
    ("kv_lora_rank", AllowedValue::Null),
    ("linear_conv_kernel_dim", AllowedValue::Null),
    ("lm_head_bias", AllowedValue::Flag(false)),
    ("lm_head_multiplier", AllowedValue::Number(1.0)),
    ("local_rope_theta", AllowedValue::Null),
    ("logit_scale", AllowedValue::Number(1.0)),
    ("logits_scaling", AllowedValue::Number(1.0)),
    ("mlp_bias", AllowedValue::Flag(false)),
    ("mlp_layer_types", AllowedValue::Empty),
    ("mlp_only_layers", AllowedValue::Empty),
    ("moe_intermediate_size", AllowedValue::Number(0.0)),
    ("n_routed_experts", AllowedValue::Number(0.0)),
    ("no_rope_layer_interval", AllowedValue::Null),
    ("no_rope_layers", AllowedValue::Empty),
    ("norm_topk_prob", AllowedValue::Flag(true)),
    ("num_experts", AllowedValue::Number(0.0)),
    ("num_kv_shared_layers", AllowedValue::Number(0.0)),
    ("num_local_experts", AllowedValue::Number(0.0)),
    ("parallel_attn", AllowedValue::Flag(false)),
    ("per_layer_config", AllowedValue::Empty),
    ("pruned_heads", AllowedValue::Empty),
    ("q_lora_rank", AllowedValue::Null),
    ("qk_layernorm", AllowedValue::Flag(false)),
    ("qkv_bias", AllowedValue::Flag(false)),
    ("query_pre_attn_scalar", AllowedValue::Null),
    ("residual_multiplier", AllowedValue::Number(1.0)),
    ("rope_interleaved", AllowedValue::Flag(false)),
    ("rope_local_base_freq", AllowedValue::Null),
    ("rotary_dim", AllowedValue::Null),
    ("rotary_pct", AllowedValue::Number(1.0)),
    ("scale_depth", AllowedValue::Null),
    ("scale_emb", AllowedValue::Number(1.0)),
    ("shared_expert_intermediate_size", AllowedValue::Number(0.0)),
    ("sliding_window", AllowedValue::FullContext),
    ("sliding_window_pattern", AllowedValue::Null),
    ("use_bias", AllowedValue::Flag(false)),
    ("use_bidirectional_attention", AllowedValue::Flag(false)),
    ("use_parallel_residual", AllowedValue::Flag(false)),
    ("use_qk_norm", AllowedValue::Flag(false)),
];

impl AllowedValue {
    fn allows(self, value: &Value, metadata: &Metadata<'_>) -> bool {
        match self {
            AllowedValue::Null => false,
            AllowedValue::Flag(flag) => value.as_bool() == Some(flag),
            AllowedValue::Number(number) => value.as_f64() == Some(number),
            AllowedValue::Text(word) => value.as_str() == Some(word),
            AllowedValue::Empty => match value {
                Value::Array(list) => list.is_empty(),
                Value::Object(object) => object.is_empty(),
                _ => false,
            },
            AllowedValue::FullContext => {
                let context = metadata.json("max_position_embeddings").and_then(Value::as_f64);
                metadata.json("use_sliding_window").and_then(Value::as_bool) == Some(false)
                    || value.as_f64().zip(context).is_some_and(|(window, all)| window >= all)
            }
        }
    }
}

/// Returns an error if a key would change the output but is not supported.
pub(crate) fn check(metadata: &Metadata<'_>, family: &Family) -> Result<(), Error> {
    if metadata.is_gguf() {
        check_gguf(metadata, family)
    } else {
        check_json(metadata, family)
    }
}

fn check_json(metadata: &Metadata<'_>, family: &Family) -> Result<(), Error> {
    let known = [&SUPPORTED[..], family.keys.supported, &IGNORED, family.keys.ignored];
    for (key, allowed) in UNSUPPORTED {
        if known.iter().any(|keys| keys.contains(&key)) {
            continue;
        }
        if let Some(value) = metadata.json(key)
            && !allowed.allows(value, metadata)
        {
            return Err(metadata.unsupported(format!(
                "{key} {} is not supported for {family}: ignoring it would change the output",
                json_excerpt(value)
            )));
        }
    }
    Ok(())
}

/// GGUF numbers that change the output for some families, with the value that is allowed otherwise.
const UNSUPPORTED_IN_GGUF: [(&str, f64); 14] = [
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
    ("final_logit_softcapping", 0.0),
    ("logit_scale", 1.0),
    ("residual_scale", 1.0),
];

fn check_gguf(metadata: &Metadata<'_>, family: &Family) -> Result<(), Error> {
    let refuse = |key: Key, value: String| {
        Err(metadata.unsupported(format!(
            "{} is {value}, which is not supported for {family}: ignoring it would change the output",
            metadata.name(key)
        )))
    };
    let supported = |key: &str| family.keys.supported_in_gguf.contains(&key);
    for (name, allowed) in UNSUPPORTED_IN_GGUF.into_iter().filter(|(name, _)| !supported(name)) {
        if let Some(value) = metadata.number(Key::gguf(name))?
            && value != allowed
        {
            return refuse(Key::gguf(name), (value as f32).to_string());
        }
    }
    for (name, allowed) in [("attention.causal", true), ("use_parallel_residual", false)] {
        if let Some(flag) = metadata.flag(Key::gguf(name))?
            && flag != allowed
        {
            return refuse(Key::gguf(name), flag.to_string());
        }
    }
    let context = metadata.number(CONTEXT_LENGTH)?.unwrap_or(0.0);
    match metadata.number(SLIDING_WINDOW)? {
        Some(window) if !supported(SLIDING_WINDOW.gguf) && window != 0.0 && window < context => {
            refuse(SLIDING_WINDOW, window.to_string())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
