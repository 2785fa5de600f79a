//! Logits, compared with those of transformers.

use std::fs;
use std::path::Path;

use safetensors::SafeTensors;

use crate::support::{Copy, run};

/// Reads the tensor `logits` of a file: its shape and values.
fn read(path: &Path) -> (Vec<usize>, Vec<f32>) {
    let bytes = fs::read(path).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let logits = tensors.tensor("logits").unwrap();
    assert_eq!(logits.dtype(), safetensors::Dtype::F32);
    let values = logits
        .data()
        .chunks_exact(4)
        .map(|chunk| f32::from_le_bytes(chunk.try_into().unwrap()));
    (logits.shape().to_vec(), values.collect())
}

/// |a − b| / |b|.
fn relative_error(a: &[f32], b: &[f32]) -> f64 {
    let square = |x: f64| x * x;
    let difference: f64 = a.iter().zip(b).map(|(a, b)| square(f64::from(a - b))).sum();
    (difference / b.iter().map(|b| square(f64::from(*b))).sum::<f64>()).sqrt()
}

#[track_caller]
fn check(fixture: &str, model: &str, arguments: &[&str]) {
    let copy = Copy::of(fixture);
    let (model, tokens, out) = (copy.file(model), copy.file("tokens.json"), copy.file("out.safetensors"));
    let paths = [&model, &tokens, &out].map(|path| path.to_str().unwrap());
    let fixed = ["logits", paths[0], "--tokens", paths[1], "--out", paths[2]];
    assert_eq!(run(&[&fixed, arguments].concat()).done(), "");
    let ((shape, ours), (expected_shape, theirs)) = (read(&out), read(&copy.file("logits.safetensors")));
    assert_eq!(shape, expected_shape);
    let error = relative_error(&ours, &theirs);
    assert!(error <= 1e-4, "{fixture} {arguments:?}: {error:e}");
}

#[test]
fn logits_match_transformers_for_each_format() {
    check("qwen3-bf16", "", &[]);
    check("llama-bf16-sharded", "", &[]);
    check("llama-mlx-mixed", "", &[]);
    check("qwen3-gguf-q4_0", "model.gguf", &[]);
}

#[test]
fn logits_do_not_depend_on_the_chunk_size() {
    for chunk in ["1", "5", "37", "1000"] {
        check("llama-bias-f16", "", &["--chunk", chunk]);
    }
}

#[test]
fn needs_neither_tokenizer_nor_generation_config() {
    let copy = Copy::of("qwen3-bf16");
    for file in ["tokenizer.json", "tokenizer_config.json", "generation_config.json"] {
        copy.remove(file);
    }
    copy.logits("").done();
}
