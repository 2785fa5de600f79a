//! Reductions over axes.

use refrain::{Array, Axes};

use crate::shape::{self, from_last, to_last};
use crate::{DType, Error, Operand, Result, Value, ops};

fn reduced(
    op: &str,
    a: &Value,
    axes: Option<&[i64]>,
    keepdims: bool,
    function: impl Fn(&Array, Axes<'_>) -> Array,
) -> Result<Value> {
    let axes: Vec<isize> = shape::axes(op, axes, a.ndim())?
        .into_iter()
        .map(|axis| axis as isize)
        .collect();
    let axes = if keepdims {
        Axes::keepdims(&axes)
    } else {
        Axes::from(&axes[..])
    };
    a.like(function(a.array(), axes))
}

/// bool, int8 and int16 as int32, uint16 as uint32: the dtypes in which MLX sums them.
fn summed(a: &Value) -> Result<Value> {
    match a.dtype() {
        DType::Bool | DType::I8 | DType::I16 => a.cast(DType::I32),
        DType::U16 => a.cast(DType::U32),
        _ => Ok(a.clone()),
    }
}

/// Sum; bool and narrow integers give int32 or uint32. 0 for no elements.
///
/// # Errors
/// Fails if an axis does not exist.
pub fn sum(a: &Value, axes: Option<&[i64]>, keepdims: bool) -> Result<Value> {
    reduced("sum", &summed(a)?, axes, keepdims, |a, axes| a.sum(axes))
}

/// Product; dtypes as for [`sum`]. 1 for no elements.
///
/// # Errors
/// Fails if an axis does not exist.
pub fn prod(a: &Value, axes: Option<&[i64]>, keepdims: bool) -> Result<Value> {
    reduced("prod", &summed(a)?, axes, keepdims, |a, axes| a.prod(axes))
}

/// Maximum; NaN if an element is.
///
/// # Errors
/// Fails if an axis does not exist, or if there are no elements.
pub fn max(a: &Value, axes: Option<&[i64]>, keepdims: bool) -> Result<Value> {
    check_not_empty("max", a, axes)?;
    reduced("max", a, axes, keepdims, |a, axes| a.max(axes))
}

/// Minimum; NaN if an element is.
///
/// # Errors
/// As [`max`].
pub fn min(a: &Value, axes: Option<&[i64]>, keepdims: bool) -> Result<Value> {
    check_not_empty("min", a, axes)?;
    reduced("min", a, axes, keepdims, |a, axes| a.min(axes))
}

fn check_not_empty(op: &str, a: &Value, axes: Option<&[i64]>) -> Result<()> {
    let axes = shape::axes(op, axes, a.ndim())?;
    if axes.iter().any(|&axis| a.shape()[axis] == 0) || (a.ndim() == 0 && a.size() == 0) {
        let message = format!("[{op}] Cannot {op} reduce zero size array.");
        return Err(Error::value(message));
    }
    Ok(())
}

/// Arithmetic mean; integers give float32.
///
/// # Errors
/// Fails if an axis does not exist.
pub fn mean(a: &Value, axes: Option<&[i64]>, keepdims: bool) -> Result<Value> {
    let a = a.cast(a.dtype().at_least_float())?;
    reduced("mean", &a, axes, keepdims, |a, axes| a.mean(axes))
}

/// Whether all elements are nonzero.
///
/// # Errors
/// Fails if an axis does not exist.
pub fn all(a: &Value, axes: Option<&[i64]>, keepdims: bool) -> Result<Value> {
    reduced("all", a, axes, keepdims, |a, axes| a.all(axes))
}

/// Whether an element is nonzero.
///
/// # Errors
/// Fails if an axis does not exist.
pub fn any(a: &Value, axes: Option<&[i64]>, keepdims: bool) -> Result<Value> {
    reduced("any", a, axes, keepdims, |a, axes| a.any(axes))
}

/// ln Σ eˣ without overflow; integers give float32.
///
/// # Errors
/// Fails if an axis does not exist, or if there are no elements.
pub fn logsumexp(a: &Value, axes: Option<&[i64]>, keepdims: bool) -> Result<Value> {
    if a.size() == 0 {
        return Err(Error::value("[logsumexp] Received empty array."));
    }
    reduced("logsumexp", a, axes, keepdims, |a, axes| a.logsumexp(axes))
}

/// Variance: the mean squared deviation, over n − `ddof` elements.
///
/// # Errors
/// Fails if an axis does not exist.
pub fn var(a: &Value, axes: Option<&[i64]>, keepdims: bool, ddof: i64) -> Result<Value> {
    let dtype = a.dtype().at_least_float();
    let a = a.cast(DType::F32)?;
    let resolved = shape::axes("var", axes, a.ndim())?;
    let count: usize = resolved.iter().map(|&axis| a.shape()[axis]).product();
    let deviation = a.array() - mean(&a, axes, true)?.array();
    let total = sum(&Value::of(&deviation * &deviation)?, axes, keepdims)?;
    let divisor = (count as i64 - ddof).max(0) as f32;
    Value::of(total.array() / divisor)?.cast(dtype)
}

/// Standard deviation: the square root of [`var`].
///
/// # Errors
/// Fails if an axis does not exist.
pub fn std(a: &Value, axes: Option<&[i64]>, keepdims: bool, ddof: i64) -> Result<Value> {
    let variance = var(&a.cast(DType::F32)?, axes, keepdims, ddof)?;
    Value::of(variance.array().sqrt())?.cast(a.dtype().at_least_float())
}

/// The middle element of the sorted ones, or the mean of the two in the middle; NaN if an element is.
///
/// # Errors
/// Fails if an axis does not exist, or if there are no elements.
pub fn median(a: &Value, axes: Option<&[i64]>, keepdims: bool) -> Result<Value> {
    check_not_empty("median", a, axes)?;
    let reduced = shape::axes("median", axes, a.ndim())?;
    let kept: Vec<usize> = (0..a.ndim()).filter(|axis| !reduced.contains(axis)).collect();
    let order: Vec<i64> = kept.iter().chain(&reduced).map(|&axis| axis as i64).collect();
    let n: usize = reduced.iter().map(|&axis| a.shape()[axis]).product();
    let lengths: Vec<i64> = kept
        .iter()
        .map(|&axis| a.shape()[axis])
        .chain([n])
        .map(|n| n as i64)
        .collect();
    let a = a.cast(a.dtype().at_least_float())?;
    let rows = ops::reshape(&ops::transpose(&a, Some(&order))?, &lengths)?;
    let sorted = rows.array().sort(-1);
    // NaN is sorted to the end.
    let last = sorted.slice(-1, n - 1, n).sum(&[-1]);
    let middle = sorted.slice(-1, (n - 1) / 2, n / 2 + 1).mean(&[-1]);
    let middle = last.ne(&last).select(&last, &middle);
    let mut shape = a.shape().to_vec();
    if keepdims {
        reduced.iter().for_each(|&axis| shape[axis] = 1);
    } else {
        shape = kept.iter().map(|&axis| shape[axis]).collect();
    }
    Value::of(middle.reshape(&shape::signed(&shape)))
}

/// Index of the largest element along an axis, or in the flattened array: uint32. The lowest index of equal ones.
///
/// # Errors
/// Fails if the axis does not exist, or if there are no elements.
pub fn argmax(a: &Value, axis: Option<i64>, keepdims: bool) -> Result<Value> {
    extreme("argmax", a, axis, keepdims, Array::clone)
}

/// Index of the smallest element, as [`argmax`].
///
/// # Errors
/// As [`argmax`].
pub fn argmin(a: &Value, axis: Option<i64>, keepdims: bool) -> Result<Value> {
    let dtype = a.dtype();
    extreme("argmin", a, axis, keepdims, |x| super::sort::reversed_order(x, dtype))
}

fn extreme(op: &str, a: &Value, axis: Option<i64>, keepdims: bool, key: impl Fn(&Array) -> Array) -> Result<Value> {
    if a.size() == 0 {
        let message = format!("[{op}] Cannot {op} reduce zero size array.");
        return Err(Error::value(message));
    }
    let Some(axis) = axis else {
        let index = key(&a.array().reshape(&[-1])).argmax();
        let shape = if keepdims { vec![1; a.ndim()] } else { vec![] };
        return Value::of(index.reshape(&shape));
    };
    let resolved = match a.ndim() {
        0 if axis == 0 || axis == -1 => return Value::full(&[], 0.into(), DType::U32),
        rank => shape::axis(op, axis, rank)?,
    };
    let index = key(&to_last(a.array(), resolved)).argmax();
    if !keepdims {
        return Value::of(index);
    }
    Value::of(index.expand_dims(resolved as isize))
}

/// Softmax over axes. `precise` computes half-precision floats in float32, which is always done here.
///
/// # Errors
/// Fails if an axis does not exist.
pub fn softmax(a: &Value, axes: Option<&[i64]>, _precise: bool) -> Result<Value> {
    let dtype = a.dtype().at_least_float();
    let a = a.cast(dtype)?;
    let resolved = shape::axes("softmax", axes, a.ndim())?;
    if a.size() == 0 || resolved.is_empty() {
        return if a.size() == 0 {
            Ok(a)
        } else {
            ops::ones(&extents(&a), dtype)
        };
    }
    if let [axis] = resolved[..] {
        let last = to_last(a.array(), axis).softmax();
        return Value::of(from_last(&last, axis));
    }
    let x = a.cast(DType::F32)?;
    let largest = max(&x, axes, true)?;
    let exponentials = Value::of((x.array() - largest.array()).exp())?;
    let total = sum(&exponentials, axes, true)?;
    ops::divide(&Operand::from(exponentials), &total.into())?.cast(dtype)
}

fn extents(a: &Value) -> Vec<i64> {
    a.shape().iter().map(|&n| n as i64).collect()
}
