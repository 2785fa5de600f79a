//! Damaged GGUF files: exit code 1, and a message that names file and fault.

use crate::support::Copy;

const FILE: &str = "model.gguf";

#[track_caller]
fn refused(change: impl FnOnce(&mut Vec<u8>), words: &[&str]) {
    let copy = Copy::of("qwen3-gguf-q8_0");
    copy.change(FILE, change);
    copy.logits(FILE).failed(1, &[&[FILE], words].concat());
}

/// Where the type of a tensor stands: after its name, its number of dimensions and those.
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
fn a_file_that_is_no_gguf_is_refused() {
    refused(|bytes| put(bytes, 0, b"GGML"), &["GGUF"]);
    refused(Vec::clear, &["empty"]);
}

#[test]
fn an_unknown_version_is_named() {
    refused(|bytes| put(bytes, 4, &[99, 0, 0, 0]), &["version", "99"]);
}

#[test]
fn a_cut_file_is_refused_wherever_it_ends() {
    for keep in [6, 20, 40, 200, 1000] {
        refused(|bytes| bytes.truncate(keep), &[]);
    }
    refused(|bytes| bytes.truncate(bytes.len() / 2), &[]);
    refused(|bytes| bytes.truncate(bytes.len() - 100), &[]);
}

#[test]
fn absurd_counts_are_refused_at_once() {
    refused(|bytes| put(bytes, 8, &u64::MAX.to_le_bytes()), &[]);
    refused(|bytes| put(bytes, 16, &(1u64 << 60).to_le_bytes()), &[]);
}

#[test]
fn an_unknown_tensor_type_is_named() {
    let change = |bytes: &mut Vec<u8>| {
        let at = type_of(bytes, "blk.0.ffn_down.weight");
        put(bytes, at, &200u32.to_le_bytes());
    };
    refused(change, &["blk.0.ffn_down.weight", "200"]);
}

#[test]
fn a_tensor_type_that_is_known_but_not_read_is_named() {
    // 10 is Q2_K.
    let change = |bytes: &mut Vec<u8>| {
        let at = type_of(bytes, "blk.0.ffn_down.weight");
        put(bytes, at, &10u32.to_le_bytes());
    };
    refused(change, &["ffn_down", "Q2_K"]);
}
