//! Damaged checkpoint directories give exit code 1 and a message that names file and fault.

use serde_json::{Value, json};

use crate::support::Copy;

const WEIGHTS: &str = "model.safetensors";

/// Checks that a changed copy of a small checkpoint is rejected with these words.
#[track_caller]
fn rejects(change: impl FnOnce(&Copy), words: &[&str]) {
    let copy = Copy::of("qwen3-bf16");
    change(&copy);
    copy.logits("").failed(1, words);
}

/// The header entry of the first tensor whose name ends with `end`.
fn entry<'h>(header: &'h mut Value, end: &str) -> &'h mut Value {
    let map = header.as_object_mut().unwrap();
    let name = map.keys().find(|name| name.ends_with(end)).unwrap().clone();
    &mut map[&name]
}

#[test]
fn names_a_missing_or_empty_weight_file() {
    let without_weights = |copy: &Copy| {
        copy.remove(WEIGHTS);
        // Otherwise this file would be taken for the weights.
        copy.remove("logits.safetensors");
    };
    rejects(without_weights, &["no .safetensors file"]);
    rejects(|copy| copy.write(WEIGHTS, ""), &[WEIGHTS, "empty"]);
}

#[test]
fn rejects_a_truncated_weight_file() {
    rejects(|copy| copy.change(WEIGHTS, |bytes| bytes.truncate(5)), &[WEIGHTS]);
    rejects(|copy| copy.change(WEIGHTS, |bytes| bytes.truncate(100)), &[WEIGHTS]);
    rejects(
        |copy| copy.change(WEIGHTS, |bytes| bytes.truncate(bytes.len() - 10)),
        &[WEIGHTS],
    );
}

#[test]
fn rejects_an_invalid_header() {
    rejects(
        |copy| copy.change(WEIGHTS, |bytes| bytes[..8].fill(0xff)),
        &[WEIGHTS, "header"],
    );
    rejects(
        |copy| copy.change(WEIGHTS, |bytes| bytes[8] = b'x'),
        &[WEIGHTS, "header"],
    );
}

#[test]
fn rejects_offsets_that_overlap_or_exceed_the_file() {
    let move_to = |offsets: Value| {
        move |copy: &Copy| {
            copy.change_header(WEIGHTS, |header| entry(header, "norm.weight")["data_offsets"] = offsets);
        }
    };
    rejects(move_to(json!([0, 192])), &[WEIGHTS]);
    rejects(move_to(json!([1_u64 << 40, (1_u64 << 40) + 192])), &[WEIGHTS]);
    rejects(move_to(json!([400, 208])), &[WEIGHTS]);
}

#[test]
fn names_unusable_tensors() {
    let dtype = |copy: &Copy| {
        copy.change_header(WEIGHTS, |header| {
            entry(header, "q_proj.weight")["dtype"] = "F7_E9".into()
        });
    };
    rejects(dtype, &[WEIGHTS, "F7_E9"]);
    let shape = |copy: &Copy| {
        copy.change_header(WEIGHTS, |header| {
            let shape = &mut entry(header, "q_proj.weight")["shape"];
            shape.as_array_mut().unwrap().reverse();
        });
    };
    rejects(shape, &["q_proj.weight", "[192, 96]"]);
    let missing = |copy: &Copy| {
        copy.change_header(WEIGHTS, |header| {
            let renamed = header.as_object_mut().unwrap().remove("model.norm.weight").unwrap();
            header["model.other.weight"] = renamed;
        });
    };
    rejects(missing, &["model.norm.weight", "missing"]);
}

#[test]
fn names_a_missing_shard() {
    let copy = Copy::of("qwen3-f16-sharded");
    copy.remove("model-00002-of-00003.safetensors");
    copy.logits("").failed(1, &["model-00002-of-00003.safetensors"]);
}

#[test]
fn rejects_a_nan_scale() {
    let copy = Copy::of("qwen3-mlx4");
    copy.change(WEIGHTS, |bytes| {
        let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        let header: Value = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
        let scales = &header["model.layers.0.mlp.down_proj.scales"]["data_offsets"];
        let at = 8 + length + scales[0].as_u64().unwrap() as usize;
        // All bits set is NaN in f16, bf16 and f32.
        bytes[at..at + 4].fill(0xff);
    });
    copy.logits("").failed(1, &["model.layers.0.mlp.down_proj", "scale"]);
}

#[test]
fn rejects_a_missing_or_broken_configuration() {
    rejects(|copy| copy.remove("config.json"), &["config.json"]);
    rejects(|copy| copy.write("config.json", ""), &["config.json"]);
    rejects(
        |copy| copy.write("config.json", "{\"hidden_size\": 96,"),
        &["config.json"],
    );
    rejects(|copy| copy.write("config.json", "[1, 2]"), &["config.json"]);
}

#[test]
fn rejects_impossible_configurations() {
    for (key, value, words) in [
        ("model_type", json!("mamba9"), ["mamba9", "qwen3"]),
        ("num_key_value_heads", json!(4), ["num_key_value_heads", "6"]),
        ("num_hidden_layers", json!(0), ["num_hidden_layers", "0"]),
        ("hidden_size", json!(-96), ["hidden_size", "-96"]),
        ("num_hidden_layers", json!(1e9), ["num_hidden_layers", ""]),
        ("vocab_size", json!(u64::MAX), ["vocab_size", ""]),
        ("hidden_size", json!("many"), ["hidden_size", "many"]),
        ("head_dim", json!(33), ["head", "33"]),
        ("num_hidden_layers", json!(3), ["layer_types", "2 layers of 3"]),
        ("hidden_size", json!(128), ["embed_tokens", "128"]),
    ] {
        rejects(
            |copy| copy.change_json("config.json", |config| config[key] = value),
            &words,
        );
    }
}

#[test]
fn names_a_path_without_a_checkpoint() {
    let empty = tempfile::tempdir().unwrap();
    let path = empty.path().to_str().unwrap();
    crate::support::run(&["inspect", path]).failed(1, &[path, "config.json"]);
    crate::support::run(&["inspect", "no/such/model"]).failed(1, &["no/such/model", "demo"]);
    let text = empty.path().join("notes.txt");
    std::fs::write(&text, "not a model").unwrap();
    crate::support::run(&["inspect", text.to_str().unwrap()]).failed(1, &["notes.txt", "GGUF"]);
}
