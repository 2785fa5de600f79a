//! Checks the key tables against transformers' configuration classes, and against what reading does with each key.

use serde_json::{Value, json};

use super::*;
use crate::{FAMILIES, ModelConfig, family};

mod classes;

use classes::{CLASS_KEYS, COMMON_KEYS, EXTRA_KEYS};

fn class_keys(family: &Family) -> &'static [&'static str] {
    let known = CLASS_KEYS.iter().find(|(name, _)| *name == family.name);
    known.unwrap_or_else(|| panic!("no class lists the keys of {family}")).1
}

fn is_supported(family: &Family, key: &str) -> bool {
    !is_ignored(family, key) && (SUPPORTED.contains(&key) || family.keys.supported.contains(&key))
}

fn is_ignored(family: &Family, key: &str) -> bool {
    family.keys.ignored.contains(&key) || (IGNORED.contains(&key) && !family.keys.supported.contains(&key))
}

fn is_unsupported(family: &Family, key: &str) -> bool {
    let known = is_supported(family, key) || is_ignored(family, key);
    !known && UNSUPPORTED.iter().any(|(refused, _)| *refused == key)
}

/// Reads a model in which all keys matter, with one key changed.
fn read(family: &Family, key: &str, value: Value) -> Result<ModelConfig, Error> {
    let mut config = json!({
        "model_type": family.name, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4,
        "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 32, "vocab_size": 40,
        "max_position_embeddings": 128, "tie_word_embeddings": false,
        "rope_scaling": {
            "rope_type": "llama3", "factor": 2.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64
        }
    });
    if family.keys.supported.contains(&"sliding_window") {
        config["sliding_window"] = json!(8);
    }
    if family.keys.supported.contains(&"use_sliding_window") {
        config["use_sliding_window"] = json!(true);
        config["max_window_layers"] = json!(2);
    }
    if family.keys.supported.contains(&"topk_group") {
        config["n_group"] = json!(4);
        config["topk_group"] = json!(2);
    }
    if family.keys.supported.contains(&"qk_rope_head_dim") {
        config["num_key_value_heads"] = json!(4);
        config["qk_rope_head_dim"] = json!(32);
        config["num_experts_per_tok"] = json!(3);
    }
    if family.name == "deepseek_v2" {
        config["topk_method"] = json!("group_limited_greedy");
    }
    config[key] = value;
    let metadata = Metadata::from_json(config.as_object().unwrap(), "config.json");
    let family = family::find(&metadata, FAMILIES)?;
    check(&metadata, family)?;
    let config = (family.read)(&metadata)?;
    config.validate("config.json")?;
    Ok(config)
}

fn family_named(name: &str) -> &'static Family {
    FAMILIES.iter().find(|family| family.name == name).unwrap()
}

fn default_model(family: &Family) -> ModelConfig {
    read(family, "transformers_version", json!("5.23.0")).unwrap()
}

/// A value that the default model does not have.
fn changed_value(family: &Family, key: &str) -> Value {
    match key {
        "attention_bias" if family.name == "gpt_oss" => json!(false),
        "norm_topk_prob" if ["glm4_moe", "deepseek_v3"].contains(&family.name) => json!(false),
        "partial_rotary_factor" if family.name == "glm4_moe" => json!(0.75),
        "n_group" => json!(8),
        "topk_group" => json!(3),
        "use_qk_norm" => json!(true),
        "attention_bias" | "mlp_bias" | "norm_topk_prob" | "tie_word_embeddings" => json!(true),
        "use_bias" | "use_sliding_window" => json!(false),
        "hidden_act" if family.name == "starcoder2" => json!("silu"),
        "hidden_act" => json!("gelu_pytorch_tanh"),
        "hidden_activation" => json!("silu"),
        "layer_types" => json!([
            "sliding_attention",
            "full_attention",
            "full_attention",
            "full_attention"
        ]),
        "no_rope_layers" => json!([0, 1, 1, 1]),
        "partial_rotary_factor" => json!(0.5),
        "quantization" | "quantization_config" => json!({"bits": 4, "group_size": 64}),
        "layer_norm_eps" | "norm_epsilon" | "rms_norm_eps" => json!(1e-3),
        "rope_parameters" => match family.name {
            "gemma3_text" | "olmo3" => json!({"full_attention": {"rope_theta": 7e4}}),
            _ => json!({"rope_theta": 7e4}),
        },
        "rope_scaling" => json!({"type": "linear", "factor": 2.0}),
        "model_type" => json!("gpt2"),
        "rope_theta" | "rope_local_base_freq" => json!(12345.0),
        "head_dim" => json!(64),
        "num_attention_heads" => json!(2),
        "num_key_value_heads" | "num_hidden_layers" | "num_experts_per_tok" => json!(2),
        "max_window_layers" => json!(1),
        "full_attention_interval" | "sliding_window_pattern" | "no_rope_layer_interval" => json!(2),
        "linear_conv_kernel_dim" => json!(5),
        "linear_num_key_heads" | "linear_num_value_heads" => json!(64),
        _ => json!(48),
    }
}

#[test]
fn every_key_of_transformers_has_exactly_one_role() {
    for family in FAMILIES {
        for key in COMMON_KEYS.iter().chain(&EXTRA_KEYS).chain(class_keys(family)) {
            let roles = [
                is_supported(family, key),
                is_ignored(family, key),
                is_unsupported(family, key),
            ];
            assert_eq!(
                roles.iter().filter(|role| **role).count(),
                1,
                "{family} {key}: {roles:?}"
            );
        }
    }
}

#[test]
fn supported_keys_change_the_model() {
    for family in FAMILIES {
        for key in SUPPORTED.iter().chain(family.keys.supported) {
            if !is_supported(family, key) {
                continue;
            }
            if let Ok(found) = read(family, key, changed_value(family, key)) {
                assert!(found != default_model(family), "{family} {key}");
            }
        }
    }
}

#[test]
fn ignored_keys_change_nothing() {
    for family in FAMILIES {
        for key in IGNORED.iter().chain(family.keys.ignored) {
            if !is_ignored(family, key) {
                continue;
            }
            for value in [json!(3), json!(true), json!("words"), json!([1]), json!(null)] {
                let found = read(family, key, value.clone()).unwrap();
                assert!(found == default_model(family), "{family} {key} {value}");
            }
        }
    }
}

#[test]
fn unsupported_keys_allow_only_their_default() {
    for family in FAMILIES {
        for (key, allowed) in UNSUPPORTED {
            if !is_unsupported(family, key) {
                continue;
            }
            let (harmless, harmful) = match allowed {
                AllowedValue::Null => (json!(null), json!(4)),
                AllowedValue::Flag(flag) => (json!(flag), json!(!flag)),
                AllowedValue::Number(number) => (json!(number), json!(number + 2.5)),
                AllowedValue::Text(word) => (json!(word), json!("relu")),
                AllowedValue::Empty => (json!([]), json!([1])),
                AllowedValue::FullContext => (json!(128), json!(127)),
            };
            for value in [harmless, json!(null)] {
                let found = read(family, key, value.clone()).unwrap();
                assert!(found == default_model(family), "{family} {key} {value}");
            }
            let message = read(family, key, harmful).unwrap_err().to_string();
            let expected = format!("config.json: {key} ");
            assert!(message.starts_with(&expected), "{family} {key}: {message}");
        }
    }
}

#[test]
fn rejects_layer_types_that_the_family_does_not_have() {
    let [full, local] = ["full_attention", "sliding_attention"];
    for (name, accepted, refused) in [
        ("llama", [full; 4], [full, full, local, full]),
        ("olmo2", [full; 4], [local; 4]),
        ("phi3", [local; 4], [local, local, local, full]),
    ] {
        let family = family_named(name);
        let found = read(family, "layer_types", json!(accepted)).unwrap();
        assert!(found == default_model(family), "{family}");
        let message = read(family, "layer_types", json!(refused)).unwrap_err().to_string();
        assert!(message.contains("layer_types has"), "{message}");
    }
    let ministral = read(
        family_named("mistral"),
        "layer_types",
        json!([local, full, local, full]),
    )
    .unwrap();
    let windows = Vec::from_iter((0..4).map(|layer| ministral.layer_attention(layer).window));
    assert_eq!(windows, [Some(8), None, Some(8), None]);
}

#[test]
fn rejects_unsupported_rope_settings() {
    let refused = |name, key: &str, value: Value| read(family_named(name), key, value).unwrap_err().to_string();
    for (value, expected) in [
        (
            json!({"type": "linear", "factor": 2.0, "alpha": 8}),
            "rope setting alpha 8",
        ),
        (json!({"factor": 2.0}), "has factor 2 but no rope_type"),
        (
            json!({"type": "longrope", "short_factor": [], "long_factor": [], "short_mscale": 1.1}),
            "rope setting short_mscale 1.1",
        ),
        (
            json!({"type": "yarn", "factor": 2.0, "truncate": 1}),
            "truncate is 1, not true or false",
        ),
    ] {
        let message = refused("qwen2", "rope_scaling", value);
        assert!(message.contains(expected), "{message}");
    }
    let nested = json!({"full_attention": {"rope_theta": 1e6}, "sliding_attention": {"rope_theta": 1e4}});
    let message = refused("mistral", "rope_parameters", nested);
    assert!(message.contains("not per layer type"), "{message}");
    let message = refused("gemma3_text", "rope_parameters", json!({"rope_theta": 1e6}));
    assert!(message.contains("one object per layer type"), "{message}");
    let message = refused("qwen3", "rope_parameters", json!({"rope_theta": 7e4}));
    assert!(message.contains("contradict each other"), "{message}");
    let part = json!({"sliding_attention": {"partial_rotary_factor": 0.5}});
    let message = refused("olmo3", "rope_parameters", part);
    assert!(
        message.contains("partial_rotary_factor 0.5 of sliding-window layers"),
        "{message}"
    );
}
