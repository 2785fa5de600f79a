//! Conversions, comparisons and functions at the edges of their range.

use refrain_kernels::elementwise::{self, BinaryOp, Expression, UnaryOp};
use refrain_kernels::{DType, Layout, Values};

use crate::common::{Random, assert_close, variants};
use crate::elementwise::{binary, run_contiguous, unary};

/// Floats at the edges of conversions and comparisons.
fn edge_cases() -> Vec<f32> {
    let mut values = vec![
        0.0,
        0.5,
        1.0,
        1.5,
        2.5,
        254.9,
        255.0,
        255.5,
        256.0,
        1e5,
        65503.9,
        65519.9,
        65520.0,
        1e10,
        2147483500.0,
        2147483648.0,
        4294967000.0,
        4294967296.0,
        3e38,
        f32::INFINITY,
        f32::NAN,
        6.2e-8,
        3.0e-8,
        2.9e-8,
        1e-5,
        6.1e-5,
        1.175_494_4e-38,
    ];
    let negative: Vec<f32> = values.iter().map(|x| -x).collect();
    values.extend(negative);
    values
}

#[test]
fn casts_between_all_dtypes_are_exact() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let mut random = Random::new(3);
    for from in DType::ALL {
        let mut input = random.values(from, 300, 300.0);
        if let Values::F32(x) = &mut input {
            x.extend(edge_cases());
        }
        let input = input.rounded(from);
        for to in DType::ALL {
            let expression = Expression::cast(from, to);
            let expected = input.cast(to);
            for traits in variants() {
                let found = run_contiguous(&traits, &expression, std::slice::from_ref(&input));
                assert_close(&format!("{from} to {to}"), &found, &expected, 0.0);
            }
        }
    }
}

#[test]
fn every_f16_is_preserved_and_floats_round_to_the_nearest() {
    let all: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    let all_f16 = Values::load(DType::F16, &Layout::contiguous(&[65_536]), &all);
    let mut random = Random::new(4);
    let any = |bits: u64| f32::from_bits(bits as u32);
    let mut floats: Vec<f32> = (0..20_000).map(|_| any(random.bits())).collect();
    floats.retain(|x| x.is_normal());
    floats.extend((0..20_000).map(|_| 65_536.0 * random.unit() * random.unit().powi(8)));
    // Midpoints between neighbours: ties round to even.
    let positive = all_f16.f32()[..0x7c00].windows(2);
    floats.extend(positive.map(|pair| (pair[0] + pair[1]) / 2.0));
    floats.extend((0x3f00..0x3fff).map(|upper| any(upper << 16 | 0x8000)));
    let floats = Values::F32(floats);
    for traits in variants() {
        let widen = Expression::cast(DType::F16, DType::F32);
        let found = run_contiguous(&traits, &widen, std::slice::from_ref(&all_f16));
        assert_close("f16", &found, &all_f16, 0.0);
        for to in [DType::F16, DType::BF16] {
            let narrow = Expression::cast(DType::F32, to);
            let found = run_contiguous(&traits, &narrow, std::slice::from_ref(&floats));
            assert_close("rounding", &found, &floats.cast(to), 0.0);
        }
    }
}

#[test]
fn comparisons_and_extremes_of_edge_cases_match_the_reference() {
    let floats = edge_cases();
    let pairs = floats.iter().flat_map(|&a| floats.iter().map(move |&b| (a, b)));
    let (a, b): (Vec<f32>, Vec<f32>) = pairs.unzip();
    let inputs = [Values::F32(a), Values::F32(b)];
    use BinaryOp::{Eq, Ge, Gt, Le, Lt, Max, Min, Ne};
    for op in [Eq, Ne, Lt, Le, Gt, Ge, Max, Min] {
        let expression = binary(op, DType::F32);
        let expected = elementwise::reference(&expression, &inputs, inputs[0].len());
        let found = run_contiguous(&variants()[0], &expression, &inputs);
        assert_close(&op.to_string(), &found, &expected, 0.0);
    }
}

#[test]
fn remainders_are_exact_for_any_quotient() {
    let mut random = Random::new(5);
    let mut float = || {
        let x = f32::from_bits(random.bits() as u32);
        if x.is_normal() { x } else { 7.25 }
    };
    let inputs = [
        Values::F32((0..5000).map(|_| float()).collect()),
        Values::F32((0..5000).map(|_| float()).collect()),
    ];
    let expression = binary(BinaryOp::Rem, DType::F32);
    let found = run_contiguous(&variants()[0], &expression, &inputs);
    let expected = elementwise::reference(&expression, &inputs, 5000);
    assert_close("remainder", &found, &expected, 0.0);
}

/// Returns the largest difference from `exact`, absolute or relative.
fn worst(op: UnaryOp, inputs: &[f32], exact: fn(f64) -> f64, relative: bool) -> f64 {
    let found = run_contiguous(&variants()[0], &unary(op, DType::F32), &[Values::F32(inputs.to_vec())]);
    let pairs = found.f32().iter().zip(inputs);
    pairs
        .map(|(&y, &x)| {
            let exact = exact(f64::from(x));
            let scale = if relative { exact.abs().max(1e-37) } else { 1.0 };
            (f64::from(y) - exact).abs() / scale
        })
        .fold(0.0, f64::max)
}

#[test]
fn transcendental_functions_are_accurate_over_their_ranges() {
    let mut random = Random::new(6);
    let mut spread = |scale: f32| -> Vec<f32> { (0..20_000).map(|_| scale * random.unit()).collect() };
    let near = spread(2.0);
    let positive: Vec<f32> = spread(80.0).into_iter().map(f32::exp).collect();
    let mut angles = spread(10.0);
    angles.extend(spread(1e6));
    angles.extend(positive.iter());
    assert!(worst(UnaryOp::Sin, &angles, f64::sin, false) < 2e-7);
    assert!(worst(UnaryOp::Cos, &angles, f64::cos, false) < 2e-7);
    assert!(worst(UnaryOp::Exp, &spread(85.0), f64::exp, true) < 3e-7);
    assert!(worst(UnaryOp::Log, &positive, f64::ln, true) < 3e-7);
    assert!(worst(UnaryOp::Tanh, &near, f64::tanh, true) < 1e-6);
    assert!(worst(UnaryOp::Tanh, &spread(30.0), f64::tanh, true) < 1e-6);
    assert!(worst(UnaryOp::Erf, &near, libm::erf, true) < 1e-6);
    assert!(worst(UnaryOp::Erf, &spread(9.0), libm::erf, true) < 1e-6);
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    assert!(worst(UnaryOp::Sigmoid, &spread(8.0), sigmoid, true) < 1e-6);
    // Far from zero, the rounding of the exponent dominates.
    assert!(worst(UnaryOp::Sigmoid, &spread(80.0), sigmoid, true) < 5e-6);
}

#[test]
fn transcendental_functions_match_the_reference_at_their_limits() {
    let mut input = edge_cases();
    input.extend([-1000.0, 1000.0, 88.7, 88.8, -103.0]);
    let inputs = [Values::F32(input)];
    use UnaryOp::{Cos, Erf, Exp, Log, Rsqrt, Sigmoid, Sin, Sqrt, Tanh};
    for op in [Cos, Erf, Exp, Log, Rsqrt, Sigmoid, Sin, Sqrt, Tanh] {
        let expression = unary(op, DType::F32);
        let expected = elementwise::reference(&expression, &inputs, inputs[0].len());
        let found = run_contiguous(&variants()[0], &expression, &inputs);
        assert_close(&op.to_string(), &found, &expected, 1e-5);
    }
}

#[test]
fn powers_of_all_signs_match_the_reference() {
    let bases = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        2.0,
        -2.0,
        10.0,
        f32::INFINITY,
        f32::NEG_INFINITY,
    ];
    let exponents = [
        0.0,
        1.0,
        2.0,
        3.0,
        -1.0,
        -2.0,
        0.5,
        2.5,
        f32::INFINITY,
        f32::NEG_INFINITY,
    ];
    let pairs = bases.iter().flat_map(|&a| exponents.iter().map(move |&b| (a, b)));
    let (a, b): (Vec<f32>, Vec<f32>) = pairs.unzip();
    let inputs = [Values::F32(a), Values::F32(b)];
    let expression = binary(BinaryOp::Pow, DType::F32);
    let expected = elementwise::reference(&expression, &inputs, inputs[0].len());
    let found = run_contiguous(&variants()[0], &expression, &inputs);
    assert_close("pow", &found, &expected, 1e-6);
}
