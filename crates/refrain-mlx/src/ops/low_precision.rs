//! Floats of 4 and 8 bits: FP4 (E2M1), FP8 (E4M3) and powers of two (E8M0), as codes in integers.

use refrain::{Array, Device};

use crate::{DType, Error, Result, Value};

const F32: refrain::DType = refrain::DType::F32;
const I32: refrain::DType = refrain::DType::I32;

/// The values of FP4, by code.
const FP4: [f32; 16] = [
    0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0,
];

/// The largest FP4 number.
pub(super) const MAX_FP4: f32 = 6.0;

/// The largest FP8 number.
pub(super) const MAX_FP8: f32 = 448.0;

/// A table of f32, to look values up in.
fn table(device: &Device, values: impl Iterator<Item = f32>) -> Array {
    let values: Vec<f32> = values.collect();
    Array::from_slice(device, &values, &[values.len()])
}

/// The powers 2ᵉ of integers −126 ≤ e ≤ 127, which are exact on every device.
pub(super) fn power_of_two(exponents: &Array) -> Array {
    let powers = table(
        exponents.device(),
        (1..255u32).map(|biased| f32::from_bits(biased << 23)),
    );
    powers.take(&(exponents + 126), 0)
}

/// The scales of E8M0 codes: 2^(code − 127).
pub(super) fn from_e8m0(codes: &Array) -> Array {
    // 2⁻¹²⁷ is subnormal, and 255 is NaN.
    let powers = (0..256u32).map(|biased| match biased {
        0 => f32::from_bits(1 << 22),
        biased => f32::from_bits(biased << 23),
    });
    table(codes.device(), powers).take(&codes.astype(refrain::DType::U32), 0)
}

/// The E8M0 codes of the lowest powers of two that are not below `x`; 127 for 0.
pub(super) fn to_e8m0(x: &Array) -> Array {
    let near = (x.log() / std::f32::consts::LN_2)
        .round()
        .maximum(-126.0)
        .minimum(126.0)
        .astype(I32);
    let exponent = &near + &x.gt(power_of_two(&near)).astype(I32);
    let exponent = x.eq(0.0).select(0, &exponent);
    (exponent + 127).astype(refrain::DType::U8)
}

/// The values of FP4 codes.
pub(super) fn from_fp4(codes: &Array) -> Array {
    table(codes.device(), FP4.into_iter()).take(codes, 0)
}

/// The FP4 codes (u32) of f32. Ties go to the lower magnitude, as in MLX.
pub(super) fn to_fp4(x: &Array) -> Array {
    let magnitude = x.abs();
    // What rounds to zero has no sign.
    let sign = x.lt(-(FP4[0] + FP4[1]) / 2.0).astype(refrain::DType::U32) * 8;
    FP4[..8].windows(2).fold(sign, |code, pair| {
        code + magnitude.gt((pair[0] + pair[1]) / 2.0).astype(refrain::DType::U32)
    })
}

/// The values of FP8 codes.
pub(super) fn fp8_values(codes: &Array) -> Array {
    let value = |code: u32| {
        let (exponent, mantissa) = ((code >> 3) & 15, (code & 7) as f32);
        let magnitude = match (exponent, code & 7) {
            (15, 7) => f32::NAN,
            (0, _) => mantissa / 512.0,
            _ => (1.0 + mantissa / 8.0) * f32::from_bits((exponent + 120) << 23),
        };
        if code & 128 == 0 { magnitude } else { -magnitude }
    };
    table(codes.device(), (0..256).map(value)).take(&codes.astype(refrain::DType::U32), 0)
}

/// The FP8 codes (u8) of f32, rounded to nearest even and clamped to the largest number.
pub(super) fn fp8_codes(x: &Array) -> Array {
    // NaN becomes the largest number, too.
    let magnitude = x.abs();
    let magnitude = magnitude.lt(MAX_FP8).select(&magnitude, MAX_FP8);
    let near = (magnitude.maximum(1e-9).log() / std::f32::consts::LN_2)
        .floor()
        .astype(I32)
        .maximum(-6);
    // The logarithm may miss the exponent by one.
    let near = &near - &power_of_two(&near).gt(&magnitude).astype(I32);
    let near = near.maximum(-6);
    let exponent = &near + &power_of_two(&(&near + 1)).le(&magnitude).astype(I32);
    let steps = (&magnitude / &power_of_two(&(&exponent - 3))).round().astype(I32);
    let code = (exponent + 6) * 8 + steps;
    let sign = x.lt(0.0).astype(I32) * 128;
    (code + sign).astype(refrain::DType::U8)
}

/// Converts floats to FP8 codes (uint8).
///
/// # Errors
/// Fails for dtypes that are not floating.
pub fn to_fp8(x: &Value) -> Result<Value> {
    if !x.dtype().is_floating() {
        return Err(Error::value(format!(
            "[to_fp8] Input must be a floating type, not {}.",
            x.dtype()
        )));
    }
    Value::of(fp8_codes(&x.array().astype(F32)))
}

/// Converts FP8 codes (uint8) to floats.
///
/// # Errors
/// Fails for other dtypes than uint8, and for dtypes that are not floating.
pub fn from_fp8(x: &Value, dtype: DType) -> Result<Value> {
    if x.dtype() != DType::U8 || !dtype.is_floating() {
        return Err(Error::value(format!(
            "[from_fp8] Input must be uint8, not {}.",
            x.dtype()
        )));
    }
    Value::of(fp8_values(x.array()))?.cast(dtype)
}

/// The Walsh–Hadamard transform of the last axis, times `scale` (by default 1 / √n). n is a power of two.
///
/// # Errors
/// Fails for integers, and if n is no power of two.
pub fn hadamard_transform(x: &Value, scale: Option<f32>) -> Result<Value> {
    let n = x.shape().last().copied().unwrap_or(0);
    if !x.dtype().is_floating() {
        let message = format!("[hadamard] Input must be a floating type, not {}.", x.dtype());
        return Err(Error::value(message));
    }
    if !n.is_power_of_two() {
        let message = format!("[hadamard] Only powers of two are supported yet, not {n}.");
        return Err(Error::not_implemented(message));
    }
    let rows = (x.size() / n) as isize;
    let mut wide = x.array().astype(F32);
    let mut half = 1;
    while half < n {
        let pairs = wide.reshape(&[rows, (n / (2 * half)) as isize, 2, half as isize]);
        let [a, b] = [pairs.slice(2, 0, 1), pairs.slice(2, 1, 2)];
        wide = refrain::concatenate(&[&(&a + &b), &(&a - &b)], 2);
        half *= 2;
    }
    let scale = scale.unwrap_or(1.0 / (n as f32).sqrt());
    x.like((wide.reshape(&crate::shape::signed(x.shape())) * scale).astype(x.stored()))
}
