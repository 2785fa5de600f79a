//! Comparisons.

use refrain::Array;

use super::reduce;
use crate::promotion::{promoted, promoted_floats};
use crate::{DType, Number, Operand, Result, Value, ops};

/// Compares with one of the core's functions. Operands of u32 and i32, whose promoted dtype is i64, are compared
/// exactly: `negative` is the result if the i32 one is negative, by whether that is `b`.
fn compare(
    a: &Operand,
    b: &Operand,
    function: impl Fn(&Array, &Array) -> Array,
    negative: fn(b_is_negative: bool) -> bool,
) -> Result<Value> {
    let [x, y] = [a.value_beside(b)?, b.value_beside(a)?];
    let mixed = match (x.dtype(), y.dtype()) {
        (DType::U32, DType::I32) => Some((&y, true)),
        (DType::I32, DType::U32) => Some((&x, false)),
        _ => None,
    };
    let Some((signed, b_is_signed)) = mixed else {
        let ([a, b], _) = promoted(a, b)?;
        return Value::of(function(a.array(), b.array()));
    };
    let both = function(x.cast(DType::U32)?.array(), y.cast(DType::U32)?.array());
    let outcome = Value::scalar(Number::Bool(negative(b_is_signed)), None)?;
    Value::of(signed.array().lt(0).select(outcome.array(), &both))
}

macro_rules! comparisons {
    ($($(#[$doc:meta])* $name:ident($function:ident, $negative:expr);)*) => { $(
        $(#[$doc])*
        ///
        /// # Errors
        /// Fails if shapes do not broadcast, or if the promoted dtype is not supported.
        pub fn $name(a: &Operand, b: &Operand) -> Result<Value> {
            compare(a, b, |a, b| a.$function(b), $negative)
        }
    )* };
}

comparisons! {
    /// Whether both are equal.
    equal(eq, |_| false);
    /// Whether both differ.
    not_equal(ne, |_| true);
    /// Whether a is smaller.
    less(lt, |b_is_negative| !b_is_negative);
    /// Whether a is smaller or equal.
    less_equal(le, |b_is_negative| !b_is_negative);
    /// Whether a is larger.
    greater(gt, |b_is_negative| b_is_negative);
    /// Whether a is larger or equal.
    greater_equal(ge, |b_is_negative| b_is_negative);
}

/// Whether |a − b| ≤ `atol` + `rtol` · |b| for each element; infinities are close if they are equal.
///
/// # Errors
/// As [`equal`].
pub fn isclose(a: &Operand, b: &Operand, rtol: f64, atol: f64, equal_nan: bool) -> Result<Value> {
    let ([a, b], _) = promoted_floats(a, b)?;
    let [a, b] = [a.cast(DType::F32)?, b.cast(DType::F32)?];
    let [a, b] = [a.array(), b.array()];
    let bound = &(b.abs() * rtol as f32) + atol as f32;
    let finite = a.abs().lt(f32::INFINITY).bit_and(b.abs().lt(f32::INFINITY));
    let mut close = finite.bit_and((a - b).abs().le(&bound)).bit_or(a.eq(b));
    if equal_nan {
        close = close.bit_or(a.ne(a).bit_and(b.ne(b)));
    }
    Value::of(close)
}

/// Whether all elements are close: see [`isclose`].
///
/// # Errors
/// As [`equal`].
pub fn allclose(a: &Operand, b: &Operand, rtol: f64, atol: f64, equal_nan: bool) -> Result<Value> {
    reduce::all(&isclose(a, b, rtol, atol, equal_nan)?, None, false)
}

/// Whether shapes and all elements are equal.
///
/// # Errors
/// Fails if the promoted dtype is not supported.
pub fn array_equal(a: &Operand, b: &Operand, equal_nan: bool) -> Result<Value> {
    let [x, y] = [a.value_beside(b)?, b.value_beside(a)?];
    if x.shape() != y.shape() {
        return Value::scalar(Number::Bool(false), None);
    }
    let (x, y) = (Operand::from(x), Operand::from(y));
    let mut same = equal(&x, &y)?;
    if equal_nan {
        let both = ops::logical_and(&ops::isnan(&x)?.into(), &ops::isnan(&y)?.into())?;
        same = ops::logical_or(&same.into(), &both.into())?;
    }
    reduce::all(&same, None, false)
}

/// NaN and infinities replaced by numbers; `None` for an infinity gives the largest finite one.
///
/// # Errors
/// Fails if the dtype is not supported.
pub fn nan_to_num(a: &Value, nan: f64, posinf: Option<f64>, neginf: Option<f64>) -> Result<Value> {
    if !a.dtype().is_floating() {
        return Ok(a.clone());
    }
    let largest = match a.dtype() {
        DType::F16 => half::f16::MAX.to_f64(),
        DType::BF16 => half::bf16::MAX.to_f64(),
        _ => f64::from(f32::MAX),
    };
    let x = a.array();
    let number = |x: f64| Array::full(x_device(a), a.stored(), &[], x);
    let replaced = x.ne(x).select(number(nan), x);
    let replaced = x.eq(f32::INFINITY).select(number(posinf.unwrap_or(largest)), &replaced);
    Value::of(
        x.eq(f32::NEG_INFINITY)
            .select(number(neginf.unwrap_or(-largest)), &replaced),
    )
}

fn x_device(a: &Value) -> &refrain::Device {
    a.array().device()
}
