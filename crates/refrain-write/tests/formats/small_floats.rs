//! MLX's floats of 8 and 4 bits, which appear as BF16.

use refrain_formats::Encoding;
use refrain_models::Checkpoint;
use safetensors::tensor::Dtype;
use serde_json::json;

use crate::support::{config, message, open, safetensors};

/// Opens `w.weight` with its scales; both are given as bytes and shape.
fn opened(
    mode: &str,
    quants: (&[u8], &[usize]),
    scales: (Dtype, &[u8], &[usize]),
) -> Result<Checkpoint, refrain_formats::Error> {
    let (bits, group) = if mode == "mxfp8" { (8, 32) } else { (4, 16) };
    let settings = json!({"quantization": {"bits": bits, "group_size": group, "mode": mode}});
    open(&[
        ("config.json", config(settings).into_bytes()),
        (
            "model.safetensors",
            safetensors(&[
                ("w.weight", Dtype::U32, quants.1.to_vec(), quants.0.to_vec()),
                ("w.scales", scales.0, scales.2.to_vec(), scales.1.to_vec()),
            ]),
        ),
    ])
}

/// Checks a tensor's values, read as a whole and in pieces of odd lengths.
fn check(checkpoint: &Checkpoint, shape: &[usize], expected: &[f32]) {
    let tensor = checkpoint.expect("w.weight", shape).unwrap();
    assert_eq!(tensor.info.encoding, Encoding::BF16);
    assert_eq!(tensor.dequantise().unwrap(), expected);
    let whole = tensor.data().unwrap();
    for step in [1, 3, 64] {
        let mut read = vec![0; whole.len()];
        for (index, piece) in read.chunks_mut(step).enumerate() {
            tensor.write_data((index * step) as u64, piece).unwrap();
        }
        assert_eq!(read, *whole, "in pieces of {step}");
    }
}

#[test]
fn nvfp4_is_read() {
    // Bytes hold two values, the low nibble first; the second group has the scale 1.5, the first 2^-9, the least.
    let quants: Vec<u8> = (0..16u8)
        .map(|pair| (2 * pair % 16) | (((2 * pair + 1) % 16) << 4))
        .collect();
    let sizes = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0f32];
    let signed = Vec::from_iter(sizes.into_iter().chain(sizes.map(|size| -size)));
    let groups = [1.0 / 512.0, 1.5].map(|scale| signed.iter().map(move |value| value * scale));
    let expected = Vec::from_iter(groups.into_iter().flatten());
    let checkpoint = opened("nvfp4", (&quants, &[1, 4]), (Dtype::U8, &[1, 0x3c], &[1, 2])).unwrap();
    check(&checkpoint, &[1, 32], &expected);
}

#[test]
fn mxfp8_is_read() {
    // Zero, the least, the greatest denormal, one, and the greatest of either sign.
    let codes = [0, 1, 7, 0x38, 0x3c, 0x7e, 0x81, 0xfe];
    let values = [0.0, 1.0, 7.0, 512.0, 768.0, 448.0 * 512.0, -1.0, -448.0 * 512.0].map(|value: f32| value / 512.0);
    let quants = codes.repeat(8);
    let scaled = [4.0, 0.5].map(|scale| values.repeat(4).into_iter().map(move |value| value * scale));
    let expected = Vec::from_iter(scaled.into_iter().flatten());
    let checkpoint = opened("mxfp8", (&quants, &[2, 8]), (Dtype::U8, &[129, 126], &[2, 1])).unwrap();
    check(&checkpoint, &[2, 32], &expected);
}

#[test]
fn damaged_layers_are_errors() {
    let quants = [0; 32];
    for (scales, expected) in [
        ((Dtype::U8, &[1, 1][..], &[2, 1][..]), "require [1, 1]"),
        (
            (Dtype::F16, &[1, 1][..], &[1, 1][..]),
            "scales in F16 are not supported for mxfp8",
        ),
    ] {
        let found = message(opened("mxfp8", (&quants, &[1, 8]), scales));
        assert!(found.contains(expected), "{found:?} lacks {expected:?}");
    }
    for (quants, scale) in [([0x38; 32], 255), ([0x7f; 32], 127)] {
        let checkpoint = opened("mxfp8", (&quants, &[1, 8]), (Dtype::U8, &[scale], &[1, 1])).unwrap();
        let found = checkpoint.tensor("w.weight").unwrap().data().unwrap_err().to_string();
        assert!(found.contains("value 0 of row 0 is not finite"), "{found}");
    }
}
