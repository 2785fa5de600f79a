//! Damaged GGUF files give exit code 1 and a message that names file and fault.

use crate::support::Copy;

const FILE: &str = "model.gguf";

#[track_caller]
fn rejects(change: impl FnOnce(&mut Vec<u8>), words: &[&str]) {
    let copy = Copy::of("qwen3-gguf-q8_0");
    copy.change(FILE, change);
    copy.logits(FILE).failed(1, &[&[FILE], words].concat());
}

/// Byte offset of a tensor's type, which follows its name, its number of dimensions and the dimensions.
fn type_of(bytes: &[u8], tensor: &str) -> usize {
    let found = bytes
        .windows(tensor.len())
        .position(|window| window == tensor.as_bytes());
    let dimensions = found.unwrap() + tensor.len();
    let count = u32::from_le_bytes(bytes[dimensions..dimensions + 4].try_into().unwrap());
    dimensions + 4 + 8 * count as usize
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

#[test]
fn rejects_a_file_that_is_not_gguf() {
    rejects(|bytes| put(bytes, 0, b"GGML"), &["GGUF"]);
    rejects(Vec::clear, &["empty"]);
}

#[test]
fn names_an_unknown_version() {
    rejects(|bytes| put(bytes, 4, &[99, 0, 0, 0]), &["version", "99"]);
}

#[test]
fn rejects_a_file_truncated_anywhere() {
    for keep in [6, 20, 40, 200, 1000] {
        rejects(|bytes| bytes.truncate(keep), &[]);
    }
    rejects(|bytes| bytes.truncate(bytes.len() / 2), &[]);
    rejects(|bytes| bytes.truncate(bytes.len() - 100), &[]);
}

#[test]
fn rejects_absurd_counts_at_once() {
    rejects(|bytes| put(bytes, 8, &u64::MAX.to_le_bytes()), &[]);
    rejects(|bytes| put(bytes, 16, &(1u64 << 60).to_le_bytes()), &[]);
}

#[test]
fn names_an_unknown_tensor_type() {
    let change = |bytes: &mut Vec<u8>| {
        let at = type_of(bytes, "blk.0.ffn_down.weight");
        put(bytes, at, &200u32.to_le_bytes());
    };
    rejects(change, &["blk.0.ffn_down.weight", "200"]);
}

#[test]
fn names_an_unsupported_tensor_type() {
    // 10 is Q2_K.
    let change = |bytes: &mut Vec<u8>| {
        let at = type_of(bytes, "blk.0.ffn_down.weight");
        put(bytes, at, &10u32.to_le_bytes());
    };
    rejects(change, &["ffn_down", "Q2_K"]);
}
