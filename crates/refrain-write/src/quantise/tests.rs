//! Compares the quantisers with those of the `gguf` package, MLX and llama.cpp.

use refrain_formats::{Encoding, widen};
use refrain_quant::QuantFormat;
use safetensors::SafeTensors;

use super::{narrow, row};

/// The output of `references/quantisers.py`.
fn fixture() -> Vec<u8> {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/fixtures/quantised/conversions.safetensors"
    );
    std::fs::read(path).unwrap()
}

/// Returns the values of a tensor and its row length.
fn values(file: &SafeTensors<'_>, name: &str, encoding: Encoding) -> (Vec<f32>, usize) {
    let tensor = file.tensor(name).unwrap();
    let mut values = vec![0.0; tensor.shape().iter().product()];
    widen(encoding, tensor.data(), &mut values);
    (values, tensor.shape()[1])
}

#[test]
fn blocks_equal_those_of_the_gguf_package() {
    let bytes = fixture();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let (values, columns) = values(&file, "values", Encoding::F32);
    for (name, encoding) in [
        ("q8_0", Encoding::named("q8_0")),
        ("q4_0", Encoding::named("q4_0")),
        ("q5_0", Encoding::named("q5_0")),
        ("q5_1", Encoding::named("q5_1")),
    ] {
        let expected = file.tensor(name).unwrap();
        let row_bytes = expected.shape()[1];
        for (number, (values, expected)) in (values.chunks(columns).zip(expected.data().chunks(row_bytes))).enumerate()
        {
            let mut out = vec![0xaa; row_bytes];
            row(encoding, values, &mut out).unwrap();
            assert!(out == expected, "{name}, row {number}");
        }
    }
}

#[test]
fn groups_equal_those_of_mlx() {
    let bytes = fixture();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let (values, columns) = values(&file, "values", Encoding::F32);
    for (dtype, encoding) in [("f32", Encoding::F32), ("f16", Encoding::F16), ("bf16", Encoding::BF16)] {
        for bits in [4, 8] {
            let part = |part: &str| file.tensor(&format!("affine-{bits}-{dtype}.{part}")).unwrap();
            let rows = values.len() / columns;
            for (number, values) in values.chunks(columns).enumerate() {
                let mut stored = vec![0; columns * encoding.value_bytes().unwrap()];
                let mut rounded = vec![0.0; columns];
                narrow(encoding, values, &mut stored).unwrap();
                widen(encoding, &stored, &mut rounded);
                let expected = ["weight", "scales", "biases"].map(|name| {
                    let data = part(name).data();
                    data[data.len() / rows * number..][..data.len() / rows].to_vec()
                });
                let mut made = expected.clone().map(|part| vec![0xaa; part.len()]);
                let parts = made.each_mut().map(Vec::as_mut_slice);
                refrain_quant::quantise_affine(
                    QuantFormat::mlx(bits, 64),
                    encoding.to_scale_type().unwrap(),
                    &rounded,
                    parts,
                )
                .unwrap();
                assert!(made == expected, "{bits} bits, {dtype}, row {number}");
            }
        }
    }
}

#[test]
fn k_quant_errors_are_within_one_percent_of_llama_cpp() {
    let bytes = fixture();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let (values, columns) = values(&file, "normal", Encoding::F16);
    for (name, encoding) in [
        ("q4_k", Encoding::named("q4_k")),
        ("q5_k", Encoding::named("q5_k")),
        ("q6_k", Encoding::named("q6_k")),
    ] {
        let size = encoding.block_bytes().unwrap();
        let (mut squares, mut reference) = (0.0, 0.0);
        for values in values.chunks(columns) {
            let mut out = vec![0xaa; columns / 256 * size];
            row(encoding, values, &mut out).unwrap();
            let mut now = vec![0.0; columns];
            for (block, now) in out.chunks(size).zip(now.chunks_mut(256)) {
                encoding.quantised().unwrap().dequantise_block(block, now);
            }
            squares += values
                .iter()
                .zip(&now)
                .map(|(a, b)| f64::from(a - b).powi(2))
                .sum::<f64>();
            reference += values.iter().map(|a| f64::from(*a).powi(2)).sum::<f64>();
        }
        let theirs = f32::from_le_bytes(
            file.tensor(&format!("{name}.error"))
                .unwrap()
                .data()
                .try_into()
                .unwrap(),
        );
        let ours = (squares / reference).sqrt();
        println!("{name}: {ours:.5}, llama.cpp {theirs:.5}");
        assert!(ours <= 1.01 * f64::from(theirs), "{name}: {ours}, llama.cpp {theirs}");
    }
}

#[test]
fn mxfp4_blocks_equal_those_of_the_gguf_package() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/fixtures/quantised/mxfp4.safetensors"
    );
    let bytes = std::fs::read(path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let (values, columns) = values(&file, "original", Encoding::F32);
    let expected = file.tensor("blocks").unwrap();
    let row_bytes = expected.shape()[1];
    for (values, expected) in values.chunks(columns).zip(expected.data().chunks(row_bytes)) {
        let mut out = vec![0xaa; row_bytes];
        row(Encoding::named("mxfp4"), values, &mut out).unwrap();
        assert!(out == expected);
    }
}

#[test]
fn codebooks_have_smaller_errors_than_uniform_steps_on_normal_values() {
    let bytes = fixture();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let (values, columns) = values(&file, "normal", Encoding::F16);
    let error = |name: &str| {
        let encoding = Encoding::named(name);
        let record = encoding.quantised().unwrap();
        let block = record.block.unwrap();
        let (mut squares, mut out) = (0.0, vec![0xaa; columns / block.values * block.bytes]);
        for values in values.chunks(columns) {
            row(encoding, values, &mut out).unwrap();
            let mut now = vec![0.0; block.values];
            for (bytes, values) in out.chunks(block.bytes).zip(values.chunks(block.values)) {
                record.dequantise_block(bytes, &mut now);
                squares += values
                    .iter()
                    .zip(&now)
                    .map(|(a, b)| f64::from(a - b).powi(2))
                    .sum::<f64>();
            }
        }
        let reference: f64 = values.iter().map(|a| f64::from(*a).powi(2)).sum();
        (squares / reference).sqrt()
    };
    let errors = ["q4_0", "iq4_nl", "iq4_xs", "mxfp4"].map(error);
    println!("q4_0, iq4_nl, iq4_xs, mxfp4: {errors:?}");
    assert!(errors[1] < 0.9 * errors[0] && errors[2] < errors[0], "{errors:?}");
}

#[test]
fn edge_case_blocks_round_trip_within_their_step() {
    let rows = [
        vec![0.0; 256],
        vec![3.5; 256],
        vec![-3.5; 256],
        (0..256).map(|i| if i == 77 { 1000.0 } else { 0.0 }).collect(),
        (0..256).map(|i| i as f32 * 1e-7).collect(),
    ];
    for encoding in [
        Encoding::named("q3_k"),
        Encoding::named("q4_k"),
        Encoding::named("q5_k"),
        Encoding::named("q6_k"),
    ] {
        for values in &rows {
            let mut out = vec![0xaa; encoding.block_bytes().unwrap()];
            row(encoding, values, &mut out).unwrap();
            let mut now = vec![f32::NAN; 256];
            encoding.quantised().unwrap().dequantise_block(&out, &mut now);
            let largest = values.iter().fold(0.0f32, |a, b| a.max(b.abs()));
            // A block's scale may be below the smallest f16, 6e-8, times 63 and 15.
            let levels = if encoding == Encoding::named("q3_k") { 8.0 } else { 20.0 };
            let bound = largest / levels + 6e-5;
            assert!(
                values.iter().zip(&now).all(|(a, b)| (a - b).abs() <= bound),
                "{encoding}: {now:?}"
            );
        }
    }
}

#[test]
fn refuses_values_out_of_range() {
    for encoding in [
        Encoding::named("q8_0"),
        Encoding::named("q4_0"),
        Encoding::named("q6_k"),
        Encoding::named("q4_k"),
    ] {
        let mut out = vec![0; encoding.block_bytes().unwrap()];
        for bad in [f32::NAN, f32::INFINITY, 1e38] {
            let mut values = vec![0.0; encoding.block_values()];
            values[5] = bad;
            assert!(row(encoding, &values, &mut out).is_none(), "{encoding} {bad}");
        }
    }
    assert!(row(Encoding::F16, &[1e6], &mut [0; 2]).is_none());
    assert!(row(Encoding::BF16, &[1e6], &mut [0; 2]).is_some());
}
