//! Tensors stored as F64 appear as F32.

use refrain_formats::Encoding;
use refrain_models::Checkpoint;
use safetensors::tensor::Dtype;

use crate::support::{GgufBuilder, open_weights, safetensors};

/// GGUF's number of F64.
const F64: u32 = 28;

fn values(count: usize) -> Vec<f64> {
    (0..count).map(|index| (index as f64 - 7.0) / 3.0).collect()
}

fn bytes(values: &[f64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// Checks a tensor's values, read as a whole and in pieces of odd lengths.
fn check(checkpoint: &Checkpoint, name: &str, expected: &[f64]) {
    let tensor = checkpoint.tensor(name).unwrap();
    assert_eq!(tensor.info.encoding, Encoding::F32);
    assert_eq!(tensor.info.bytes, expected.len() as u64 * 8);
    let expected: Vec<f32> = expected.iter().map(|value| *value as f32).collect();
    assert_eq!(tensor.dequantise().unwrap(), expected, "{name}");
    let whole: Vec<u8> = expected.iter().flat_map(|value| value.to_le_bytes()).collect();
    assert_eq!(tensor.data().unwrap(), whole);
    for step in [1, 3, 4, 7, 64] {
        let mut read = vec![0; whole.len()];
        for (index, piece) in read.chunks_mut(step).enumerate() {
            tensor.write_data((index * step) as u64, piece).unwrap();
        }
        assert_eq!(read, whole, "{name} in pieces of {step}");
    }
    assert!(tensor.write_data(whole.len() as u64, &mut [0]).is_err());
    assert!(tensor.write_quants(0, &mut [0]).is_err());
}

#[test]
fn doubles_of_a_directory_are_rounded() {
    let mut given = values(6 * 64);
    given[3] = 1e-300;
    given[4] = f64::from(f32::MAX);
    let name = "model.layers.0.mlp.gate_proj.weight";
    let file = safetensors(&[(name, Dtype::F64, vec![6, 64], bytes(&given))]);
    check(&open_weights(file).unwrap(), name, &given);
}

#[test]
fn doubles_of_a_gguf_file_are_rounded_and_ordered() {
    let given = values(64 * 64);
    let plain = GgufBuilder::new("llama").tensor("blk.0.ffn_gate.weight", &[64, 64], F64, bytes(&given));
    check(&plain.open().unwrap(), "model.layers.0.mlp.gate_proj.weight", &given);
    // llama.cpp interleaves the rows of a query's head: those of its two halves alternate.
    let rows: Vec<&[f64]> = given.chunks(64).collect();
    let head = |rows: &[&[f64]]| -> Vec<f64> {
        let (low, high) = rows.split_at(rows.len() / 2);
        low.iter()
            .zip(high)
            .flat_map(|(low, high)| [*low, *high].concat())
            .collect()
    };
    let stored: Vec<f64> = rows.chunks(32).flat_map(head).collect();
    let permuted = GgufBuilder::new("llama").tensor("blk.0.attn_q.weight", &[64, 64], F64, bytes(&stored));
    check(
        &permuted.open().unwrap(),
        "model.layers.0.self_attn.q_proj.weight",
        &given,
    );
}
