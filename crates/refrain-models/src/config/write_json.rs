//! Writes `config.json` as published with models of each family.

use refrain_formats::{Encoding, LayerFormat, Quantisation};
use serde_json::{Map, Value, json};

use super::{ModelConfig, RopeScaling};

/// Returns the contents of the file. `numbers` is the encoding of the weights, or of the original weights if they are
/// quantised.
pub fn object(config: &ModelConfig, numbers: Encoding) -> Value {
    wrap_if_needed(config, text_object(config, numbers))
}

/// Wraps `text` as a multimodal `config.json` if mlx-lm expects that of the family; else returns `text`.
pub fn wrap_if_needed(config: &ModelConfig, text: Value) -> Value {
    match (config.family.wrapper, &config.quantisation) {
        (Some(names), Some(_)) => wrap(names, text),
        _ => text,
    }
}

/// Returns the contents of the file for the text decoder alone.
pub fn text_object(config: &ModelConfig, numbers: Encoding) -> Value {
    let mut object = json!({
        "architectures": [config.family.class],
        "attention_bias": config.attention.bias,
        "attention_dropout": 0.0,
        "bos_token_id": config.bos_ids.first(),
        "eos_token_id": config.eos_ids.first(),
        "head_dim": config.attention.head_dim,
        "hidden_act": "silu",
        "hidden_size": config.hidden_size,
        "initializer_range": 0.02,
        "intermediate_size": config.feed_forward.intermediate_size,
        "max_position_embeddings": config.max_position,
        "model_type": config.family.name,
        "num_attention_heads": config.attention.heads,
        "num_hidden_layers": config.layers,
        "num_key_value_heads": config.attention.kv_heads,
        "rope_scaling": rope_scaling(&config.positions.scaling),
        "rope_theta": config.positions.theta,
        "tie_word_embeddings": config.tie_word_embeddings,
        "torch_dtype": dtype(numbers),
        "transformers_version": "4.51.0",
        "use_cache": true,
        "vocab_size": config.vocab_size,
    });
    if let Some(fields) = object.as_object_mut() {
        // The shortest decimal that parses to the same f32.
        let eps = config.norm.eps.to_string().parse::<f64>().unwrap_or(1e-6);
        fields.insert(config.family.eps.json.to_owned(), json!(eps));
        fields.extend(own_fields(config));
        if let Some(quantisation) = &config.quantisation {
            add_quantisation(fields, quantisation);
        }
    }
    object
}

/// Adds missing keys that mlx-lm reads and that transformers no longer writes since version 5.
pub fn add_legacy_keys(fields: &mut Map<String, Value>, config: &ModelConfig) {
    let mut put = |key: &str, value: Value| {
        let missing = fields.get(key).is_none_or(Value::is_null);
        if missing && !value.is_null() {
            fields.insert(key.to_owned(), value);
        }
    };
    put("rope_theta", json!(config.positions.theta));
    let own = own_fields(config);
    for key in config.family.legacy_keys {
        put(key, own[*key].clone());
    }
    put("rope_scaling", rope_scaling(&config.positions.scaling));
}

/// The `torch_dtype` of unquantised weights.
pub fn dtype(numbers: Encoding) -> &'static str {
    match numbers {
        Encoding::F32 => "float32",
        Encoding::BF16 => "bfloat16",
        _ => "float16",
    }
}

/// Adds MLX's quantisation: MLX reads the first entry, transformers the second.
pub fn add_quantisation(fields: &mut Map<String, Value>, quantisation: &Quantisation) {
    let settings = |format: LayerFormat| {
        let mut own = Map::new();
        own.insert("group_size".to_owned(), json!(format.group()));
        own.insert("bits".to_owned(), json!(format.bits()));
        if format.mode() != Some("affine") {
            own.insert("mode".to_owned(), json!(format.mode()));
        }
        own
    };
    let mut own = settings(quantisation.format);
    for (layer, format) in &quantisation.overrides {
        let value = match format {
            Some(own) => Value::Object(settings(*own)),
            None => json!(false),
        };
        own.insert(layer.clone(), value);
    }
    fields.insert("quantization".to_owned(), Value::Object(own.clone()));
    fields.insert("quantization_config".to_owned(), Value::Object(own));
}

/// Keys of this family only.
fn own_fields(config: &ModelConfig) -> Map<String, Value> {
    match (config.family.config_json)(config) {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

/// Wraps the text model's `config.json` in that of the multimodal model, as mlx-lm expects.
fn wrap([class, name]: [&str; 2], mut text: Value) -> Value {
    let mut whole = Map::new();
    if let Some(fields) = text.as_object_mut() {
        for key in ["quantization", "quantization_config"] {
            whole.extend(fields.remove_entry(key));
        }
        whole.extend(
            fields
                .get_key_value("tie_word_embeddings")
                .map(|(key, value)| (key.clone(), value.clone())),
        );
    }
    whole.insert("architectures".to_owned(), json!([class]));
    whole.insert("model_type".to_owned(), json!(name));
    whole.insert("text_config".to_owned(), text);
    Value::Object(whole)
}

/// The rotary scaling; null if there is none.
pub fn rope_scaling(scaling: &RopeScaling) -> Value {
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
        // config.json has no name for plain divisors.
        RopeScaling::None | RopeScaling::Factors(_) => Value::Null,
    }
}
