//! Error messages of corrupt safetensors files.

use safetensors::tensor::Dtype;
use serde_json::json;

use crate::support::{config, message, open, open_weights, safetensors, safetensors_raw};

/// A header with one tensor `t` of these fields.
fn header(dtype: &str, shape: &str, offsets: &str) -> String {
    format!(r#"{{"t":{{"dtype":{dtype},"shape":{shape},"data_offsets":{offsets}}}}}"#)
}

/// Opens each of these weight files, and compares the error.
fn check(cases: &[(Vec<u8>, &str)]) {
    for (bytes, expected) in cases {
        let found = message(open_weights(bytes.clone()));
        assert!(found.contains(expected), "{found:?} lacks {expected:?}");
        assert!(found.starts_with("embedded model.safetensors"), "{found}");
    }
}

#[test]
fn rejects_corrupt_headers() {
    let good = header(r#""F32""#, "[2]", "[0,8]");
    let mut beyond = safetensors_raw(&good, &[0; 8]);
    beyond[0] = 0xff;
    let mut absurd = safetensors_raw(&good, &[0; 8]);
    absurd[..8].copy_from_slice(&u64::MAX.to_le_bytes());
    check(&[
        (vec![], "embedded model.safetensors: is empty"),
        (vec![1, 2, 3], "is truncated: it has 3 bytes, fewer than the 8"),
        (beyond, "its header should be 255 bytes long, but only 62 bytes follow"),
        (absurd, "its header should be 18446744073709551615 bytes long"),
        (safetensors_raw(&good[..20], &[]), "header: is not valid JSON"),
        (safetensors_raw("", &[]), "header: is empty"),
        (safetensors_raw("[1]", &[]), "header: is a JSON list, not an object"),
        (safetensors_raw("\u{1}\u{2}", &[]), "header: is not valid JSON"),
    ]);
}

#[test]
fn rejects_byte_ranges_with_gaps_or_overlaps() {
    let good = header(r#""F32""#, "[2]", "[0,8]");
    let two = |a: &str, b: &str| {
        format!(
            r#"{{"a":{{"dtype":"U8","shape":[4],"data_offsets":{a}}},
                 "b":{{"dtype":"U8","shape":[4],"data_offsets":{b}}}}}"#
        )
    };
    check(&[
        (
            safetensors_raw(&good, &[0; 7]),
            "tensor t: its bytes 0..8 lie outside of the 7 bytes of data: the file is truncated",
        ),
        (safetensors_raw(&good, &[0; 9]), "its last 1 bytes belong to no tensor"),
        (
            safetensors_raw(&two("[0,4]", "[2,6]"), &[0; 6]),
            "tensor b: its bytes 2..6 overlap those of a",
        ),
        (
            safetensors_raw(&two("[0,4]", "[6,10]"), &[0; 10]),
            "tensor b: its bytes 6..10 leave a gap of 2 bytes before them",
        ),
    ]);
}

#[test]
fn rejects_invalid_header_entries() {
    check(&[
        (
            safetensors_raw(r#"{"t":5}"#, &[]),
            "tensor t: its header entry is a number",
        ),
        (
            safetensors_raw(&header(r#""F99""#, "[2]", "[0,8]"), &[0; 8]),
            r#"tensor t: its dtype "F99" is unknown"#,
        ),
        (
            safetensors_raw(&header("7", "[2]", "[0,8]"), &[0; 8]),
            "tensor t: its dtype 7 is unknown",
        ),
        (
            safetensors_raw(&header(r#""F32""#, "[-2]", "[0,8]"), &[0; 8]),
            "tensor t: its shape [-2] is not a list of counts",
        ),
        (
            safetensors_raw(&header(r#""F32""#, "[18446744073709551615,9]", "[0,8]"), &[0; 8]),
            "tensor t: its shape [18446744073709551615, 9] is too large",
        ),
        (
            safetensors_raw(&header(r#""F32""#, "[3]", "[0,8]"), &[0; 8]),
            "tensor t: its data_offsets 0..8 do not fit the 12 bytes of shape [3] in F32",
        ),
        (
            safetensors_raw(&header(r#""F32""#, "[2]", "[8,0]"), &[0; 8]),
            "tensor t: its data_offsets 8..0 do not fit",
        ),
        (
            safetensors_raw(&header(r#""F32""#, "[2]", "[0]"), &[0; 8]),
            "tensor t: its data_offsets [0] are not a start and an end",
        ),
        (
            safetensors_raw(
                &header(r#""F32""#, "[2]", "[18446744073709551600,18446744073709551608]"),
                &[0; 8],
            ),
            "tensor t: its data_offsets",
        ),
    ]);
}

#[test]
fn names_missing_and_misshapen_tensors() {
    let weights = safetensors(&[
        ("a", Dtype::F32, vec![2, 3], vec![0; 24]),
        ("f8", Dtype::F8_E4M3, vec![4], vec![0; 4]),
    ]);
    let checkpoint = open_weights(weights).unwrap();
    assert!(checkpoint.expect("a", &[2, 3]).is_ok());
    assert_eq!(
        message(checkpoint.expect("b", &[1])),
        "embedded model: tensor b is missing"
    );
    assert_eq!(
        message(checkpoint.expect("a", &[3, 2])),
        "embedded model: tensor a has shape [2, 3], but the configuration requires [3, 2]"
    );
    assert_eq!(
        message(checkpoint.expect("f8", &[4])),
        "embedded model.safetensors: tensor f8: weights stored as F8_E4M3 are not supported"
    );
}

#[test]
fn rejects_shards_that_contradict_the_index() {
    let one = safetensors(&[("a", Dtype::U8, vec![1], vec![0])]);
    let two = safetensors(&[("b", Dtype::U8, vec![1], vec![0])]);
    let index = |map: serde_json::Value| json!({ "weight_map": map }).to_string().into_bytes();
    let good = index(json!({"a": "1.safetensors", "b": "2.safetensors"}));
    let config = ("config.json", config(json!({})).into_bytes());
    let name = "model.safetensors.index.json";
    let first = ("1.safetensors", one.clone());
    let open_with = |index: Vec<u8>, second: Option<Vec<u8>>| {
        let mut files = vec![config.clone(), (name, index), first.clone()];
        files.extend(second.map(|bytes| ("2.safetensors", bytes)));
        open(&files)
    };
    let checkpoint = open_with(good.clone(), Some(two.clone())).unwrap();
    assert_eq!(checkpoint.tensors().count(), 2);
    let cases = [
        (
            open_with(good.clone(), None),
            "embedded 2.safetensors: is missing, but model.safetensors.index.json lists it",
        ),
        (
            open_with(good.clone(), Some(one.clone())),
            "embedded 2.safetensors: tensor a: is also in embedded 1.safetensors",
        ),
        (
            open_with(
                index(json!({"a": "1.safetensors", "b": "2.safetensors", "c": "2.safetensors"})),
                Some(two.clone()),
            ),
            "embedded 2.safetensors: tensor c: is missing, but model.safetensors.index.json",
        ),
        (
            open_with(index(json!({"a": "../1.safetensors"})), None),
            r#"places tensor a in "../1.safetensors", which is not a file in the same directory"#,
        ),
        (open_with(b"{}".to_vec(), None), "has no object named weight_map"),
        (open_with(b"{".to_vec(), None), "index.json: is not valid JSON"),
        (
            open(std::slice::from_ref(&config)),
            "embedded model: there is no .safetensors file",
        ),
    ];
    for (result, expected) in cases {
        let found = message(result);
        assert!(found.contains(expected), "{found:?} lacks {expected:?}");
    }
}

#[test]
fn rejects_mismatched_parts_of_quantised_layers() {
    let quantised = config(json!({"quantization": {"bits": 4, "group_size": 32}}));
    let weight = ("x.weight", Dtype::U32, vec![2, 8], vec![0; 64]);
    let scales = ("x.scales", Dtype::F16, vec![2, 2], vec![0; 8]);
    let biases = ("x.biases", Dtype::F16, vec![2, 2], vec![0; 8]);
    let open_with = |tensors: &[crate::support::Raw]| {
        open(&[
            ("config.json", quantised.clone().into_bytes()),
            ("model.safetensors", safetensors(tensors)),
        ])
    };
    let good = open_with(&[weight.clone(), scales.clone(), biases.clone()]).unwrap();
    assert_eq!(good.tensor("x.weight").unwrap().info.shape, [2, 64]);
    let cases = [
        (
            vec![weight.clone(), scales.clone()],
            "tensor x.scales: x.biases is missing",
        ),
        (
            vec![scales.clone(), biases.clone()],
            "tensor x.scales: x.weight is missing",
        ),
        (
            vec![weight.clone()],
            "tensor x.weight: is quantised, but has no scales beside it",
        ),
        (
            vec![
                ("x.weight", Dtype::F32, vec![2, 8], vec![0; 64]),
                scales.clone(),
                biases.clone(),
            ],
            "tensor x.weight: is quantised, but stored as F32, not U32",
        ),
        (
            vec![
                weight.clone(),
                ("x.scales", Dtype::F16, vec![2, 4], vec![0; 16]),
                ("x.biases", Dtype::F16, vec![2, 4], vec![0; 16]),
            ],
            "tensor x.scales: has shape [2, 4], but 4-bit weights of shape [2, 8] (in words) with \
             groups of 32 require [2, 2]",
        ),
        (
            vec![
                weight.clone(),
                scales.clone(),
                ("x.biases", Dtype::BF16, vec![2, 2], vec![0; 8]),
            ],
            "tensor x.biases: is BF16 of shape [2, 2], but the scales beside it are F16",
        ),
        (
            vec![
                weight.clone(),
                ("x.scales", Dtype::U8, vec![2, 2], vec![0; 4]),
                biases.clone(),
            ],
            "tensor x.scales: scales in U8 are not supported",
        ),
    ];
    for (tensors, expected) in cases {
        let found = message(open_with(&tensors));
        assert!(found.contains(expected), "{found:?} lacks {expected:?}");
    }
}
