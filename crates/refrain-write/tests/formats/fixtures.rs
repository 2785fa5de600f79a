//! Checkpoints written by transformers, MLX and the gguf package.

use std::path::PathBuf;

use refrain_formats::Format;
use refrain_models::{Checkpoint, ModelConfig};

use crate::support::fixtures;

/// All fixture checkpoints: directories with a configuration, and GGUF files.
fn checkpoints() -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(fixtures()).unwrap() {
        let path = entry.unwrap().path();
        if path.join("model.gguf").exists() {
            paths.push(path.join("model.gguf"));
        } else if path.join("config.json").exists() {
            paths.push(path);
        }
    }
    assert!(paths.len() >= 10, "fixtures are missing");
    paths
}

/// The tensors that a model of this configuration has, with their shapes.
fn expected_tensors(config: &ModelConfig) -> Vec<(String, Vec<usize>)> {
    let hidden = config.hidden_size;
    let mut tensors = vec![
        ("model.embed_tokens.weight".to_owned(), vec![config.vocab_size, hidden]),
        ("model.norm.weight".to_owned(), vec![hidden]),
    ];
    if !config.tie_word_embeddings {
        tensors.push(("lm_head.weight".to_owned(), vec![config.vocab_size, hidden]));
    }
    for layer in 0..config.layers {
        let mut add = |name: &str, shape: &[usize]| {
            tensors.push((format!("model.layers.{layer}.{name}"), shape.to_vec()));
        };
        for (name, n) in norms(config) {
            add(&format!("{name}.weight"), &[n]);
        }
        for (name, shape) in around_experts(config, layer) {
            add(name, &shape);
        }
        for (name, [rows, columns], bias) in projections(config) {
            add(&format!("{name}.weight"), &[rows, columns]);
            if bias {
                add(&format!("{name}.bias"), &[rows]);
            }
        }
    }
    tensors
}

/// What GLM-4.5 and DeepSeek have around the experts of a layer, or in their place.
fn around_experts(config: &ModelConfig, layer: usize) -> Vec<(&'static str, Vec<usize>)> {
    let hidden = config.hidden_size;
    if !["glm4_moe", "deepseek_v2", "deepseek_v3"].contains(&config.family.name) {
        return Vec::new();
    }
    let Some(mixture) = config.layer_mixture(layer) else {
        let inner = config.feed_forward.intermediate_size;
        return vec![
            ("mlp.gate_proj.weight", vec![inner, hidden]),
            ("mlp.up_proj.weight", vec![inner, hidden]),
            ("mlp.down_proj.weight", vec![hidden, inner]),
        ];
    };
    let shared = mixture.shared_intermediate_size.unwrap();
    let correction = ("mlp.gate.e_score_correction_bias", vec![mixture.experts]);
    let mut around = vec![
        ("mlp.gate.weight", vec![mixture.experts, hidden]),
        ("mlp.shared_experts.gate_proj.weight", vec![shared, hidden]),
        ("mlp.shared_experts.up_proj.weight", vec![shared, hidden]),
        ("mlp.shared_experts.down_proj.weight", vec![hidden, shared]),
    ];
    around.extend(mixture.router.corrected.then_some(correction));
    around
}

/// The norms of one layer and their widths.
fn norms(config: &ModelConfig) -> Vec<(&'static str, usize)> {
    let (hidden, head) = (config.hidden_size, config.attention.head_dim);
    let after = ("post_attention_layernorm", hidden);
    let heads = [("self_attn.q_norm", head), ("self_attn.k_norm", head)];
    match config.family.name {
        "qwen3" | "qwen3_moe" => [[("input_layernorm", hidden), after], heads].concat(),
        "olmo2" | "olmo3" => vec![
            after,
            ("post_feedforward_layernorm", hidden),
            ("self_attn.q_norm", config.attention.heads * head),
            ("self_attn.k_norm", config.attention.kv_heads * head),
        ],
        "cohere" | "cohere2" => vec![("input_layernorm", hidden)],
        "deepseek_v2" | "deepseek_v3" => {
            let latent = config.attention.latent.unwrap();
            let queries = latent.q_rank.map(|rank| ("self_attn.q_a_layernorm", rank));
            let keys = ("self_attn.kv_a_layernorm", latent.kv_rank);
            [("input_layernorm", hidden), after, keys]
                .into_iter()
                .chain(queries)
                .collect()
        }
        "glm4_moe" if config.attention.qk_norm => [[("input_layernorm", hidden), after], heads].concat(),
        "gemma3_text" => {
            let feedforward = ["pre_feedforward_layernorm", "post_feedforward_layernorm"].map(|name| (name, hidden));
            [[("input_layernorm", hidden), after], feedforward, heads].concat()
        }
        _ => vec![("input_layernorm", hidden), after],
    }
}

/// The projections of one layer, their shapes, and whether they have biases.
fn projections(config: &ModelConfig) -> Vec<(&'static str, [usize; 2], bool)> {
    let (hidden, inner) = (config.hidden_size, config.feed_forward.intermediate_size);
    let (q, kv) = (
        config.attention.heads * config.attention.head_dim,
        config.attention.kv_heads * config.attention.head_dim,
    );
    let (input, output, mlp) = (
        config.attention.bias,
        config.attention.output_bias,
        config.feed_forward.bias,
    );
    let fused = [
        ("self_attn.qkv_proj", [q + 2 * kv, hidden], input),
        ("mlp.gate_up_proj", [2 * inner, hidden], mlp),
    ];
    let apart = [
        ("self_attn.q_proj", [q, hidden], input),
        ("self_attn.k_proj", [kv, hidden], input),
        ("self_attn.v_proj", [kv, hidden], input),
        ("mlp.gate_proj", [inner, hidden], mlp),
        ("mlp.up_proj", [inner, hidden], mlp),
    ];
    let both = [
        ("self_attn.o_proj", [hidden, q], output),
        ("mlp.down_proj", [hidden, inner], mlp),
    ];
    match config.family.name {
        "phi3" => [fused, both].concat(),
        "starcoder2" => {
            let plain = [("mlp.c_fc", [inner, hidden], mlp), ("mlp.c_proj", [hidden, inner], mlp)];
            [&apart[..3], &both[..1], &plain].concat()
        }
        // Experts are in a test of their own.
        "qwen3_moe" | "gpt_oss" | "glm4_moe" => [&apart[..3], &both[..1]].concat(),
        "deepseek_v2" | "deepseek_v3" => latent_projections(config),
        // What its layers do not share is in a test of its own.
        "qwen3_5_text" | "qwen3_5_moe_text" => Vec::new(),
        _ => [&apart[..], &both].concat(),
    }
}

/// Those of DeepSeek, to latent vectors and from them.
fn latent_projections(config: &ModelConfig) -> Vec<(&'static str, [usize; 2], bool)> {
    let (hidden, attention, rotated) = (config.hidden_size, &config.attention, config.positions.dims);
    let latent = attention.latent.unwrap();
    let queries = attention.heads * attention.head_dim;
    let keys_values = attention.heads * (attention.head_dim - rotated + attention.value_dim);
    let mut all = vec![
        (
            "self_attn.kv_a_proj_with_mqa",
            [latent.kv_rank + rotated, hidden],
            false,
        ),
        ("self_attn.kv_b_proj", [keys_values, latent.kv_rank], false),
        (
            "self_attn.o_proj",
            [hidden, attention.heads * attention.value_dim],
            false,
        ),
    ];
    match latent.q_rank {
        Some(rank) => all.extend([
            ("self_attn.q_a_proj", [rank, hidden], false),
            ("self_attn.q_b_proj", [queries, rank], false),
        ]),
        None => all.push(("self_attn.q_proj", [queries, hidden], false)),
    }
    all
}

#[test]
fn every_fixture_opens_with_all_tensors_that_its_configuration_calls_for() {
    for path in checkpoints() {
        let checkpoint = Checkpoint::open(&path).unwrap();
        let config = checkpoint.config();
        for (name, shape) in expected_tensors(config) {
            let tensor = checkpoint.expect(&name, &shape).unwrap();
            let values = tensor.dequantise().unwrap();
            assert_eq!(values.len(), shape.iter().product::<usize>());
            assert!(values.iter().any(|&value| value != 0.0), "{name} is zero");
            tensor.discard();
            assert_eq!(
                tensor.dequantise().unwrap(),
                values,
                "{name} after its pages were dropped"
            );
        }
        let format = match path.to_string_lossy() {
            name if name.ends_with(".gguf") => Format::Gguf,
            name if name.contains("-mlx") => Format::Mlx,
            _ => Format::Safetensors,
        };
        assert_eq!(checkpoint.format(), format);
        assert!(!checkpoint.generation().eos_ids.is_empty());
        let tokenizer = checkpoint.tokenizer().unwrap();
        assert!(tokenizer.vocab_size() <= config.vocab_size);
        assert_eq!(tokenizer.eos_ids(), checkpoint.generation().eos_ids);
        assert!(
            checkpoint.chat_template().unwrap().is_some(),
            "{path:?} has no template"
        );
    }
}
