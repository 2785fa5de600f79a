//! Sorting.

use std::hash::{Hash, Hasher};

use refrain::{Array, Composite};

use super::integer::all_ones;
use super::reversed;
use crate::lowering::partitioned;
use crate::shape::{self, from_last, to_last};
use crate::{DType, Error, Operand, Result, Value, ops};

/// The array to sort and its axis: flattened if there is none.
fn along(op: &str, a: &Value, axis: Option<i64>) -> Result<(Array, usize)> {
    match axis {
        Some(axis) => Ok((a.array().clone(), shape::axis(op, axis, a.ndim())?)),
        None => Ok((a.array().reshape(&[-1]), 0)),
    }
}

/// The elements in ascending order; NaN comes last.
///
/// # Errors
/// Fails if the axis does not exist.
pub fn sort(a: &Value, axis: Option<i64>) -> Result<Value> {
    let (x, axis) = along("sort", a, axis)?;
    if x.count() == 0 {
        return a.like(x);
    }
    a.like(x.sort(axis as isize))
}

/// Elements whose order is the reverse of `x`'s; NaN of floats stays the largest.
pub(super) fn reversed_order(x: &Array, dtype: DType) -> Array {
    match dtype {
        DType::Bool => x.logical_not(),
        dtype if dtype.is_floating() => -x,
        dtype => x.bit_xor(all_ones(dtype)),
    }
}

/// The indices that sort along an axis (uint32); the order of equal elements stays.
///
/// # Errors
/// Fails if the axis does not exist.
pub fn argsort(a: &Value, axis: Option<i64>) -> Result<Value> {
    order("argsort", a, axis, None)
}

/// The indices that sort along an axis, or only partition at a position, from the end if it is negative.
fn order(op: &str, a: &Value, axis: Option<i64>, kth: Option<i64>) -> Result<Value> {
    let (x, axis) = along(op, a, axis)?;
    if x.count() == 0 {
        return Value::of(x.astype(refrain::DType::U32));
    }
    let dtype = a.dtype();
    let n = x.shape()[axis] as i64;
    let kth = kth.map(|kth| if kth < 0 { kth + n } else { kth } as usize);
    let sorted = ArgSort { axis, dtype, kth };
    Value::of(Array::composed(sorted, &[&x], None, x.shape(), refrain::DType::U32))
}

/// x → the indices that sort it along an axis, or partition it.
#[derive(Hash, Debug)]
struct ArgSort {
    axis: usize,
    /// The dtype of x, which may be stored in wider words.
    dtype: DType,
    /// The position of a partition.
    kth: Option<usize>,
}

impl Composite for ArgSort {
    fn name(&self) -> &'static str {
        "argsort"
    }

    fn key(&self, mut state: &mut dyn Hasher) {
        self.hash(&mut state);
    }

    fn compose(&self, inputs: &[Array], _integer: Option<&Array>) -> Array {
        let x = &inputs[0];
        let n = x.shape()[self.axis];
        let rows = to_last(x, self.axis);
        let keys = descending(&rows, self.dtype);
        // The largest of the reversed order come first.
        let mut order = if self.dtype.is_floating() {
            ascending(&rows)
        } else {
            keys.top_k(n)
        };
        if let Some(kth) = self.kth {
            order = partitioned(&order, &rows, &keys, kth);
        }
        from_last(&order, self.axis)
    }
}

/// Keys whose order is the reverse of `x`'s, with NaN of floats as the smallest. Only infinity and the largest number of
/// f32 have the same key, since that makes room for NaN.
fn descending(x: &Array, dtype: DType) -> Array {
    if !dtype.is_floating() {
        return reversed_order(x, dtype);
    }
    let x = x.astype(refrain::DType::F32);
    let keys = x.eq(f32::INFINITY).select(f32::MIN, -&x);
    x.ne(&x).select(f32::NEG_INFINITY, &keys)
}

/// The indices that sort the rows of floats. No float is left for a key that comes after infinity's, but NaN is the
/// largest for top-k: its order, read backwards, of the rows read backwards, so that equal elements keep theirs.
fn ascending(rows: &Array) -> Array {
    let last = rows.rank() - 1;
    let n = rows.shape()[last];
    let order = reversed(&reversed(rows, last).top_k(n), last);
    (n as i32 - 1) - order
}

fn check_position(op: &str, a: &Value, kth: i64, axis: Option<i64>) -> Result<()> {
    let n = match axis {
        Some(axis) => a.shape()[shape::axis(op, axis, a.ndim())?],
        None => a.size(),
    } as i64;
    if kth < -n || kth >= n {
        let message = format!("[{op}] Received invalid kth {kth} along axis of size {n}.");
        return Err(Error::value(message));
    }
    Ok(())
}

/// The elements such that the one at `kth` is where sorting puts it, with smaller ones before and larger ones after.
///
/// # Errors
/// Fails if the axis does not exist, or if `kth` is out of range.
pub fn partition(a: &Value, kth: i64, axis: Option<i64>) -> Result<Value> {
    check_position("partition", a, kth, axis)?;
    sort(a, axis)
}

/// The indices that partition along an axis: see [`partition`].
///
/// # Errors
/// As [`partition`].
pub fn argpartition(a: &Value, kth: i64, axis: Option<i64>) -> Result<Value> {
    check_position("argpartition", a, kth, axis)?;
    order("argpartition", a, axis, Some(kth))
}

/// The `k` largest elements in ascending order.
///
/// # Errors
/// Fails if the axis does not exist, or has fewer than `k` elements.
pub fn topk(a: &Value, k: i64, axis: Option<i64>) -> Result<Value> {
    let (x, axis) = along("topk", a, axis)?;
    let n = x.shape()[axis];
    let k = usize::try_from(k).ok().filter(|&k| k <= n).ok_or_else(|| {
        let message = format!("[topk] Received invalid k={k} along axis of size {n}.");
        Error::value(message)
    })?;
    let sorted = a.like(x)?;
    let sorted = sort(&sorted, Some(axis as i64))?;
    a.like(sorted.array().slice(axis as isize, n - k, n))
}

/// The positions (uint32) at which `values` would be inserted into a sorted sequence: before equal elements, or after
/// them if `right`.
///
/// # Errors
/// Fails if the sequence has not one dimension, or if the promoted dtype is not supported.
pub fn searchsorted(sorted: &Value, values: &Operand, right: bool) -> Result<Value> {
    if sorted.ndim() != 1 {
        let message = format!(
            "[searchsorted] The sequence must have one dimension, not {}.",
            sorted.ndim()
        );
        return Err(Error::value(message));
    }
    let values = values.value_beside(&sorted.into())?;
    let column = Operand::from(ops::expand_dims(&values, &[-1])?);
    let sorted = Operand::from(sorted);
    let before = if right {
        ops::less_equal(&sorted, &column)?
    } else {
        ops::less(&sorted, &column)?
    };
    // NaN comes after all numbers.
    let mut beyond = ops::isnan(&column)?;
    if !right {
        let number = ops::logical_not(&ops::isnan(&sorted)?.into())?;
        beyond = ops::logical_and(&beyond.into(), &number.into())?;
    }
    let before = ops::logical_or(&before.into(), &beyond.into())?;
    ops::sum(&before, Some(&[-1]), false)?.cast(DType::U32)
}
