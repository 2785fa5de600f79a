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

/// Returns the tensors of a model with this configuration, with their shapes.
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

/// Returns the tensors beside a layer's experts, or those of a dense layer, in GLM-4.5 and DeepSeek.
fn around_experts(config: &ModelConfig, layer: usize) -> Vec<(&'static str, Vec<usize>)> {
    let hidden = config.hidden_size;
    if !["glm4_moe", "deepseek_v2", "deepseek_v3"].contains(&config.family.name) {
        return Vec::new();
    }
    let Some(moe) = config.layer_moe(layer) else {
        let inner = config.feed_forward.intermediate_size;
        return vec![
            ("mlp.gate_proj.weight", vec![inner, hidden]),
            ("mlp.up_proj.weight", vec![inner, hidden]),
            ("mlp.down_proj.weight", vec![hidden, inner]),
        ];
    };
    let shared = moe.shared_intermediate_size.unwrap();
    let correction = ("mlp.gate.e_score_correction_bias", vec![moe.experts]);
    let mut around = vec![
        ("mlp.gate.weight", vec![moe.experts, hidden]),
        ("mlp.shared_experts.gate_proj.weight", vec![shared, hidden]),
        ("mlp.shared_experts.up_proj.weight", vec![shared, hidden]),
        ("mlp.shared_experts.down_proj.weight", vec![hidden, shared]),
    ];
    around.extend(moe.router.score_correction.then_some(correction));
    around
}

/// Returns the norms of one layer and their widths.
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
            let mla = config.attention.mla.unwrap();
            let queries = mla.q_rank.map(|rank| ("self_attn.q_a_layernorm", rank));
            let keys = ("self_attn.kv_a_layernorm", mla.kv_rank);
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

/// Returns the projections of one layer, their shapes, and whether they have biases.
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
    let separate = [
        ("self_attn.q_proj", [q, hidden], input),
        ("self_attn.k_proj", [kv, hidden], input),
        ("self_attn.v_proj", [kv, hidden], input),
        ("mlp.gate_proj", [inner, hidden], mlp),
        ("mlp.up_proj", [inner, hidden], mlp),
    ];
    let output = [
        ("self_attn.o_proj", [hidden, q], output),
        ("mlp.down_proj", [hidden, inner], mlp),
    ];
    match config.family.name {
        "phi3" => [fused, output].concat(),
        "starcoder2" => {
            let plain = [("mlp.c_fc", [inner, hidden], mlp), ("mlp.c_proj", [hidden, inner], mlp)];
            [&separate[..3], &output[..1], &plain].concat()
        }
        // Experts have a test of their own.
        "qwen3_moe" | "gpt_oss" | "glm4_moe" => [&separate[..3], &output[..1]].concat(),
        "deepseek_v2" | "deepseek_v3" => latent_projections(config),
        // The tensors that its layers do not share have a test of their own.
        "qwen3_5_text" | "qwen3_5_moe_text" => Vec::new(),
        _ => [&separate[..], &output].concat(),
    }
}

/// Returns DeepSeek's projections to and from latent vectors.
fn latent_projections(config: &ModelConfig) -> Vec<(&'static str, [usize; 2], bool)> {
    let (hidden, attention, rotated) = (config.hidden_size, &config.attention, config.positions.dims);
    let mla = attention.mla.unwrap();
    let queries = attention.heads * attention.head_dim;
    let keys_values = attention.heads * (attention.head_dim - rotated + attention.value_dim);
    let mut all = vec![
        ("self_attn.kv_a_proj_with_mqa", [mla.kv_rank + rotated, hidden], false),
        ("self_attn.kv_b_proj", [keys_values, mla.kv_rank], false),
        (
            "self_attn.o_proj",
            [hidden, attention.heads * attention.value_dim],
            false,
        ),
    ];
    match mla.q_rank {
        Some(rank) => all.extend([
            ("self_attn.q_a_proj", [rank, hidden], false),
            ("self_attn.q_b_proj", [queries, rank], false),
        ]),
        None => all.push(("self_attn.q_proj", [queries, hidden], false)),
    }
    all
}

#[test]
fn fixtures_open_with_all_configured_tensors() {
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
