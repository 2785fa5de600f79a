use refrain_kernels::{DType, OperandSpec, Traits, Unsupported, Values, rms_norm, rope};
use refrain_testing::sample;

use crate::common::Random;
use crate::support::{FLOATS, all_traits, assert_close, device_traits, floats, outcome, padded, stored, swapped};

fn check_norm(traits: &Traits, x: &OperandSpec, weight: Option<&OperandSpec>, out: &OperandSpec) {
    let columns = x.layout.shape[x.layout.rank() - 1];
    let what = format!("{} {} → {} {}", x.dtype, x.layout, out.dtype, out.layout);
    let mut random = Random::new(3);
    let values = stored(x, &floats(&mut random, x.layout.count()));
    let mut inputs = vec![(x, Values::F32(values.clone()))];
    let weights = weight.map(|w| stored(w, &floats(&mut random, columns)));
    if let (Some(weight), Some(weights)) = (weight, &weights) {
        inputs.push((weight, Values::F32(weights.clone())));
    }
    let call = rms_norm::call(traits, x, weight, out, 1e-3).unwrap_or_else(|error| panic!("{what}: {error}"));
    let expected = rms_norm::reference(&values, weights.as_deref(), 1e-3, columns);
    let actual = outcome(&[call], &inputs, out);
    assert_close(&actual, expected, out.dtype, &what);
}

#[test]
fn norms_support_short_and_long_rows() {
    if !refrain_testing::drawn(6) {
        return;
    }
    for traits in sample(all_traits(), 3) {
        for (i, shape) in [[3, 5, 1], [2, 7, 64], [1, 300, 33], [1, 2, 2051]]
            .into_iter()
            .enumerate()
        {
            for (j, dtype) in FLOATS.into_iter().enumerate() {
                let out = OperandSpec::contiguous(FLOATS[(i + j) % 3], &shape);
                let weight = OperandSpec::contiguous(FLOATS[(i + 2 * j) % 3], &shape[2..]);
                let weight = (j != 1).then_some(&weight);
                check_norm(&traits, &OperandSpec::contiguous(dtype, &shape), weight, &out);
            }
        }
    }
}

#[test]
fn norms_support_strided_rows() {
    for traits in sample(all_traits(), 3) {
        let shape = [2, 3, 4, 20];
        let x = swapped(DType::F16, &shape, 0, 2);
        check_norm(&traits, &x, None, &padded(DType::F16, &shape));
        let weight = OperandSpec::contiguous(DType::F32, &[20]);
        check_norm(
            &traits,
            &padded(DType::F32, &shape),
            Some(&weight),
            &swapped(DType::F32, &shape, 1, 2),
        );
    }
}

#[test]
fn norms_need_a_contiguous_last_dimension() {
    let across = swapped(DType::F32, &[4, 6], 0, 1);
    let out = OperandSpec::contiguous(DType::F32, &[4, 6]);
    let error = rms_norm::call(&Traits::minimal(), &across, None, &out, 0.0);
    let expected = Unsupported::NeedsContiguous {
        op: "rms_norm",
        operand: 0,
    };
    assert_eq!(error.err(), Some(expected));
}

fn check_rotation(traits: &Traits, x: &OperandSpec, out: &OperandSpec, positions: &[i32], params: &rope::RopeParams) {
    let what = format!("{} {} → {} {} {params:?}", x.dtype, x.layout, out.dtype, out.layout);
    let values = stored(x, &floats(&mut Random::new(8), x.layout.count()));
    let pairs = params.dims / 2;
    let frequencies: Vec<f32> = (0..pairs).map(|i| 10_000f32.powf(-(i as f32) / pairs as f32)).collect();
    let position = OperandSpec::contiguous(DType::I32, &[positions.len()]);
    let frequency = OperandSpec::contiguous(DType::F32, &[pairs]);
    let call =
        rope::call(traits, x, &position, &frequency, out, params).unwrap_or_else(|error| panic!("{what}: {error}"));
    let inputs = [
        (x, Values::F32(values.clone())),
        (&position, Values::I32(positions.to_vec())),
        (&frequency, Values::F32(frequencies.clone())),
    ];
    let expected = rope::reference(&values, positions, &frequencies, x.layout.shape[2], params);
    let actual = outcome(&[call], &inputs, out);
    assert_close(&actual, expected, out.dtype, &what);
}

#[test]
fn rotations_support_small_and_huge_positions() {
    if !refrain_testing::drawn(12) {
        return;
    }
    let positions = [0, 1, 77, 32_767, 1_048_575, 2_000_000_011, -3];
    for traits in sample(all_traits(), 3) {
        for interleaved in [false, true] {
            for (i, dims) in [32, 24, 2, 0].into_iter().enumerate() {
                let params = rope::RopeParams {
                    dims,
                    interleaved,
                    scale: 1.25,
                };
                let x = OperandSpec::contiguous(FLOATS[i % 3], &[7, 3, 32]);
                let out = OperandSpec::contiguous(FLOATS[(i + 1) % 3], &[7, 3, 32]);
                check_rotation(&traits, &x, &out, &positions, &params);
            }
        }
    }
}

#[test]
fn rotations_support_strided_heads() {
    let traits = device_traits();
    let params = rope::RopeParams {
        dims: 6,
        interleaved: false,
        scale: 1.0,
    };
    for (x, out) in [
        (padded(DType::F32, &[4, 2, 10]), swapped(DType::F32, &[4, 2, 10], 0, 1)),
        (swapped(DType::F16, &[4, 2, 10], 1, 2), padded(DType::F16, &[4, 2, 10])),
    ] {
        check_rotation(&traits, &x, &out, &[5, 6, 7, 8], &params);
    }
}

#[test]
fn rejects_odd_rotation_dims() {
    let x = OperandSpec::contiguous(DType::F32, &[1, 1, 8]);
    let positions = OperandSpec::contiguous(DType::I32, &[1]);
    for (dims, frequencies) in [(3, 1), (10, 5), (4, 4)] {
        let params = rope::RopeParams {
            dims,
            interleaved: false,
            scale: 1.0,
        };
        let frequencies = OperandSpec::contiguous(DType::F32, &[frequencies]);
        let call = rope::call(&Traits::minimal(), &x, &positions, &frequencies, &x, &params);
        assert!(matches!(call, Err(Unsupported::Size { .. })), "{dims}");
    }
}
