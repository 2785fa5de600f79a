//! Functions against results of MLX 0.32.4 on its CPU.

mod common;

use common::{counted, floats, integers, read};
use refrain_mlx::{DType, Number, Operand, Value, fast, ops, random};

/// Fails unless the elements are within rounding.
fn near(value: &Value, expected: &[f32]) {
    let found = read(value);
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for (found, expected) in found.iter().zip(expected) {
        let bound = 2e-6 * expected.abs().max(1e-3);
        assert!((found - expected).abs() <= bound, "{found} instead of {expected}");
    }
}

#[test]
fn integer_division_rounds_down() {
    let a = integers(&[7, -7, 7, -7, 2_000_000_001, i32::MAX], &[6]);
    let b = integers(&[2, 2, -2, -2, 3, 1], &[6]);
    let (a, b) = (Operand::from(a), Operand::from(b));
    let quotients: Vec<i32> = ops::floor_divide(&a, &b).expect("divides").to_vec().expect("i32");
    assert_eq!(quotients, [3, -4, -4, 3, 666_666_667, i32::MAX]);
    let rests: Vec<i32> = ops::remainder(&a, &b).expect("divides").to_vec().expect("i32");
    assert_eq!(rests, [1, 1, -1, -1, 0, 0]);
    let powers = ops::power(&counted(&[4]).into(), &Operand::from(5i64)).expect("powers");
    assert_eq!(
        (powers.dtype(), read(&powers)),
        (DType::I32, vec![0.0, 1.0, 32.0, 243.0])
    );
}

#[test]
fn functions_without_a_kernel_are_accurate() {
    let x = floats(&[-0.9, -0.3, 1e-6, 0.5, 0.99], &[5]);
    let exact = |function: fn(f64) -> f64| -> Vec<f32> {
        [-0.9f32, -0.3, 1e-6, 0.5, 0.99]
            .map(|x| function(f64::from(x)) as f32)
            .to_vec()
    };
    type Function = fn(&Operand) -> refrain_mlx::Result<Value>;
    type Reference = fn(f64) -> f64;
    let functions: [(Function, Reference); 11] = [
        (ops::expm1, f64::exp_m1),
        (ops::log1p, f64::ln_1p),
        (ops::sinh, f64::sinh),
        (ops::cosh, f64::cosh),
        (ops::tan, f64::tan),
        (ops::arcsin, f64::asin),
        (ops::arccos, f64::acos),
        (ops::arctan, f64::atan),
        (ops::arcsinh, f64::asinh),
        (ops::arctanh, f64::atanh),
        (ops::square, |x| x * x),
    ];
    for (function, reference) in functions {
        near(&function(&(&x).into()).expect("computes"), &exact(reference));
    }
    let inverse = ops::erfinv(&ops::erf(&(&x).into()).expect("erf").into()).expect("erfinv");
    for (found, expected) in read(&inverse).iter().zip(read(&x)) {
        assert!((found - expected).abs() < 3e-6, "{found} instead of {expected}");
    }
}

#[test]
fn angles_of_signed_zeros_and_infinities_are_those_of_c() {
    const POINTS: [f32; 9] = [
        0.0,
        -0.0,
        f32::INFINITY,
        f32::NEG_INFINITY,
        1.0,
        -1.0,
        3e-20,
        -2e20,
        f32::NAN,
    ];
    let pairs: Vec<[f32; 2]> = POINTS.iter().flat_map(|&y| POINTS.map(|x| [y, x])).collect();
    let side = |n: usize| floats(&pairs.iter().map(|pair| pair[n]).collect::<Vec<_>>(), &[81]);
    let angles = ops::arctan2(&side(0).into(), &side(1).into()).expect("computes");
    for (found, [y, x]) in read(&angles).into_iter().zip(pairs) {
        let expected = y.atan2(x);
        let is_same = found.is_nan() && expected.is_nan()
            || found.is_sign_negative() == expected.is_sign_negative() && (found - expected).abs() < 1e-6;
        assert!(is_same, "({y}, {x}): {found} instead of {expected}");
    }
}

#[test]
fn floats_of_different_integers_are_those_of_each() {
    let a = Operand::from(Value::from_slice(&[4_000_000_000u32, 3], &[2]).expect("it fits"));
    let b = Operand::from(integers(&[2, -7], &[2]));
    let quotients = |a, b| ops::divide(a, b).expect("divides");
    near(&quotients(&a, &b), &[2e9, -3.0 / 7.0]);
    near(&quotients(&b, &a), &[5e-10, -7.0 / 3.0]);
    near(
        &ops::arctan2(&a, &b).expect("computes"),
        &[std::f32::consts::FRAC_PI_2, 3f32.atan2(-7.0)],
    );
    near(&ops::logaddexp(&a, &b).expect("computes"), &[4e9, 3.000_045_4]);
    let ones = Operand::from(Value::from_slice(&[u32::MAX], &[1]).expect("it fits"));
    let close = ops::isclose(&ones, &integers(&[-1], &[1]).into(), 1e-5, 1e-8, false);
    assert_eq!(read(&close.expect("compares")), [0.0]);
}

#[test]
fn along_an_axis() {
    let a = counted(&[2, 3]);
    let indices = integers(&[2, 0, -1, 1], &[2, 2]);
    let taken = ops::take_along_axis(&a, &indices, Some(1)).expect("takes");
    assert_eq!(read(&taken), [2.0, 0.0, 5.0, 4.0]);
    let put =
        ops::put_along_axis(&a, &indices, &Value::scalar(Number::Int(9), None).expect("9"), Some(-1)).expect("puts");
    assert_eq!(read(&put), [9.0, 1.0, 9.0, 3.0, 9.0, 9.0]);
    let first = ops::take_along_axis(&a, &integers(&[1, 0, 1], &[1, 3]), Some(0)).expect("takes");
    assert_eq!(read(&first), [3.0, 1.0, 5.0]);
}

#[test]
fn sorting_and_scans() {
    let a = floats(&[3.0, 1.0, 2.0, 1.0, f32::NAN, -1.0], &[2, 3]);
    let order = ops::argsort(&a, Some(-1)).expect("sorts");
    assert_eq!(
        (order.dtype(), read(&order)),
        (DType::U32, vec![1.0, 2.0, 0.0, 2.0, 0.0, 1.0])
    );
    let a = floats(
        &[f32::NAN, f32::NAN, f32::INFINITY, f32::MAX, f32::INFINITY, -0.0, 0.0],
        &[7],
    );
    for dtype in [DType::F32, DType::BF16, DType::F16] {
        let a = a.cast(dtype).expect("casts");
        let order = read(&ops::argsort(&a, Some(0)).expect("sorts"));
        // The largest float32 is infinite in half precision.
        let infinite = if dtype == DType::F32 {
            [3.0, 2.0, 4.0]
        } else {
            [2.0, 3.0, 4.0]
        };
        assert_eq!(order, [&[5.0, 6.0], &infinite[..], &[0.0, 1.0]].concat(), "{dtype}");
    }
    let scan = |reverse, inclusive| {
        let x = counted(&[4]);
        read(&ops::cumsum(&x, Some(0), reverse, inclusive).expect("sums"))
    };
    assert_eq!(scan(false, true), [0.0, 1.0, 3.0, 6.0]);
    assert_eq!(scan(false, false), [0.0, 0.0, 1.0, 3.0]);
    assert_eq!(scan(true, true), [6.0, 6.0, 5.0, 3.0]);
    assert_eq!(scan(true, false), [6.0, 5.0, 3.0, 0.0]);
    let found = ops::searchsorted(
        &floats(&[1.0, 2.0, 2.0, 4.0], &[4]),
        &floats(&[2.0, 0.0], &[2]).into(),
        false,
    );
    assert_eq!(read(&found.expect("finds")), [1.0, 0.0]);
}

#[test]
fn quantised_values_survive_packing() {
    let words = [
        (2, [3413519832u32, 3716904685, 1658633074, 3073236151]),
        (3, [2501094504, 3472533111, 4012517208, 2979919180]),
    ];
    for bits in [2, 3, 4, 5, 6, 8] {
        let w: Vec<f32> = (0..2 * 64).map(|n| ((n * 37) % 64) as f32 / 16.0 - 2.0).collect();
        let w = floats(&w, &[2, 64]);
        let planes = ops::quantize(&w, Some(32), Some(bits), "affine").expect("quantises");
        if let Some((_, expected)) = words.iter().find(|(known, _)| *known == bits) {
            let found: Vec<u32> = planes[0].to_vec().expect("u32");
            assert_eq!(found[..4], *expected, "{bits} bits");
        }
        assert_eq!(planes[0].shape(), [2, 2 * bits as usize]);
        let back = ops::dequantize(
            &planes[0],
            &planes[1],
            Some(&planes[2]),
            Some(32),
            Some(bits),
            "affine",
            None,
        );
        let step = 4.0 / ((1 << bits) - 1) as f32;
        for (found, expected) in read(&back.expect("dequantises")).iter().zip(read(&w)) {
            assert!(
                (found - expected).abs() <= 1.1 * step,
                "{bits} bits: {found} instead of {expected}"
            );
        }
        let x = floats(&[0.25; 64], &[1, 64]);
        let fused = ops::quantized_matmul(
            &x,
            &planes[0],
            &planes[1],
            Some(&planes[2]),
            true,
            Some(32),
            Some(bits),
            "affine",
        );
        let back = ops::dequantize(
            &planes[0],
            &planes[1],
            Some(&planes[2]),
            Some(32),
            Some(bits),
            "affine",
            None,
        );
        let composed = ops::matmul(
            &x,
            &ops::transpose(&back.expect("dequantises"), None).expect("transposes"),
        );
        let (fused, composed) = (read(&fused.expect("multiplies")), read(&composed.expect("multiplies")));
        for (fused, composed) in fused.iter().zip(&composed) {
            assert!((fused - composed).abs() < 1e-4, "{bits} bits: {fused} and {composed}");
        }
    }
}

#[test]
fn convolutions_are_sums_over_the_kernel() {
    let x = floats(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], &[1, 4, 2]);
    let w = floats(&[1.0, 10.0, 100.0, 1000.0], &[2, 2, 1]);
    let depthwise = ops::conv1d(&x, &w, 1, 0, 1, 2).expect("convolves");
    assert_eq!(
        (depthwise.shape(), read(&depthwise)),
        (&[1, 3, 2][..], vec![31.0, 4200.0, 53.0, 6400.0, 75.0, 8600.0])
    );
    let w = floats(&[1.0, 10.0, 100.0, 1000.0], &[1, 2, 2]);
    let full = ops::conv1d(&x, &w, 2, 1, 1, 1).expect("convolves");
    assert_eq!(
        (full.shape(), read(&full)),
        (&[1, 3, 1][..], vec![2100.0, 6543.0, 87.0])
    );
}

#[test]
fn random_numbers_are_those_of_mlx() {
    let key = random::key(0).expect("a key");
    let halves: Vec<u32> = random::split(&key, 2).expect("splits").to_vec().expect("u32");
    assert_eq!(halves, [4146024105, 967050713, 2718843009, 1272950319]);
    let third = random::split(&random::key((1 << 33) + 5).expect("a key"), 3).expect("splits");
    let third: Vec<u32> = third.to_vec().expect("u32");
    assert_eq!(
        third,
        [1198540469, 3701517536, 2729587019, 870705707, 1558534300, 2056470729]
    );
    let (low, high) = (Operand::from(0.0), Operand::from(1.0));
    let uniform = random::uniform(&low, &high, &[5], DType::F32, Some(&key)).expect("draws");
    near(&uniform, &[0.574501, 0.0996861, 0.39316, 0.894178, 0.596567]);
    let normal = random::normal(&[4], DType::F32, None, None, Some(&key)).expect("draws");
    near(&normal, &[1.81609, -0.754885, 0.339889, -0.534835]);
    random::seed(3).expect("seeds");
    let next = || random::uniform(&low, &high, &[3], DType::F32, None).expect("draws");
    near(&next(), &[0.745215, 0.0406474, 0.95116]);
    near(&next(), &[0.280964, 0.463252, 0.498177]);
    let logits = floats(&[0.1, 2.0, 3.0], &[1, 3]);
    let drawn = random::categorical(&logits, -1, None, Some(5), Some(&key)).expect("draws");
    assert_eq!(
        (drawn.shape(), read(&drawn)),
        (&[1, 5][..], vec![2.0, 1.0, 2.0, 2.0, 2.0])
    );
    let rows = floats(&[0.1, 2.0, 3.0, 3.0, 2.0, 0.1], &[2, 3]);
    let drawn = random::categorical(&rows, -1, None, None, Some(&key)).expect("draws");
    assert_eq!(read(&drawn), [2.0, 0.0]);
    let (low, high) = (Operand::from(0i64), Operand::from(10i64));
    let integers = random::randint(&low, &high, &[6], DType::I32, Some(&key)).expect("draws");
    assert_eq!(read(&integers), [5.0, 0.0, 7.0, 8.0, 5.0, 4.0]);
    let order = random::permutation_of(6, Some(&key)).expect("draws");
    assert_eq!(read(&order), [1.0, 5.0, 0.0, 4.0, 2.0, 3.0]);
}

#[test]
fn attention_with_a_mask_and_a_sink() {
    let q = floats(&[1.0, 0.0, 0.0, 1.0], &[1, 2, 1, 2]);
    let k = floats(&[1.0, 0.0, 0.0, 1.0], &[1, 1, 2, 2]);
    let v = floats(&[1.0, 3.0], &[1, 1, 2, 1]);
    let attend = |mask: &fast::Mask, sinks: Option<&Value>| {
        read(&fast::scaled_dot_product_attention(&q, &k, &v, 1.0, mask, sinks).expect("attends"))
    };
    let e = std::f32::consts::E;
    near(
        &floats(&attend(&fast::Mask::None, None), &[2]),
        &[(e + 3.0) / (e + 1.0), (1.0 + 3.0 * e) / (e + 1.0)],
    );
    let sinks = floats(&[0.0, 1.0], &[2]);
    near(
        &floats(&attend(&fast::Mask::None, Some(&sinks)), &[2]),
        &[(e + 3.0) / (e + 2.0), (1.0 + 3.0 * e) / (2.0 * e + 1.0)],
    );
    let mask = Value::from_slice(&[false, true], &[2]).expect("fits");
    near(&floats(&attend(&fast::Mask::Value(mask), None), &[2]), &[3.0, 3.0]);
}

#[test]
fn eight_bit_floats_are_those_of_mlx() {
    let x = floats(
        &[
            0.0, 1.0, -1.0, 0.0019, 0.00098, 0.0009, 447.0, 460.0, 1e6, -1e6, 17.0, 19.0, 1.0625, 1.1875,
        ],
        &[14],
    );
    let codes = ops::to_fp8(&x).expect("converts");
    let expected: [u8; 14] = [0, 56, 184, 1, 1, 0, 126, 126, 126, 254, 88, 90, 56, 58];
    assert_eq!(codes.to_vec::<u8>().expect("u8"), expected);
    let back = ops::from_fp8(&codes, DType::F32).expect("converts");
    assert_eq!(read(&back)[..4], [0.0, 1.0, -1.0, 0.001953125]);
    for (mode, largest, scale) in [("mxfp8", 3.6, 121u8), ("mxfp4", 3.1, 127), ("nvfp4", 7.0, 57)] {
        let mut w = vec![0.0; 32];
        w[0] = largest;
        let planes = ops::quantize(&floats(&w, &[1, 32]), None, None, mode).expect("quantises");
        assert_eq!(planes[1].to_vec::<u8>().expect("u8")[0], scale, "{mode}");
    }
}

#[test]
fn hadamard_transform_is_its_own_inverse() {
    let x = floats(&[1.0, 2.0, 3.0, 4.0], &[4]);
    let once = ops::hadamard_transform(&x, Some(1.0)).expect("transforms");
    assert_eq!(read(&once), [10.0, -2.0, -4.0, 0.0]);
    let scaled = ops::hadamard_transform(&x, None).expect("transforms");
    assert_eq!(
        read(&ops::hadamard_transform(&scaled, None).expect("transforms")),
        [1.0, 2.0, 3.0, 4.0]
    );
}

/// f32 values that half precision rounds, and these in a dtype.
fn drawn(shape: &[usize], factor: usize, dtype: DType) -> Value {
    let count: usize = shape.iter().product();
    let elements: Vec<f32> = (0..count).map(|n| ((n * factor) % 83) as f32 / 37.0 - 1.0).collect();
    floats(&elements, shape).cast(dtype).expect("casts")
}

const FLOATS: [DType; 3] = [DType::F16, DType::BF16, DType::F32];

#[test]
fn norms_are_rounded_to_the_dtype_of_the_result_only() {
    let wide = |x: &Value| x.cast(DType::F32).expect("casts");
    for (x, weight) in FLOATS.iter().flat_map(|&x| FLOATS.map(|weight| (x, weight))) {
        let dtype = refrain_mlx::promote(x, weight);
        let (x, weight) = (drawn(&[2, 64], 29, x), drawn(&[64], 31, weight));
        let found = fast::rms_norm(&x, Some(&weight), 1e-5).expect("normalises");
        let exact = fast::rms_norm(&wide(&x), Some(&wide(&weight)), 1e-5).expect("normalises");
        assert_eq!(found.dtype(), dtype);
        if dtype == DType::F32 {
            near(&found, &read(&exact));
        }
        for bias in FLOATS {
            let dtype = refrain_mlx::promote(dtype, bias);
            let bias = drawn(&[64], 37, bias);
            let found = fast::layer_norm(&x, Some(&weight), Some(&bias), 1e-5).expect("normalises");
            let exact = fast::layer_norm(&wide(&x), Some(&wide(&weight)), Some(&wide(&bias)), 1e-5);
            assert_eq!(found.dtype(), dtype);
            if dtype == DType::F32 {
                near(&found, &read(&exact.expect("normalises")));
            }
            let unweighted = fast::layer_norm(&x, None, Some(&bias), 1e-5).expect("normalises");
            assert_eq!(unweighted.dtype(), x.dtype());
        }
    }
}

#[test]
fn quantised_products_have_the_dtype_of_all_floats() {
    let wide = |x: &Value| x.cast(DType::F32).expect("casts");
    let planes = ops::quantize(&drawn(&[32, 64], 29, DType::F32), Some(32), Some(4), "affine").expect("quantises");
    let multiply = |x: &Value, scales: &Value, biases: &Value, transpose: bool, indices: Option<&Value>| {
        let (group, bits) = (Some(32), Some(4));
        let [lhs, rhs] = [None, indices];
        ops::gather_qmm(
            x,
            &planes[0],
            scales,
            Some(biases),
            [lhs, rhs],
            transpose,
            group,
            bits,
            "affine",
        )
        .expect("multiplies")
    };
    let first = integers(&[0], &[1]);
    for (x, scale) in FLOATS.iter().flat_map(|&x| FLOATS.map(|scale| (x, scale))) {
        for bias in FLOATS {
            let dtype = refrain_mlx::promote(refrain_mlx::promote(x, scale), bias);
            let [scales, biases] = [(1, scale), (2, bias)].map(|(n, dtype)| planes[n].cast(dtype).expect("casts"));
            for (transpose, indices) in [(true, None), (false, None), (true, Some(&first)), (false, Some(&first))] {
                let x = drawn(&[1, if transpose { 64 } else { 32 }], 31, x);
                let found = multiply(&x, &scales, &biases, transpose, indices);
                let exact = multiply(&wide(&x), &wide(&scales), &wide(&biases), transpose, indices);
                assert_eq!(found.dtype(), dtype);
                for (found, exact) in read(&found).iter().zip(read(&exact)) {
                    let bound = if dtype == DType::F32 { 1e-5 } else { 0.1 };
                    assert!((found - exact).abs() < bound, "{found} instead of {exact}");
                }
            }
        }
    }
}
