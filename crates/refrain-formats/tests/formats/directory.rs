//! Paths that hold no checkpoint, and which files of a directory count.

use refrain_formats::Checkpoint;
use safetensors::tensor::Dtype;
use serde_json::json;

use crate::support::{config, message, safetensors};

#[test]
fn paths_without_a_checkpoint_say_what_is_missing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let at = |name: &str| path.join(name);
    std::fs::write(at("empty.gguf"), "").unwrap();
    std::fs::write(at("text.txt"), "hello").unwrap();
    std::fs::write(at("text.gguf"), "hello").unwrap();
    let other = tempfile::tempdir().unwrap();
    let cases = [
        (at("nowhere"), "cannot read "),
        (other.path().to_owned(), "there is no config.json"),
        (
            path.to_owned(),
            "holds 2 GGUF models: give the path of one of empty.gguf, text.gguf",
        ),
        (at("empty.gguf"), "empty.gguf: is empty"),
        (
            at("text.txt"),
            "text.txt: is neither a directory with config.json and safetensors files nor",
        ),
        (
            at("text.gguf"),
            "text.gguf: is not a GGUF file: its first four bytes are not",
        ),
    ];
    for (path, expected) in cases {
        let found = message(Checkpoint::open(&path));
        assert!(found.contains(expected), "{found:?} lacks {expected:?}");
    }
}

#[test]
fn one_whole_file_counts_before_an_index_and_anything_else() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        std::fs::write(directory.path().join(name), bytes).unwrap();
    };
    let weights = |name| safetensors(&[(name, Dtype::U8, vec![1], vec![0])]);
    write("config.json", config(json!({})).as_bytes());
    write("adapter.safetensors", &weights("other"));
    write(".hidden.safetensors", b"broken");
    let names = || -> Vec<String> {
        let checkpoint = Checkpoint::open(directory.path()).unwrap();
        checkpoint.tensors().map(|info| info.name.clone()).collect()
    };
    assert_eq!(names(), ["other"]);
    write("model.safetensors", &weights("whole"));
    assert_eq!(names(), ["whole"]);
    write(
        "model.safetensors.index.json",
        br#"{"weight_map": {"x": "gone.safetensors"}}"#,
    );
    assert_eq!(names(), ["whole"]);
    std::fs::remove_file(directory.path().join("model.safetensors")).unwrap();
    let found = message(Checkpoint::open(directory.path()));
    assert!(found.contains("gone.safetensors: is missing"), "{found}");
}
