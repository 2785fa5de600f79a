//! `refrain synth`.

use std::fs;
use std::path::Path;

use crate::support::run;

/// Logits of a few tokens, as the bytes of the output file.
fn logits(model: &str, directory: &Path) -> Vec<u8> {
    let (tokens, out) = (directory.join("tokens.json"), directory.join("out.safetensors"));
    fs::write(&tokens, r#"{"input_ids": [[1, 5, 9, 200, 3, 0]]}"#).unwrap();
    let paths = [&tokens, &out].map(|path| path.to_str().unwrap());
    run(&["logits", model, "--tokens", paths[0], "--out", paths[1]]).done();
    fs::read(out).unwrap()
}

#[test]
fn synthetic_model_is_equal_in_memory_and_on_disk() {
    if !refrain_testing::drawn(8) {
        return;
    }
    for (format, name) in [
        ("f16", "directory"),
        ("q8_0", "m.gguf"),
        ("q4_0", "m.gguf"),
        ("q4_k_m", "m.gguf"),
        ("mlx4", "directory"),
        ("mlx3-g32", "directory"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let out = directory.path().join(name);
        let (spec, written) = (format!("tiny:{format}"), out.to_str().unwrap());
        assert_eq!(run(&["synth", &spec, written]).done(), "");
        let on_the_spot = logits(&format!("synthetic:{spec}"), directory.path());
        assert!(on_the_spot == logits(written, directory.path()), "{format}");
    }
}

#[test]
fn does_not_overwrite_files() {
    let file = tempfile::Builder::new().suffix(".gguf").tempfile().unwrap();
    let path = file.path().to_str().unwrap();
    run(&["synth", "tiny:q8_0", path]).failed(1, &[path, "already exists"]);
}

#[test]
fn rejects_unknown_architectures_and_formats_and_lists_known_ones() {
    for command in [
        &["synth", "gpt-9:q4_0", "out"][..],
        &["inspect", "synthetic:gpt-9:q4_0"],
    ] {
        run(command).failed(1, &["gpt-9", "qwen3-8b"]);
    }
    run(&["inspect", "synthetic:tiny:q9"]).failed(1, &["q9", "q4_0"]);
    run(&["inspect", "synthetic:tiny"]).failed(1, &["ARCH:FORMAT"]);
}

#[test]
fn model_without_tokenizer_can_be_benchmarked_but_not_run() {
    run(&["run", "synthetic:tiny:q4_0", "hi"]).failed(1, &["tokenizer"]);
    let result = run(&[
        "bench",
        "synthetic:tiny:q4_0",
        "-p",
        "4",
        "-n",
        "3",
        "-r",
        "1",
        "--json",
    ])
    .json();
    assert!(result[1]["tokens_per_s"].as_f64().unwrap() > 0.0);
}
