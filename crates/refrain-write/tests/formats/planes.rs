//! Quants, scales and data in the kernels' layout.

use half::f16;
use proptest::prelude::*;
use refrain_formats::{Encoding, Tensor};
use refrain_models::Checkpoint;
use safetensors::SafeTensors;
use safetensors::tensor::Dtype;
use serde_json::json;

use crate::support::{GgufBuilder, config, fixtures, message, open, safetensors};

/// GGUF's type numbers, by fixture name.
const KINDS: [(&str, u32); 13] = [
    ("q4_0", 2),
    ("q4_1", 3),
    ("q5_0", 6),
    ("q5_1", 7),
    ("q8_0", 8),
    ("q2_k", 10),
    ("q3_k", 11),
    ("q4_k", 12),
    ("q5_k", 13),
    ("q6_k", 14),
    ("iq4_nl", 20),
    ("iq4_xs", 23),
    ("mxfp4", 39),
];
const F32: u32 = 0;
const Q4_0: u32 = 2;
const Q8_0: u32 = 8;

/// The values of the indices of IQ4_NL and IQ4_XS.
const IQ4: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// Reads a plane in pieces of `step` bytes.
fn read(total: u64, step: usize, write: impl Fn(u64, &mut [u8]) -> Result<(), refrain_formats::Error>) -> Vec<u8> {
    let mut plane = vec![0xaa; total as usize];
    for (index, piece) in plane.chunks_mut(step).enumerate() {
        write((index * step) as u64, piece).unwrap();
    }
    plane
}

fn float16(bytes: &[u8]) -> f32 {
    f16::from_le_bytes(bytes.try_into().unwrap()).to_f32()
}

/// Returns `bits` bits from bit `at` of a plane on, which may span two words.
fn quant(plane: &[u8], at: usize, bits: usize) -> u32 {
    (0..bits)
        .map(|bit| u32::from(plane[(at + bit) / 8] >> ((at + bit) % 8) & 1) << bit)
        .sum()
}

/// Dequantises from the planes alone, as a kernel does.
fn from_planes(tensor: &Tensor<'_>, step: usize) -> Vec<f32> {
    let quants = read(tensor.quants_bytes(), step, |at, out| tensor.write_quants(at, out));
    let scales = read(tensor.scales_bytes(), step, |at, out| tensor.write_scales(at, out));
    let biases = read(tensor.biases_bytes(), step, |at, out| tensor.write_biases(at, out));
    let float = |plane: &[u8], index: usize| match tensor.scale_encoding().unwrap() {
        Encoding::F32 => f32::from_le_bytes(plane[4 * index..][..4].try_into().unwrap()),
        Encoding::BF16 => half::bf16::from_le_bytes(plane[2 * index..][..2].try_into().unwrap()).to_f32(),
        _ => f16::from_le_bytes(plane[2 * index..][..2].try_into().unwrap()).to_f32(),
    };
    let bits = tensor.info.encoding.quant_bits().unwrap();
    let group = tensor.info.encoding.group().unwrap();
    (0..tensor.info.values())
        .map(|k| {
            let q = quant(&quants, k * bits, bits);
            let middle = (1 << (bits - 1)) as f32;
            if tensor.scale_encoding() == Some(Encoding::U8) {
                // E8M0, times two because of E2M1's scaling.
                let exponent = i32::from(scales[k / group]) - 128;
                let numbers = [0, 1, 2, 3, 4, 6, 8, 12];
                let number = f64::from(numbers[q as usize % 8]) * if q < 8 { 1.0 } else { -1.0 };
                return (number * 2f64.powi(exponent)) as f32 + 0.0;
            }
            let label = tensor.info.encoding.to_string();
            if label.starts_with("IQ4") {
                let factor = |record: &[u8]| float16(&record[..2]) * f32::from(record[4 + k % 256 / group] as i8);
                let scale = match tensor.scale_encoding() {
                    Some(Encoding::U32) => factor(&scales[k / 256 * 12..][..12]),
                    _ => float(&scales, k / group),
                };
                return scale * f32::from(IQ4[q as usize]);
            }
            if tensor.scale_encoding() == Some(Encoding::U32) {
                let record = &scales[k / 256 * 20..][..20];
                let (d, m) = (float16(&record[..2]), float16(&record[2..4]));
                let (bytes, g) = (&record[4..], k % 256 / group);
                return match &tensor.info.encoding.to_string()[..] {
                    "Q2_K" => d * f32::from(bytes[g] & 15) * q as f32 - m * f32::from(bytes[g] >> 4),
                    "Q3_K" | "Q6_K" => d * f32::from(bytes[g] as i8) * (q as f32 - middle),
                    _ => d * f32::from(bytes[g]) * q as f32 - m * f32::from(bytes[8 + g]),
                };
            }
            let scale = float(&scales, k / group);
            match &tensor.info.encoding.to_string()[..] {
                "Q4_0" | "Q5_0" => scale * (q as f32 - middle),
                "Q8_0" => scale * f32::from(q as u8 as i8),
                _ => scale * q as f32 + float(&biases, k / group),
            }
        })
        .collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Returns the fixture's expected values, and a checkpoint with its blocks or planes as one tensor `w`.
fn quantised_fixture(name: &str) -> (Checkpoint, Vec<u32>, &'static str) {
    let bytes = std::fs::read(fixtures().join("quantised").join(format!("{name}.safetensors"))).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let get = |part: &str| {
        let view = file.tensor(part).unwrap();
        (view.dtype(), view.shape().to_vec(), view.data().to_vec())
    };
    let (_, shape, values) = get("values");
    let expected = values
        .chunks_exact(4)
        .map(|value| u32::from_le_bytes(value.try_into().unwrap()))
        .collect();
    if let Some((_, kind)) = KINDS.into_iter().find(|(kind, _)| *kind == name) {
        let shape = [shape[0] as u64, shape[1] as u64];
        let gguf = GgufBuilder::new("llama").tensor("w", &shape, kind, get("blocks").2);
        return (gguf.open().unwrap(), expected, "w");
    }
    let mut parts = name.split('-').skip(1);
    let bits: u8 = parts.next().unwrap().parse().unwrap();
    let group: u16 = parts.next().unwrap()["group".len()..].parse().unwrap();
    let part = |name, key| {
        let (dtype, shape, data) = get(key);
        (name, dtype, shape, data)
    };
    let weights = safetensors(&[
        part("w.weight", "weight"),
        part("w.scales", "scales"),
        part("w.biases", "biases"),
    ]);
    let quantisation = json!({"quantization": {"bits": bits, "group_size": group}});
    let checkpoint = open(&[
        ("config.json", config(quantisation).into_bytes()),
        ("model.safetensors", weights),
    ]);
    (checkpoint.unwrap(), expected, "w.weight")
}

#[test]
fn dequantised_values_and_planes_match_gguf_and_mlx_bit_for_bit() {
    let blocks = KINDS.map(|(name, _)| name);
    let affine = [
        "affine-2-group32-f16",
        "affine-2-group64-bf16",
        "affine-2-group128-f32",
        "affine-3-group32-f16",
        "affine-3-group64-bf16",
        "affine-3-group128-f32",
        "affine-5-group32-f16",
        "affine-5-group64-bf16",
        "affine-5-group128-f32",
        "affine-6-group32-f16",
        "affine-6-group64-bf16",
        "affine-6-group128-f32",
        "affine-4-group32-f16",
        "affine-4-group64-f16",
        "affine-4-group64-bf16",
        "affine-4-group128-f32",
        "affine-8-group32-f16",
        "affine-8-group64-f16",
        "affine-8-group64-bf16",
        "affine-8-group128-f32",
    ];
    for name in blocks.into_iter().chain(affine) {
        let (checkpoint, expected, tensor) = quantised_fixture(name);
        let tensor = checkpoint.tensor(tensor).unwrap();
        assert_eq!(bits(&tensor.dequantise().unwrap()), expected, "{name}");
        for step in [4, 12, 1 << 20] {
            assert_eq!(bits(&from_planes(&tensor, step)), expected, "{name} by {step} bytes");
        }
    }
}

/// Orders rows of a Llama query weight as GGUF does: the halves of each head alternate.
fn interleave<T: Clone>(rows: &[T], head_dim: usize) -> Vec<T> {
    rows.chunks(head_dim)
        .flat_map(|head| {
            let (first, second) = head.split_at(head_dim / 2);
            first.iter().zip(second).flat_map(|(a, b)| [a.clone(), b.clone()])
        })
        .collect()
}

#[test]
fn restores_the_row_order_of_llama_queries_in_every_encoding() {
    let rows: Vec<Vec<f32>> = (0..64)
        .map(|row| (0..64).map(|column| (row * 64 + column) as f32).collect())
        .collect();
    let stored: Vec<u8> = interleave(&rows, 32)
        .concat()
        .iter()
        .flat_map(|v| v.to_le_bytes())
        .collect();
    let block = |row: usize| -> Vec<u8> {
        let scale = f16::from_f32(row as f32 + 1.0).to_le_bytes();
        let quants = (0..32).map(|k| (row + k) as u8);
        let block: Vec<u8> = scale.into_iter().chain(quants).collect();
        [block.clone(), block].concat()
    };
    let blocks: Vec<Vec<u8>> = (0..64).map(block).collect();
    let bias: Vec<f32> = (0..64).map(|row| row as f32).collect();
    let stored_bias: Vec<u8> = interleave(&bias, 32).iter().flat_map(|v| v.to_le_bytes()).collect();
    let open = |architecture| {
        GgufBuilder::new(architecture)
            .tensor("blk.0.attn_q.weight", &[64, 64], F32, stored.clone())
            .tensor("blk.0.attn_q.bias", &[64], F32, stored_bias.clone())
            .tensor("blk.0.attn_k.weight", &[64, 64], Q8_0, interleave(&blocks, 32).concat())
            .tensor("blk.0.attn_v.weight", &[64, 64], F32, stored.clone())
            .open()
            .unwrap()
    };
    let checkpoint = open("llama");
    let tensor = |name: &str| {
        let name = format!("model.layers.0.self_attn.{name}");
        checkpoint.tensor(&name).unwrap()
    };
    assert_eq!(tensor("q_proj.weight").dequantise().unwrap(), rows.concat());
    assert_eq!(tensor("q_proj.bias").dequantise().unwrap(), bias);
    let keys = tensor("k_proj.weight");
    let expected: Vec<f32> = (0..64i32)
        .flat_map(|row| (0..64).map(move |k| (row + 1) as f32 * (row + k % 32) as f32))
        .collect();
    assert_eq!(keys.dequantise().unwrap(), expected);
    assert_eq!(from_planes(&keys, 20), expected);
    assert_eq!(
        tensor("v_proj.weight").dequantise().unwrap(),
        interleave(&rows, 32).concat()
    );
    let other = open("qwen3");
    let other = other.tensor("model.layers.0.self_attn.q_proj.weight").unwrap();
    assert_eq!(other.dequantise().unwrap(), interleave(&rows, 32).concat());
}

#[test]
fn names_scales_that_are_not_numbers() {
    let mut blocks = vec![0u8; 4 * 2 * 18];
    blocks[18 * 5..][..2].copy_from_slice(&f16::NAN.to_le_bytes());
    let checkpoint = GgufBuilder::new("llama")
        .tensor("w", &[4, 64], Q4_0, blocks)
        .open()
        .unwrap();
    let tensor = checkpoint.tensor("w").unwrap();
    let expected = "embedded model: tensor w: the scale of row 2, group 1 is NaN: the file is corrupt";
    let mut scales = [0; 16];
    for found in [
        message(tensor.write_scales(0, &mut scales)),
        message(tensor.write_scales(8, &mut scales[..4])),
        message(tensor.dequantise()),
    ] {
        assert!(found.starts_with(expected), "{found}");
    }
    assert!(tensor.write_scales(0, &mut scales[..8]).is_ok());

    let biases: Vec<u8> = [0.0f32, f32::INFINITY].iter().flat_map(|v| v.to_le_bytes()).collect();
    let weights = safetensors(&[
        ("w.weight", Dtype::U32, vec![2, 4], vec![0; 32]),
        ("w.scales", Dtype::F32, vec![2, 1], vec![0; 8]),
        ("w.biases", Dtype::F32, vec![2, 1], biases),
    ]);
    let quantisation = json!({"quantization": {"bits": 4, "group_size": 32}});
    let checkpoint = open(&[
        ("config.json", config(quantisation).into_bytes()),
        ("model.safetensors", weights),
    ]);
    let checkpoint = checkpoint.unwrap();
    let found = message(checkpoint.tensor("w.weight").unwrap().dequantise());
    assert!(
        found.contains("tensor w.weight: the bias of row 1, group 0 is inf"),
        "{found}"
    );
}

#[test]
fn rejects_missing_planes_and_bytes_out_of_range() {
    let checkpoint = GgufBuilder::new("llama")
        .tensor("q", &[1, 32], Q8_0, vec![0; 34])
        .tensor("f", &[2], F32, vec![0; 8])
        .open()
        .unwrap();
    let (q, f) = (checkpoint.tensor("q").unwrap(), checkpoint.tensor("f").unwrap());
    let mut out = [0; 64];
    let cases = [
        (
            f.write_quants(0, &mut out[..0]),
            "tensor f: is not quantised: it has no quants",
        ),
        (
            f.write_scales(0, &mut out[..0]),
            "tensor f: is not quantised: it has no scales",
        ),
        (
            q.write_biases(0, &mut out[..0]),
            "tensor q: has no biases: only MLX's affine formats, Q4_1 and Q5_1 have them",
        ),
        (
            q.write_data(0, &mut out[..4]),
            "tensor q: is quantised: it has no plain data",
        ),
        (
            q.write_quants(0, &mut out),
            "64 bytes from offset 0 exceed its quants of 32 bytes",
        ),
        (f.write_data(u64::MAX, &mut out), "exceed its data of 8 bytes"),
    ];
    for (result, expected) in cases {
        let found = message(result);
        assert!(found.contains(expected), "{found:?} lacks {expected:?}");
    }
}

/// Returns the parts of the MXFP4 fixture by MLX: words, exponents, and the values that MLX reads.
fn mxfp4_by_mlx() -> (Vec<usize>, [Vec<u8>; 2], Vec<f32>) {
    let bytes = std::fs::read(fixtures().join("quantised/mxfp4-mlx.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let get = |part: &str| file.tensor(part).unwrap().data().to_vec();
    let values = get("values");
    let values = values
        .chunks_exact(4)
        .map(|v| f32::from_le_bytes(v.try_into().unwrap()));
    let shape = file.tensor("scales").unwrap().shape().to_vec();
    (shape, [get("weight"), get("scales")], values.collect())
}

#[test]
fn reads_mxfp4_of_mlx_and_gpt_oss() {
    let (shape, [words, exponents], expected) = mxfp4_by_mlx();
    let [rows, groups] = shape[..] else { panic!("a matrix") };
    let mode = json!({"quantization": {"bits": 4, "group_size": 32, "mode": "mxfp4"}});
    let of_mlx = safetensors(&[
        ("w.weight", Dtype::U32, vec![rows, 4 * groups], words.clone()),
        ("w.scales", Dtype::U8, vec![rows, groups], exponents.clone()),
    ]);
    let method = json!({"quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}});
    let of_gpt_oss = safetensors(&[
        ("w_blocks", Dtype::U8, vec![rows, groups, 16], words),
        ("w_scales", Dtype::U8, vec![rows, groups], exponents),
    ]);
    for (settings, weights, name) in [(mode, of_mlx, "w.weight"), (method, of_gpt_oss, "w")] {
        let files = [
            ("config.json", config(settings).into_bytes()),
            ("model.safetensors", weights),
        ];
        let checkpoint = open(&files).unwrap();
        let tensor = checkpoint.tensor(name).unwrap();
        assert_eq!(tensor.info.shape, [rows, 32 * groups]);
        assert_eq!(tensor.info.encoding.to_string(), "MXFP4");
        assert_eq!(tensor.dequantise().unwrap(), expected, "{name}");
        assert_eq!(from_planes(&tensor, 7), expected, "{name}");
    }
}

#[test]
fn rejects_inconsistent_mxfp4() {
    let (shape, [words, mut exponents], _) = mxfp4_by_mlx();
    let [rows, groups] = shape[..] else { panic!("a matrix") };
    let method = json!({"quantization_config": {"quant_method": "mxfp4"}});
    let files = |blocks: Vec<usize>, exponents: Vec<u8>| {
        let weights = safetensors(&[
            ("w_blocks", Dtype::U8, blocks, words.clone()),
            ("w_scales", Dtype::U8, vec![rows, groups], exponents),
        ]);
        open(&[
            ("config.json", config(method.clone()).into_bytes()),
            ("model.safetensors", weights),
        ])
    };
    let odd = message(files(vec![rows, 16 * groups], exponents.clone()));
    assert!(
        odd.contains("w_blocks") && odd.contains("the scales beside it"),
        "{odd}"
    );
    exponents[groups + 1] = 255;
    let checkpoint = files(vec![rows, groups, 16], exponents).unwrap();
    let tensor = checkpoint.tensor("w").unwrap();
    let found = message(tensor.write_scales(0, &mut vec![0; rows * groups]));
    assert!(found.contains("the scale of row 1, group 1 is NaN"), "{found}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn ranges_of_a_plane_equal_the_whole(
        rows in 1usize..5,
        blocks_per_row in 1usize..5,
        kind in prop_oneof![Just(Q4_0), Just(Q8_0)],
        seed in any::<u64>(),
        from in 0usize..600,
        length in 0usize..600,
    ) {
        let block = if kind == Q4_0 { 18 } else { 34 };
        let mut state = seed | 1;
        let bytes: Vec<u8> = (0..rows * blocks_per_row * block)
            .map(|index| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                // The upper byte of each scale is kept below that of NaN and infinity.
                if index % block == 1 { (state >> 33) as u8 & 0x3b } else { (state >> 33) as u8 }
            })
            .collect();
        let shape = [rows as u64, blocks_per_row as u64 * 32];
        let checkpoint = GgufBuilder::new("qwen3").tensor("w", &shape, kind, bytes).open().unwrap();
        let tensor = checkpoint.tensor("w").unwrap();
        let total = tensor.quants_bytes() as usize;
        let mut whole = vec![0; total];
        tensor.write_quants(0, &mut whole).unwrap();
        let from = from.min(total) / 4 * 4;
        let mut part = vec![0; length.min(total - from) / 4 * 4];
        tensor.write_quants(from as u64, &mut part).unwrap();
        prop_assert_eq!(&part[..], &whole[from..from + part.len()]);
        let values = tensor.dequantise().unwrap();
        prop_assert_eq!(bits(&from_planes(&tensor, 8)), bits(&values));
    }
}
