use refrain_formats::Encoding;

use super::*;

fn read_json(config: &Value) -> Result<ModelConfig, String> {
    let metadata = Metadata::from_json(config.as_object().unwrap(), "config.json");
    let version = if config["model_type"] == "deepseek_v2" {
        &V2
    } else {
        &V3
    };
    let read = read(&metadata, version).and_then(|config| config.validate("config.json").map(|()| config));
    read.map_err(|error| error.to_string())
}

/// Published configuration of DeepSeek-V2-Lite.
fn lite() -> Value {
    json!({
        "architectures": ["DeepseekV2ForCausalLM"], "attention_bias": false, "aux_loss_alpha": 0.001, "bos_token_id": 0,
        "eos_token_id": 1, "first_k_dense_replace": 1, "hidden_act": "silu", "hidden_size": 2048,
        "intermediate_size": 10944, "kv_lora_rank": 512, "max_position_embeddings": 163_840, "model_type": "deepseek_v2",
        "moe_intermediate_size": 1408, "moe_layer_freq": 1, "n_group": 1, "n_routed_experts": 64, "n_shared_experts": 2,
        "norm_topk_prob": false, "num_attention_heads": 16, "num_experts_per_tok": 6, "num_hidden_layers": 27,
        "num_key_value_heads": 16, "q_lora_rank": null, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
        "rms_norm_eps": 1e-6, "rope_scaling": {
            "beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 0.707, "mscale_all_dim": 0.707,
            "original_max_position_embeddings": 4096, "type": "yarn"
        },
        "rope_theta": 10000, "routed_scaling_factor": 1.0, "scoring_func": "softmax", "tie_word_embeddings": false,
        "topk_group": 1, "topk_method": "greedy", "v_head_dim": 128, "vocab_size": 102_400
    })
}

#[test]
fn published_configuration_matches_the_synthetic_model() {
    let mut found = read_json(&lite()).unwrap();
    found.attention.layers.clear();
    assert_eq!(found, v2_lite());
    // 192^-½ (0.1 · 0.707 · ln 40 + 1)²
    assert!(
        (found.attention.scale - 0.114_721).abs() < 1e-5,
        "{}",
        found.attention.scale
    );
}

#[test]
fn written_configurations_round_trip() {
    for config in [v2_lite(), v2(), v3(), tiny(&V2), tiny(&V3)] {
        let written = write_json::text_object(&config, Encoding::BF16);
        let mut found = read_json(&written).unwrap();
        found.attention.layers.clear();
        let (scale, expected) = (found.attention.scale, config.attention.scale);
        assert!((scale - expected).abs() <= 1e-6 * expected, "{scale} {expected}");
        found.attention.scale = expected;
        assert_eq!(found, config);
    }
}

#[test]
fn rejects_unsupported_expert_selection_and_keys() {
    for (key, value, said) in [
        ("topk_method", json!("noaux_tc"), "topk_method \"noaux_tc\""),
        ("scoring_func", json!("sigmoid"), "scoring_func \"sigmoid\""),
        ("norm_topk_prob", json!(true), "norm_topk_prob true"),
        ("moe_layer_freq", json!(2), "moe_layer_freq 2"),
        ("num_key_value_heads", json!(4), "num_key_value_heads 4"),
        ("head_dim", json!(192), "head_dim 192"),
        ("kv_lora_rank", json!(1 << 21), "kv_lora_rank is 2097152"),
        ("v_head_dim", json!(512), "the head size is 512"),
    ] {
        let mut config = lite();
        config[key] = value;
        let message = read_json(&config).unwrap_err();
        assert!(message.contains(said), "{message}");
    }
}
