//! What each key is to each family: followed, without effect on what is computed, or refused where it says anything but
//! what this program does anyway. Here stands what families share; their own keys stand with each.
//!
//! Compared with the configuration classes of transformers 5.23 and with what its models read of them. A key that
//! stands in none of the tables is one that no model of transformers reads.

use refrain_formats::{Error, Key, Metadata};
use serde_json::Value;

use super::layers::WINDOW;
use super::read::CONTEXT;
use crate::family::Family;

/// What every family reads.
const FOLLOWED: [&str; 21] = [
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

/// What changes nothing that is computed from tokens, in any family: training, storage, reports, other tasks.
const WITHOUT_EFFECT: [&str; 35] = [
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

/// What a key may say, beside null, where it is not followed.
#[derive(Clone, Copy)]
enum Neutral {
    /// Nothing.
    Nothing,
    /// This.
    Flag(bool),
    /// This.
    Number(f64),
    /// This.
    Word(&'static str),
    /// An empty list or object.
    Empty,
    /// A window that no token can tell from none.
    WholeContext,
}

/// Keys that change what other families compute, or what all do, and that are followed nowhere but where
/// a family says so.
const REFUSED: [(&str, Neutral); 56] = [
    ("add_cross_attention", Neutral::Flag(false)),
    ("alibi", Neutral::Flag(false)),
    ("attention_bias", Neutral::Flag(false)),
    ("attention_chunk_size", Neutral::Nothing),
    ("attention_multiplier", Neutral::Nothing),
    ("attn_logit_softcapping", Neutral::Nothing),
    ("attn_temperature_tuning", Neutral::Flag(false)),
    ("bias", Neutral::Flag(false)),
    ("clip_qkv", Neutral::Nothing),
    ("decoder_sparse_step", Neutral::Number(1.0)),
    ("embedding_multiplier", Neutral::Number(1.0)),
    ("final_logit_softcapping", Neutral::Nothing),
    ("first_k_dense_replace", Neutral::Number(0.0)),
    ("full_attention_interval", Neutral::Number(1.0)),
    ("hidden_activation", Neutral::Word("silu")),
    ("is_causal", Neutral::Flag(true)),
    ("is_encoder_decoder", Neutral::Flag(false)),
    ("kv_lora_rank", Neutral::Nothing),
    ("linear_conv_kernel_dim", Neutral::Nothing),
    ("lm_head_bias", Neutral::Flag(false)),
    ("lm_head_multiplier", Neutral::Number(1.0)),
    ("local_rope_theta", Neutral::Nothing),
    ("logit_scale", Neutral::Number(1.0)),
    ("logits_scaling", Neutral::Number(1.0)),
    ("mlp_bias", Neutral::Flag(false)),
    ("mlp_layer_types", Neutral::Empty),
    ("mlp_only_layers", Neutral::Empty),
    ("moe_intermediate_size", Neutral::Number(0.0)),
    ("n_routed_experts", Neutral::Number(0.0)),
    ("no_rope_layer_interval", Neutral::Nothing),
    ("no_rope_layers", Neutral::Empty),
    ("norm_topk_prob", Neutral::Flag(true)),
    ("num_experts", Neutral::Number(0.0)),
    ("num_kv_shared_layers", Neutral::Number(0.0)),
    ("num_local_experts", Neutral::Number(0.0)),
    ("parallel_attn", Neutral::Flag(false)),
    ("per_layer_config", Neutral::Empty),
    ("pruned_heads", Neutral::Empty),
    ("q_lora_rank", Neutral::Nothing),
    ("qk_layernorm", Neutral::Flag(false)),
    ("qkv_bias", Neutral::Flag(false)),
    ("query_pre_attn_scalar", Neutral::Nothing),
    ("residual_multiplier", Neutral::Number(1.0)),
    ("rope_interleaved", Neutral::Flag(false)),
    ("rope_local_base_freq", Neutral::Nothing),
    ("rotary_dim", Neutral::Nothing),
    ("rotary_pct", Neutral::Number(1.0)),
    ("scale_depth", Neutral::Nothing),
    ("scale_emb", Neutral::Number(1.0)),
    ("shared_expert_intermediate_size", Neutral::Number(0.0)),
    ("sliding_window", Neutral::WholeContext),
    ("sliding_window_pattern", Neutral::Nothing),
    ("use_bias", Neutral::Flag(false)),
    ("use_bidirectional_attention", Neutral::Flag(false)),
    ("use_parallel_residual", Neutral::Flag(false)),
    ("use_qk_norm", Neutral::Flag(false)),
];

impl Neutral {
    fn holds(self, value: &Value, metadata: &Metadata<'_>) -> bool {
        match self {
            Neutral::Nothing => false,
            Neutral::Flag(flag) => value.as_bool() == Some(flag),
            Neutral::Number(number) => value.as_f64() == Some(number),
            Neutral::Word(word) => value.as_str() == Some(word),
            Neutral::Empty => match value {
                Value::Array(list) => list.is_empty(),
                Value::Object(object) => object.is_empty(),
                _ => false,
            },
            Neutral::WholeContext => {
                let context = metadata.json("max_position_embeddings").and_then(Value::as_f64);
                metadata.json("use_sliding_window").and_then(Value::as_bool) == Some(false)
                    || value.as_f64().zip(context).is_some_and(|(window, all)| window >= all)
            }
        }
    }
}

/// Refuses what would change the computation and is not followed.
pub(crate) fn check(metadata: &Metadata<'_>, family: &Family) -> Result<(), Error> {
    if metadata.is_gguf() {
        check_gguf(metadata, family)
    } else {
        check_json(metadata, family)
    }
}

fn check_json(metadata: &Metadata<'_>, family: &Family) -> Result<(), Error> {
    let known = [
        &FOLLOWED[..],
        family.keys.followed,
        &WITHOUT_EFFECT,
        family.keys.without_effect,
    ];
    for (key, neutral) in REFUSED {
        if known.iter().any(|keys| keys.contains(&key)) {
            continue;
        }
        if let Some(value) = metadata.json(key)
            && !neutral.holds(value, metadata)
        {
            return Err(metadata.unsupported(format!(
                "{key} {} is not supported of {family}: the model would compute something else without it",
                shortened(value)
            )));
        }
    }
    Ok(())
}

/// Numbers of GGUF that change what some families compute, and what they may be where nothing follows them.
const REFUSED_IN_GGUF: [(&str, f64); 14] = [
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
            "{} is {value}, which is not supported of {family}: the model would compute something else without it",
            metadata.name(key)
        )))
    };
    let followed = |key: &str| family.keys.followed_in_gguf.contains(&key);
    for (name, neutral) in REFUSED_IN_GGUF.into_iter().filter(|(name, _)| !followed(name)) {
        if let Some(value) = metadata.number(Key::gguf(name))?
            && value != neutral
        {
            return refuse(Key::gguf(name), (value as f32).to_string());
        }
    }
    for (name, neutral) in [("attention.causal", true), ("use_parallel_residual", false)] {
        if let Some(flag) = metadata.flag(Key::gguf(name))?
            && flag != neutral
        {
            return refuse(Key::gguf(name), flag.to_string());
        }
    }
    let context = metadata.number(CONTEXT)?.unwrap_or(0.0);
    match metadata.number(WINDOW)? {
        Some(window) if !followed(WINDOW.gguf) && window != 0.0 && window < context => {
            refuse(WINDOW, window.to_string())
        }
        _ => Ok(()),
    }
}

/// A value for a message, which holds no more of it than a line has room for.
pub(crate) fn shortened(value: &Value) -> String {
    const MOST: usize = 60;
    let text = value.to_string();
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests;
