//! Integer arithmetic that floats cannot do exactly.

use refrain::Array;

use crate::{DType, Result, Value};

/// The integer of this dtype whose bits are all set.
pub(super) fn all_ones(dtype: DType) -> i64 {
    match dtype {
        DType::U8 => u8::MAX.into(),
        DType::U16 => u16::MAX.into(),
        DType::U32 | DType::U64 => u32::MAX.into(),
        _ => -1,
    }
}

/// The quotient rounded towards zero; 0 for division by zero.
pub(super) fn quotient(a: &Array, b: &Array) -> Array {
    let dtype = a.dtype();
    // The first estimate errs by a few units of 2⁻²⁴ of itself; the remainder corrects it exactly.
    let exact = a - &(a % b);
    let estimate = |x: &Array| (x / b).round().astype(dtype);
    let first = estimate(&exact);
    // The rest is a small multiple of the divisor, which may be negative.
    let rest = &exact - &(&first * b);
    let second = match dtype {
        refrain::DType::I32 => estimate(&rest),
        _ => (rest.astype(refrain::DType::I32).astype(refrain::DType::F32) / &b.astype(refrain::DType::F32))
            .round()
            .astype(refrain::DType::I32)
            .astype(dtype),
    };
    b.eq(0).select(0, first + second)
}

/// The quotient rounded down.
pub(super) fn floor_quotient(a: &Array, b: &Array) -> Array {
    let truncated = quotient(a, b);
    if a.dtype() != refrain::DType::I32 {
        return truncated;
    }
    let is_inexact = (a % b).ne(0);
    let differ = a.lt(0).bit_xor(b.lt(0));
    is_inexact.bit_and(&differ).select(&(&truncated - 1), &truncated)
}

/// aᵇ by repeated squaring; 0 for negative exponents, as in MLX.
pub(super) fn power(a: &Value, b: &Value) -> Result<Value> {
    let (mut base, mut exponent) = (a.array().clone(), b.array().clone());
    let one = Array::full(base.device(), base.dtype(), &[], 1);
    let mut result = one.clone();
    for _ in 0..31 {
        let odd = exponent.bit_and(1).ne(0);
        result = odd.select(&(&result * &base), &result);
        base = &base * &base;
        exponent = exponent.shift_right(1);
    }
    if b.stored() == refrain::DType::I32 {
        let negative = b.array().lt(0);
        result = negative.select(0, &result);
    }
    a.arithmetic(result)
}
