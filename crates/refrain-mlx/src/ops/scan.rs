//! Scans: running sums, products and extrema.

use refrain::{Array, concatenate};

use super::binary::log_add_exp;
use crate::shape;
use crate::{DType, Number, Result, Value};

/// Combines each element with all before it along an axis (or after it, if `reverse`). In each of log₂ n steps, an
/// element takes in the one at twice the distance (Hillis & Steele 1986).
fn scanned(
    op: &str,
    a: &Value,
    axis: Option<i64>,
    [reverse, inclusive]: [bool; 2],
    neutral: Number,
    combine: impl Fn(&Array, &Array) -> Array,
) -> Result<Value> {
    let (flat, axis) = match axis {
        Some(axis) => (a.array().clone(), shape::axis(op, axis, a.ndim())?),
        None => (a.array().reshape(&[-1]), 0),
    };
    let n = flat.shape()[axis];
    if flat.count() == 0 {
        return a.like(flat);
    }
    let shifted = |x: &Array, distance: usize| {
        let mut border = x.shape().to_vec();
        border[axis] = distance;
        let border = Array::full(x.device(), x.dtype(), &border, neutral.in_dtype(x.dtype().into()));
        let axis = axis as isize;
        if reverse {
            concatenate(&[&x.slice(axis, distance, n), &border], axis)
        } else {
            concatenate(&[&border, &x.slice(axis, 0, n - distance)], axis)
        }
    };
    let mut x = if inclusive { flat } else { shifted(&flat, 1) };
    let mut distance = 1;
    while distance < n {
        x = combine(&shifted(&x, distance), &x);
        distance *= 2;
    }
    a.arithmetic(x)
}

/// Scans floats in f32, so that roundings of half-precision floats do not accumulate.
fn accumulated(a: &Value, scan: impl Fn(&Value) -> Result<Value>) -> Result<Value> {
    let dtype = a.dtype();
    let wide = if dtype.is_floating() {
        a.cast(DType::F32)?
    } else {
        a.clone()
    };
    scan(&wide)?.cast(dtype)
}

/// Running sum; bool gives int32.
///
/// # Errors
/// Fails if the axis does not exist.
pub fn cumsum(a: &Value, axis: Option<i64>, reverse: bool, inclusive: bool) -> Result<Value> {
    let options = [reverse, inclusive];
    let a = if a.dtype() == DType::Bool {
        a.cast(DType::I32)?
    } else {
        a.clone()
    };
    accumulated(&a, |a| {
        scanned("cumsum", a, axis, options, Number::Int(0), |x, y| x + y)
    })
}

/// Running product.
///
/// # Errors
/// Fails if the axis does not exist.
pub fn cumprod(a: &Value, axis: Option<i64>, reverse: bool, inclusive: bool) -> Result<Value> {
    if a.dtype() == DType::Bool {
        return cummin(a, axis, reverse, inclusive);
    }
    let options = [reverse, inclusive];
    accumulated(a, |a| {
        scanned("cumprod", a, axis, options, Number::Int(1), |x, y| x * y)
    })
}

/// Running maximum.
///
/// # Errors
/// Fails if the axis does not exist.
pub fn cummax(a: &Value, axis: Option<i64>, reverse: bool, inclusive: bool) -> Result<Value> {
    let lowest = match a.dtype() {
        DType::I8 => Number::Int(i8::MIN.into()),
        DType::I16 => Number::Int(i16::MIN.into()),
        DType::I32 | DType::I64 => Number::Int(i32::MIN.into()),
        dtype if dtype.is_floating() => Number::Float(f64::NEG_INFINITY),
        _ => Number::Int(0),
    };
    scanned("cummax", a, axis, [reverse, inclusive], lowest, |x, y| x.maximum(y))
}

/// Running minimum.
///
/// # Errors
/// Fails if the axis does not exist.
pub fn cummin(a: &Value, axis: Option<i64>, reverse: bool, inclusive: bool) -> Result<Value> {
    let highest = match a.dtype() {
        DType::I8 => Number::Int(i8::MAX.into()),
        DType::I16 => Number::Int(i16::MAX.into()),
        DType::I32 | DType::I64 => Number::Int(i32::MAX.into()),
        DType::Bool => Number::Int(1),
        dtype if dtype.is_floating() => Number::Float(f64::INFINITY),
        _ => Number::Int(-1),
    };
    scanned("cummin", a, axis, [reverse, inclusive], highest, |x, y| x.minimum(y))
}

/// Running ln Σ eˣ; integers give float32.
///
/// # Errors
/// Fails if the axis does not exist.
pub fn logcumsumexp(a: &Value, axis: Option<i64>, reverse: bool, inclusive: bool) -> Result<Value> {
    let lowest = Number::Float(f64::NEG_INFINITY);
    let a = a.cast(a.dtype().at_least_float())?;
    accumulated(&a, |a| {
        scanned("logcumsumexp", a, axis, [reverse, inclusive], lowest, log_add_exp)
    })
}
