//! Safetensors files: round trips, and errors for damaged files.

mod common;

use std::collections::BTreeMap;
use std::path::Path;

use common::vulkan;
use refrain::nn::{Linear, RmsNorm};
use refrain::{Array, DType, Device, Error, load_safetensors, save_safetensors};

fn arrays(device: &Device) -> BTreeMap<String, Array> {
    let numbers = Array::arange(device, DType::F32, 24).reshape(&[2, 3, 4]);
    let mut arrays: BTreeMap<String, Array> = DType::ALL
        .into_iter()
        .map(|dtype| (dtype.to_string(), numbers.astype(dtype)))
        .collect();
    arrays.insert("turned".to_owned(), numbers.transpose());
    arrays.insert("scalar".to_owned(), Array::full(device, DType::F32, &[], 7.5));
    arrays.insert("empty".to_owned(), Array::zeros(device, DType::I32, &[0, 3]));
    arrays
}

fn contents(arrays: &BTreeMap<String, Array>) -> Vec<(&str, DType, &[usize], Vec<u8>)> {
    let content = |(name, array): (&'_ String, &Array)| (array.dtype(), array.to_bytes().expect(name));
    arrays
        .iter()
        .map(|pair| {
            let (dtype, bytes) = content(pair);
            (pair.0.as_str(), dtype, pair.1.shape(), bytes)
        })
        .collect()
}

#[test]
fn arrays_survive_a_round_trip_on_every_device() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("arrays.safetensors");
    for device in [&Device::cpu(), vulkan()] {
        let written = arrays(device);
        save_safetensors(&path, &written).unwrap();
        for device in [&Device::cpu(), vulkan()] {
            let read = load_safetensors(device, &path).unwrap();
            assert_eq!(contents(&read), contents(&written));
            assert!(read.values().all(|array| array.device().name() == device.name()));
        }
    }
}

#[test]
fn layers_can_be_built_from_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("layers.safetensors");
    let device = Device::cpu();
    let matrix = Array::from_slice(&device, &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[3, 2]);
    let vector = Array::from_slice(&device, &[0.5f32, -0.5, 1.0], &[3]);
    save_safetensors(
        &path,
        [("l.weight", &matrix), ("l.bias", &vector), ("n.weight", &vector)],
    )
    .unwrap();
    let mut read = load_safetensors(&device, &path).unwrap();
    let mut take = |name: &str| read.remove(name).expect(name);
    let linear = Linear::new(take("l.weight"), Some(take("l.bias")));
    let norm = RmsNorm {
        weight: take("n.weight"),
        eps: 0.0,
    };
    let x = Array::from_slice(&device, &[1.0f32, -1.0], &[1, 2]);
    let y = linear.forward(&x);
    assert_eq!(y.to_vec::<f32>().unwrap(), [-0.5, -1.5, 0.0]);
    let scale = 1.0 / ((0.25f32 + 2.25) / 3.0).sqrt();
    let expected = [-0.25 * scale, 0.75 * scale, 0.0];
    for (found, expected) in norm.forward(&y).to_vec::<f32>().unwrap().into_iter().zip(expected) {
        assert!((found - expected).abs() < 1e-6, "{found} instead of {expected}");
    }
}

/// Writes a file with this header and a number of bytes of elements.
fn file(path: &Path, header: &str, elements: usize) {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.resize(bytes.len() + elements, 0);
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn damaged_files_and_unsupported_dtypes_are_rejected_with_the_file_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.safetensors");
    let refused = |part: &str| {
        let error = load_safetensors(&Device::cpu(), &path).unwrap_err();
        assert!(matches!(error, Error::File { .. }), "{error}");
        let text = error.to_string();
        assert!(
            text.contains("x.safetensors: ") && text.contains(part),
            "{part:?} is missing in {text:?}"
        );
    };
    refused("No such file");
    std::fs::write(&path, b"short").unwrap();
    refused("too short");
    std::fs::write(&path, u64::MAX.to_le_bytes()).unwrap();
    refused("the header exceeds the file");
    file(&path, "{", 0);
    refused("invalid header");
    let header = |dtype: &str, shape: &str, offsets: &str| {
        format!(r#"{{"t":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}}}"#)
    };
    file(&path, &header("I64", "[1]", "[0,8]"), 8);
    refused("tensor \"t\" has dtype I64");
    file(&path, &header("F32", "[4]", "[0,16]"), 8);
    refused("ends before tensor \"t\" does");
    for (shape, offsets) in [
        ("[2]", "[0,4]"),
        ("[2]", "[8,0]"),
        ("[4611686018427387904,4]", "[0,8]"),
        ("[9223372036854775807]", "[0,18446744073709551615]"),
    ] {
        file(&path, &header("F32", shape, offsets), 8);
        refused("invalid header");
    }
}

#[test]
fn a_failed_write_is_an_error_and_keeps_the_old_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.safetensors");
    std::fs::write(&path, b"old").unwrap();
    let device = Device::cpu();
    let x = Array::ones(&device, DType::F32, &[2]);
    assert!(save_safetensors(&path, [("x", &x.matmul(&x.reshape(&[2, 1]).transpose()))]).is_err());
    assert!(save_safetensors(&path, [("x", &x), ("x", &x)]).is_err());
    assert_eq!(std::fs::read(&path).unwrap(), b"old");
    let missing = folder.path().join("missing/x.safetensors");
    let error = save_safetensors(&missing, [("x", &x)]).unwrap_err();
    assert!(error.to_string().contains("missing/x.safetensors"), "{error}");
}

#[test]
fn no_damaged_file_makes_reading_panic() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.safetensors");
    let device = Device::cpu();
    let read = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        load_safetensors(&device, &path)
    };
    let x = Array::ones(&device, DType::F32, &[2]);
    save_safetensors(&path, [("x", &x), ("y", &x.astype(DType::Bool))]).unwrap();
    let whole = std::fs::read(&path).unwrap();
    for end in 0..whole.len() {
        assert!(read(&whole[..end]).is_err(), "cut at byte {end}");
    }
    for at in 0..whole.len() {
        for byte in [0, b'0', b'9', b'"', b'{', b'-', 0x80, 0xff] {
            let mut bytes = whole.clone();
            bytes[at] = byte;
            if let Ok(arrays) = read(&bytes) {
                arrays.values().for_each(|array| drop(array.to_bytes()));
            }
        }
    }
    // Shapes without elements whose other extents exceed any memory.
    for shape in ["[0,4611686018427387904,8]", "[4611686018427387904,0,8]"] {
        file(
            &path,
            &format!(r#"{{"t":{{"dtype":"F32","shape":{shape},"data_offsets":[0,0]}}}}"#),
            0,
        );
        if let Ok(arrays) = load_safetensors(&device, &path) {
            assert_eq!(arrays["t"].count(), 0);
        }
    }
}
