//! Error messages of invalid configurations.

use refrain_models::config::{LayerRope, RopeScaling};
use safetensors::tensor::Dtype;
use serde_json::json;

use crate::support::{config, message, open, safetensors};

fn open_config(text: String) -> Result<refrain_models::Checkpoint, refrain_formats::Error> {
    let weights = safetensors(&[("a", Dtype::U8, vec![1], vec![0])]);
    open(&[("config.json", text.into_bytes()), ("model.safetensors", weights)])
}

/// Opens a configuration with each of these changes, and compares the error.
fn check(cases: &[(serde_json::Value, &str)]) {
    for (changes, expected) in cases {
        let found = message(open_config(config(changes.clone())));
        assert!(found.contains(expected), "{found:?} lacks {expected:?}");
        assert!(found.starts_with("embedded config.json: "), "{found}");
    }
}

#[test]
fn unsupported_architectures_list_the_supported_ones() {
    let names: Vec<&str> = refrain_models::FAMILIES.iter().map(|family| family.name).collect();
    let expected = format!(
        "architecture \"gpt2\" is not supported (supported: {})",
        names.join(", ")
    );
    let message = open_config(config(json!({"model_type": "gpt2"})))
        .unwrap_err()
        .to_string();
    assert!(message.contains(&expected), "{message}");
    assert!(expected.contains("qwen3, qwen3_moe, llama, qwen2, mistral, smollm3, olmo2, olmo3, phi3, gemma3_text,"));
}

#[test]
fn rejects_invalid_sizes() {
    check(&[
        (json!({"model_type": null}), "model_type is missing"),
        (json!({"model_type": 3}), "model_type is a number"),
        (json!({"hidden_size": null}), "hidden_size is missing"),
        (json!({"hidden_size": 0}), "hidden_size is 0, not a positive count"),
        (
            json!({"num_hidden_layers": -1}),
            "num_hidden_layers is -1, not a positive count",
        ),
        (json!({"vocab_size": 1.5}), "vocab_size is 1.5, not a positive count"),
        (
            json!({"intermediate_size": "big"}),
            r#"intermediate_size is "big", not a positive"#,
        ),
        (
            json!({"num_hidden_layers": 1_000_000_000}),
            "num_hidden_layers is 1000000000, which is not between 1 and 4096",
        ),
        (
            json!({"vocab_size": u64::MAX}),
            "vocab_size is 18446744073709551615, which is not",
        ),
        (
            json!({"num_attention_heads": 3, "head_dim": 32, "num_key_value_heads": 2}),
            "num_attention_heads (3) is not a multiple of num_key_value_heads (2)",
        ),
        (
            json!({"num_attention_heads": 3}),
            "hidden_size (64) is not a multiple of num_attention_heads (3), and there is no head_dim",
        ),
        (
            json!({"head_dim": 33}),
            "the head size is 33, but only even sizes from 32 to 256",
        ),
        (
            json!({"head_dim": 512}),
            "the head size is 512, but only even sizes from 32 to 256",
        ),
        (json!({"rms_norm_eps": -1.0}), "rms_norm_eps is -1, not a small number"),
        (
            json!({"eos_token_id": "x"}),
            r#"eos_token_id holds "x", which is not a token id"#,
        ),
    ]);
}

#[test]
fn rejects_invalid_rotary_embeddings() {
    check(&[
        (json!({"rope_theta": 0}), "rope_theta is 0, not above 1"),
        (json!({"rope_theta": "x"}), r#"rope_theta is "x", not a number"#),
        (json!({"hidden_act": "gelu"}), r#"hidden_act "gelu" is not supported"#),
        (
            json!({"tie_word_embeddings": 1}),
            "tie_word_embeddings is 1, not true or false",
        ),
        (
            json!({"rope_scaling": {"rope_type": "mrope", "factor": 4.0}}),
            r#"rope scaling "mrope" is not supported (supported: default, linear, dynamic, llama3, yarn, longrope)"#,
        ),
        (
            json!({"rope_scaling": {"type": "linear"}}),
            "factor is missing from the rope scaling",
        ),
        (
            json!({"rope_scaling": {"type": "linear", "factor": 0}}),
            "factor is 0, which is not positive",
        ),
        (json!({"rope_scaling": 4}), "rope_scaling is a number, not an object"),
        (
            json!({"partial_rotary_factor": 0.5}),
            "rotary embeddings cover 16 of 32 values",
        ),
        (
            json!({"rope_scaling": {"type": "yarn", "factor": 4, "beta_slow": -1}}),
            "beta_slow is -1, which is not positive",
        ),
        (
            json!({"model_type": "phi3", "rope_scaling": {"type": "longrope", "short_factor": [], "long_factor": []}}),
            "there are 0 short rope factors, but 16 frequencies",
        ),
        (
            json!({"model_type": "phi3", "rope_scaling": {"type": "su", "short_factor": [1], "long_factor": 1}}),
            "long_factor is a number, not a list",
        ),
        (
            json!({"model_type": "phi3", "rope_scaling": {"type": "longrope", "short_factor": ["x"]}}),
            r#"short_factor holds "x", not a number"#,
        ),
        (
            json!({"model_type": "phi3", "rope_scaling": {"type": "longrope", "short_factor": [1]}}),
            "long_factor is missing",
        ),
        (
            json!({"model_type": "phi3", "partial_rotary_factor": 0.1}),
            "rotary embeddings cover 3 of 32 values",
        ),
        (
            json!({"model_type": "olmo3", "rope_parameters": {"sliding_attention": {"rope_type": "yarn"}}}),
            r#"rope scaling "yarn" of sliding-window layers is not supported"#,
        ),
    ]);
}

#[test]
fn rejects_invalid_layers() {
    check(&[
        (
            json!({"model_type": "qwen2", "num_hidden_layers": 1, "layer_types": ["chunked_attention"]}),
            r#"layers of type "chunked_attention" are not supported"#,
        ),
        (
            json!({"model_type": "qwen2", "num_hidden_layers": 2, "layer_types": ["full_attention"]}),
            "layer_types lists 1 layers of 2",
        ),
        (
            json!({"model_type": "smollm3", "num_hidden_layers": 1, "no_rope_layers": [2]}),
            "no_rope_layers holds 2, neither 0 nor 1",
        ),
        (
            json!({"model_type": "gemma3_text", "head_dim": 32, "attn_logit_softcapping": 50.0}),
            "attn_logit_softcapping 50.0 is not supported",
        ),
        (
            json!({"model_type": "gemma3_text", "head_dim": 32, "query_pre_attn_scalar": 0}),
            "query_pre_attn_scalar is not a positive number",
        ),
        (
            json!({"model_type": "mistral", "sliding_window": 0}),
            "sliding_window is 0, not a positive count",
        ),
    ]);
}

#[test]
fn layer_defaults_match_transformers() {
    let layers = |changes: serde_json::Value| {
        let checkpoint = open_config(config(changes)).unwrap();
        let found = checkpoint.config();
        let layers = (0..found.layers).map(|layer| found.layer_attention(layer));
        layers.map(|own| (own.window, own.rope)).collect::<Vec<_>>()
    };
    let (none, global, local) = (LayerRope::None, LayerRope::Global, LayerRope::Local);
    let cases = [
        (json!({"model_type": "mistral"}), vec![(Some(4096), global); 4]),
        (
            json!({"model_type": "qwen2", "sliding_window": 8, "max_window_layers": 0}),
            vec![(None, global); 4],
        ),
        (
            json!({"model_type": "qwen3", "head_dim": 32, "use_sliding_window": true, "sliding_window": 8,
                   "max_window_layers": 3}),
            vec![(None, global), (None, global), (None, global), (Some(8), global)],
        ),
        (
            json!({"model_type": "smollm3"}),
            vec![(None, global), (None, global), (None, global), (None, none)],
        ),
        (
            json!({"model_type": "olmo3", "sliding_window": 9}),
            vec![(Some(9), local), (Some(9), local), (Some(9), local), (None, global)],
        ),
        (
            json!({"model_type": "gemma3_text", "head_dim": 32, "sliding_window": 9, "sliding_window_pattern": 2}),
            vec![(Some(9), local), (None, global), (Some(9), local), (None, global)],
        ),
    ];
    for (mut changes, expected) in cases {
        changes["num_hidden_layers"] = json!(4);
        assert_eq!(layers(changes.clone()), expected, "{changes}");
    }
}

#[test]
fn rejects_unsupported_quantisations() {
    check(&[
        (
            json!({"quantization_config": {"quant_method": "gptq"}}),
            r#"weights quantised by "gptq" are not supported"#,
        ),
        (
            json!({"quantization": {"bits": 7, "group_size": 64}}),
            "quantization bits 7 of the model is not supported (supported: [2, 3, 4, 5, 6, 8])",
        ),
        (
            json!({"quantization": {"bits": 4, "group_size": 16}}),
            "quantization group_size 16 of the model is not supported (supported: [32, 64, 128])",
        ),
        (
            json!({"quantization": {"bits": 4}}),
            "quantization of the model lacks group_size",
        ),
        (
            json!({"quantization": {"bits": 4, "group_size": 32, "mode": "nvfp4"}}),
            "quantization group_size 32 of the model is not supported for nvfp4 (supported: 16)",
        ),
        (
            json!({"quantization": {"bits": 4, "group_size": 16, "mode": "nvfp4", "lm_head": {
                "bits": 4, "group_size": 16, "mode": "nvfp4", "global_scale": true}}}),
            "quantization of lm_head with a global_scale is not supported",
        ),
        (
            json!({"quantization": {"bits": 4, "group_size": 32, "mode": "nvfp8"}}),
            r#"quantization mode "nvfp8" of the model is not supported"#,
        ),
        (
            json!({"quantization": {"bits": 4, "group_size": 32, "lm_head": {"bits": 1, "group_size": 32}}}),
            "quantization bits 1 of lm_head is not supported",
        ),
    ]);
}

#[test]
fn rejects_configurations_that_are_not_objects() {
    let texts = [
        ("", "embedded config.json: is empty"),
        ("{", "embedded config.json: is not valid JSON"),
        ("[]", "embedded config.json: is a JSON list, not an object"),
        (r#"{"hidden_size": NaN}"#, "embedded config.json: is not valid JSON"),
    ];
    for (text, expected) in texts {
        let found = message(open_config(text.to_owned()));
        assert!(found.contains(expected), "{found:?} lacks {expected:?}");
    }
    assert!(message(open(&[])).starts_with("embedded model: there is no config.json;"));
}

#[test]
fn missing_keys_default_as_in_transformers() {
    let checkpoint = open_config(config(json!({
        "num_key_value_heads": null, "max_position_embeddings": null, "eos_token_id": null
    })));
    let checkpoint = checkpoint.unwrap();
    let found = checkpoint.config();
    assert_eq!(found.family.name, "llama");
    assert_eq!((found.attention.kv_heads, found.attention.head_dim), (2, 32));
    assert_eq!((found.max_position, found.positions.theta), (2048, 10_000.0));
    assert_eq!(found.norm.eps, 1e-6);
    assert!(!found.tie_word_embeddings && !found.attention.bias && !found.feed_forward.bias);
    let qwen = open_config(config(json!({"model_type": "qwen3"}))).unwrap();
    assert_eq!(qwen.config().attention.head_dim, 128);
}

#[test]
fn reads_rope_parameters_from_old_and_new_keys() {
    let llama3 = json!({
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64
    });
    let expected = RopeScaling::Llama3 {
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_max_position: 64.0,
    };
    let mut new = llama3.clone();
    new["rope_theta"] = json!(5e5);
    let cases = [
        (json!({"rope_theta": 5e5, "rope_scaling": llama3}), expected.clone()),
        (json!({"rope_parameters": new}), expected),
        (json!({"rope_theta": 5e5, "rope_scaling": null}), RopeScaling::None),
        (
            json!({"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2}}),
            RopeScaling::Linear { factor: 2.0 },
        ),
        (
            json!({"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}),
            RopeScaling::None,
        ),
    ];
    for (changes, expected) in cases {
        let checkpoint = open_config(config(changes)).unwrap();
        assert_eq!(checkpoint.config().positions.scaling, expected);
        assert_eq!(checkpoint.config().positions.theta, 5e5);
    }
}

#[test]
fn reads_and_checks_generation_defaults() {
    let weights = safetensors(&[("a", Dtype::U8, vec![1], vec![0])]);
    let with = |text: &str| {
        open(&[
            ("config.json", config(json!({})).into_bytes()),
            ("model.safetensors", weights.clone()),
            ("generation_config.json", text.as_bytes().to_vec()),
        ])
    };
    let suggestions = with(r#"{"eos_token_id": [7, 9], "temperature": 0.5, "top_k": 20}"#).unwrap();
    // With that of config.json, which may be the one that the model really writes.
    assert_eq!(suggestions.generation().eos_ids, [7, 9, 2]);
    assert_eq!(suggestions.generation().temperature, Some(0.5));
    assert_eq!(suggestions.generation().top_k, Some(20));
    assert_eq!(with("{}").unwrap().generation().eos_ids, [2]);
    let found = message(with(r#"{"top_p": "high"}"#));
    assert!(
        found.contains(r#"top_p is "high", not a number of 0 or more"#),
        "{found}"
    );
}

#[test]
fn missing_mlx_quantisation_keys_have_defaults() {
    for (quantization, expected) in [
        (json!({"bits": 6, "group_size": null}), (6, 64)),
        (json!({"bits": null, "group_size": 32, "mode": null}), (4, 32)),
    ] {
        let checkpoint = open_config(config(json!({"quantization": quantization}))).unwrap();
        let found = checkpoint.config().quantisation.clone().unwrap();
        assert_eq!((found.format.bits(), found.format.group()), expected);
    }
    // As `mlx_lm.convert --quant-predicate mixed_4_6` writes it.
    let mixed = json!({"quantization": {
        "bits": 4, "group_size": null, "mode": "affine",
        "model.embed_tokens": {"bits": 6, "group_size": null, "mode": "affine"},
        "lm_head": {"bits": 6}, "model.layers.0.mlp.up_proj": false,
    }});
    let checkpoint = open_config(config(mixed)).unwrap();
    let found = checkpoint.config().quantisation.clone().unwrap();
    let of = |layer: &str| found.of(layer).map(|format| (format.bits(), format.group()));
    assert_eq!(of("model.embed_tokens"), Some((6, 64)));
    assert_eq!(of("lm_head"), Some((6, 64)));
    assert_eq!(of("model.layers.0.mlp.up_proj"), None);
    assert_eq!(of("model.layers.0.mlp.down_proj"), Some((4, 64)));
}
