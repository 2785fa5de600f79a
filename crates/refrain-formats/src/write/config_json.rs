//! `config.json`, as it is published with models of each family.

use serde_json::{Value, json};

use crate::Encoding;
use crate::config::{Architecture, ModelConfig, RopeScaling};

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
    match config.architecture {
        Architecture::Qwen3 => {
            object["max_window_layers"] = json!(config.layers);
            object["sliding_window"] = Value::Null;
            object["use_sliding_window"] = json!(false);
        }
        Architecture::Llama => {
            object["mlp_bias"] = json!(config.mlp_bias);
            object["pretraining_tp"] = json!(1);
        }
        // No checkpoint of another family is made here.
        _ => {}
    }
    if let Some(quantisation) = &config.quantisation {
        // MLX reads the first, transformers the second.
        let own = json!({ "group_size": quantisation.group_size, "bits": quantisation.bits });
        object["quantization"] = own.clone();
        object["quantization_config"] = own;
    }
    object
}

fn dtype(numbers: Encoding) -> &'static str {
    match numbers {
        Encoding::F32 => "float32",
        Encoding::BF16 => "bfloat16",
        _ => "float16",
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
        // No architecture here has any other.
        _ => Value::Null,
    }
}
