//! `config.json`, as it is published with models of each family.

use serde_json::{Map, Value, json};

use super::hybrid;
use crate::Encoding;
use crate::config::{Architecture, LayerRope, ModelConfig, Quantisation, RopeScaling};

/// The contents of the file, of a model whose weights are stored in (or, if quantised, were made of) numbers
/// of the encoding `numbers`.
pub(crate) fn object(config: &ModelConfig, numbers: Encoding) -> Value {
    let class = match config.architecture {
        Architecture::Qwen3 => "Qwen3ForCausalLM",
        Architecture::Llama => "LlamaForCausalLM",
        Architecture::Qwen2 => "Qwen2ForCausalLM",
        Architecture::Mistral => "MistralForCausalLM",
        Architecture::SmolLm3 => "SmolLM3ForCausalLM",
        Architecture::Olmo2 => "Olmo2ForCausalLM",
        Architecture::Olmo3 => "Olmo3ForCausalLM",
        Architecture::Phi3 => "Phi3ForCausalLM",
        Architecture::Gemma3 => "Gemma3ForCausalLM",
        Architecture::Qwen3_5Moe => "Qwen3_5MoeForCausalLM",
    };
    let mut object = json!({
        "architectures": [class],
        "attention_bias": config.attention_bias,
        "attention_dropout": 0.0,
        "bos_token_id": config.bos_ids.first(),
        "eos_token_id": config.eos_ids.first(),
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "hidden_size": config.hidden_size,
        "initializer_range": 0.02,
        "intermediate_size": config.intermediate_size,
        "max_position_embeddings": config.max_position,
        "model_type": config.architecture.name(),
        "num_attention_heads": config.heads,
        "num_hidden_layers": config.layers,
        "num_key_value_heads": config.kv_heads,
        // The shortest decimal that gives the same f32 again.
        "rms_norm_eps": config.rms_norm_eps.to_string().parse::<f64>().unwrap_or(1e-6),
        "rope_scaling": rope_scaling(&config.rope_scaling),
        "rope_theta": config.rope_theta,
        "tie_word_embeddings": config.tie_word_embeddings,
        "torch_dtype": dtype(numbers),
        "transformers_version": "4.51.0",
        "use_cache": true,
        "vocab_size": config.vocab_size,
    });
    if let Some(fields) = object.as_object_mut() {
        fields.extend(own_fields(config));
        if let Some(quantisation) = &config.quantisation {
            put_quantisation(fields, quantisation);
        }
    }
    match (config.architecture, &config.quantisation) {
        (Architecture::Qwen3_5Moe, Some(_)) => hybrid::wrapped(object),
        _ => object,
    }
}

/// Adds what mlx-lm reads, and what transformers writes no more since version 5, where it is missing.
pub(crate) fn put_old_keys(fields: &mut Map<String, Value>, config: &ModelConfig) {
    let mut put = |key: &str, value: Value| {
        let missing = fields.get(key).is_none_or(Value::is_null);
        if missing && !value.is_null() {
            fields.insert(key.to_owned(), value);
        }
    };
    put("rope_theta", json!(config.rope_theta));
    put("rope_scaling", rope_scaling(&config.rope_scaling));
    let keys = match config.architecture {
        Architecture::Gemma3 => ["rope_local_base_freq", "sliding_window_pattern"],
        Architecture::Phi3 => ["partial_rotary_factor", "original_max_position_embeddings"],
        _ => return,
    };
    let own = own_fields(config);
    for key in keys {
        put(key, own[key].clone());
    }
}

/// The type of numbers that are not quantised, or were before.
pub(crate) fn dtype(numbers: Encoding) -> &'static str {
    match numbers {
        Encoding::F32 => "float32",
        Encoding::BF16 => "bfloat16",
        _ => "float16",
    }
}

/// Says how MLX quantised the weights: MLX reads the first entry, transformers the second.
pub(crate) fn put_quantisation(fields: &mut Map<String, Value>, quantisation: &Quantisation) {
    let mut own = Map::new();
    own.insert("group_size".to_owned(), json!(quantisation.group_size));
    own.insert("bits".to_owned(), json!(quantisation.bits));
    for (layer, settings) in &quantisation.overrides {
        let value = match settings {
            Some((bits, group_size)) => json!({ "group_size": group_size, "bits": bits }),
            None => json!(false),
        };
        own.insert(layer.clone(), value);
    }
    fields.insert("quantization".to_owned(), Value::Object(own.clone()));
    fields.insert("quantization_config".to_owned(), Value::Object(own));
}

/// What only some families have.
fn own_fields(config: &ModelConfig) -> Map<String, Value> {
    let layers = Vec::from_iter((0..config.layers).map(|number| config.layer_attention(number)));
    let window = layers.iter().find_map(|layer| layer.window);
    let types = layers.iter().map(|layer| match layer.window {
        Some(_) => "sliding_attention",
        None => "full_attention",
    });
    let types = Vec::from_iter(types);
    let fields = match config.architecture {
        Architecture::Qwen2 | Architecture::Qwen3 => json!({
            "max_window_layers": types.iter().position(|kind| *kind != "full_attention").unwrap_or(config.layers),
            "sliding_window": window,
            "use_sliding_window": window.is_some(),
        }),
        Architecture::Llama => json!({ "mlp_bias": config.mlp_bias, "pretraining_tp": 1 }),
        Architecture::Mistral => json!({ "sliding_window": window }),
        Architecture::SmolLm3 => json!({
            "mlp_bias": config.mlp_bias,
            // 1 where a layer is rotated, despite the name.
            "no_rope_layers": layers.iter().map(|layer| u8::from(layer.rope != LayerRope::None)).collect::<Vec<_>>(),
            "layer_types": types,
            "pad_token_id": null,
            "sliding_window": window,
            "use_sliding_window": window.is_some(),
        }),
        Architecture::Olmo2 => json!({ "pad_token_id": null }),
        Architecture::Olmo3 => json!({ "layer_types": types, "pad_token_id": null, "sliding_window": window }),
        Architecture::Phi3 => json!({
            "original_max_position_embeddings": match config.rope_scaling {
                RopeScaling::LongRope { original_max_position, .. } => original_max_position,
                _ => config.max_position,
            },
            "pad_token_id": null,
            "partial_rotary_factor": config.rope_dims as f64 / config.head_dim as f64,
            "sliding_window": window,
        }),
        Architecture::Qwen3_5Moe => hybrid::fields(config),
        Architecture::Gemma3 => json!({
            "attn_logit_softcapping": null,
            "final_logit_softcapping": config.logit_cap,
            "hidden_activation": "gelu_pytorch_tanh",
            "layer_types": types,
            "query_pre_attn_scalar": f64::from(config.attention_scale).powi(-2).round() as u64,
            "rope_local_base_freq": config.local_rope_theta,
            "sliding_window": window,
            "sliding_window_pattern": types.iter().position(|kind| *kind == "full_attention").map(|first| first + 1),
        }),
    };
    match fields {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

fn rope_scaling(scaling: &RopeScaling) -> Value {
    match scaling {
        RopeScaling::Llama3 {
            factor,
            low_freq_factor,
            high_freq_factor,
            original_max_position,
        } => json!({
            "factor": factor,
            "high_freq_factor": high_freq_factor,
            "low_freq_factor": low_freq_factor,
            "original_max_position_embeddings": *original_max_position as u64,
            "rope_type": "llama3",
        }),
        RopeScaling::Linear { factor } => json!({ "factor": factor, "rope_type": "linear", "type": "linear" }),
        RopeScaling::Yarn {
            factor,
            original_max_position,
            beta_fast,
            beta_slow,
            truncate,
            attention_factor,
        } => json!({
            "attention_factor": attention_factor,
            "beta_fast": beta_fast,
            "beta_slow": beta_slow,
            "factor": factor,
            "original_max_position_embeddings": *original_max_position as u64,
            "rope_type": "yarn",
            "truncate": truncate,
            "type": "yarn",
        }),
        RopeScaling::LongRope {
            short,
            long,
            original_max_position,
            attention_factor,
        } => json!({
            "attention_factor": attention_factor,
            "long_factor": long,
            "original_max_position_embeddings": original_max_position,
            "rope_type": "longrope",
            "short_factor": short,
            "type": "longrope",
        }),
        RopeScaling::Dynamic {
            factor,
            original_max_position,
        } => json!({
            "factor": factor,
            "original_max_position_embeddings": original_max_position,
            "rope_type": "dynamic",
            "type": "dynamic",
        }),
        // Divisors by themselves have no name in config.json.
        RopeScaling::None | RopeScaling::Factors(_) => Value::Null,
    }
}
