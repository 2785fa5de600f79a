//! Checkpoints written by transformers, MLX and the gguf package.

use std::path::PathBuf;

use refrain_formats::{Architecture, Checkpoint, Format, ModelConfig};

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
    let (hidden, inner) = (config.hidden_size, config.intermediate_size);
    let (q, kv) = (config.heads * config.head_dim, config.kv_heads * config.head_dim);
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
        add("input_layernorm.weight", &[hidden]);
        add("post_attention_layernorm.weight", &[hidden]);
        for (name, rows, columns) in [
            ("q_proj", q, hidden),
            ("k_proj", kv, hidden),
            ("v_proj", kv, hidden),
            ("o_proj", hidden, q),
        ] {
            add(&format!("self_attn.{name}.weight"), &[rows, columns]);
            if config.attention_bias {
                add(&format!("self_attn.{name}.bias"), &[rows]);
            }
        }
        if config.architecture == Architecture::Qwen3 {
            add("self_attn.q_norm.weight", &[config.head_dim]);
            add("self_attn.k_norm.weight", &[config.head_dim]);
        }
        for (name, rows, columns) in [
            ("gate_proj", inner, hidden),
            ("up_proj", inner, hidden),
            ("down_proj", hidden, inner),
        ] {
            add(&format!("mlp.{name}.weight"), &[rows, columns]);
            if config.mlp_bias {
                add(&format!("mlp.{name}.bias"), &[rows]);
            }
        }
    }
    tensors
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
