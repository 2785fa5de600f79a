//! Elements by index, and arrays with some elements replaced.

use refrain::{Array, Combine};

use crate::dtype::Category;
use crate::shape::{self, from_last, signed, to_last, tuple};
use crate::{DType, Error, Result, Value, ops};

/// Indices as i32 or u32, with negative ones counted from the end of `extent`.
pub(crate) fn wrapped(op: &str, indices: &Value, extent: usize) -> Result<Array> {
    let array = indices.array();
    match indices.dtype() {
        DType::U16 | DType::U32 | DType::U64 => Ok(array.clone()),
        dtype if dtype.category() == Category::Signed => Ok(array.lt(0).select(&(array + extent as i64), array)),
        DType::U8 | DType::Bool => Ok(array.astype(refrain::DType::U32)),
        dtype => Err(Error::value(format!(
            "[{op}] Got indices with invalid dtype {dtype}. Indices must be integral."
        ))),
    }
}

/// The slices at `indices` along an axis; without one, elements of the flattened value. Negative indices count from the
/// end.
///
/// # Errors
/// Fails if the axis does not exist, if indices are no integers, or if there is nothing to take.
pub fn take(a: &Value, indices: &Value, axis: Option<i64>) -> Result<Value> {
    let (x, axis) = match axis {
        Some(axis) => (a.array().clone(), shape::axis("take", axis, a.ndim())?),
        None => (a.array().reshape(&[-1]), 0),
    };
    let extent = x.shape()[axis];
    if extent == 0 && indices.size() > 0 {
        return Err(Error::value(
            "[take] Cannot do a non-empty take from an array with zero elements.",
        ));
    }
    a.like(x.take(&wrapped("take", indices, extent)?, axis as isize))
}

/// Both in the form `[rows, n]` and `[rows, m]`, with the axis last, and the leading shape.
fn rows_of(op: &str, a: &Value, indices: &Value, axis: i64) -> Result<(Array, Array, Vec<usize>, usize)> {
    if a.ndim() != indices.ndim() {
        let message = format!(
            "[{op}] Dimensions of indices {} and array {} must match.",
            indices.ndim(),
            a.ndim()
        );
        return Err(Error::value(message));
    }
    let axis = shape::axis(op, axis, a.ndim())?;
    let index = wrapped(op, indices, a.shape()[axis])?;
    let (x, index) = (to_last(a.array(), axis), to_last(&index, axis));
    let split = |array: &Array| array.shape()[..array.rank() - 1].to_vec();
    let leading = shape::broadcast(op, &[&split(&x), &split(&index)])?;
    let spread = |array: &Array| {
        let (last, outer) = array.shape().split_last().expect("there is an axis");
        if outer == leading {
            return array.clone();
        }
        array.broadcast_to(&[&leading[..], &[*last]].concat())
    };
    Ok((spread(&x), spread(&index), leading, axis))
}

/// Elements along an axis, chosen by indices of the same number of dimensions, which broadcast; without an axis, of the
/// flattened values.
///
/// # Errors
/// Fails if shapes do not fit, or if indices are no integers.
pub fn take_along_axis(a: &Value, indices: &Value, axis: Option<i64>) -> Result<Value> {
    let Some(axis) = axis else {
        return take_along_axis(&ops::reshape(a, &[-1])?, &ops::reshape(indices, &[-1])?, Some(0));
    };
    let (x, index, _, axis) = rows_of("take_along_axis", a, indices, axis)?;
    let taken = x.take_along(&index);
    a.like(from_last(&taken, axis))
}

/// The value with elements along an axis, chosen as by [`take_along_axis`], replaced by `values`, which broadcast.
///
/// # Errors
/// As [`take_along_axis`].
pub fn put_along_axis(a: &Value, indices: &Value, values: &Value, axis: Option<i64>) -> Result<Value> {
    const OP: &str = "put_along_axis";
    if indices.size() == 0 {
        return Ok(a.clone());
    }
    let Some(axis) = axis else {
        let flat = ops::reshape(a, &[-1])?;
        let values = ops::broadcast_to(values, &[indices.size() as i64]).or_else(|_| ops::reshape(values, &[-1]))?;
        let put = put_along_axis(&flat, &ops::reshape(indices, &[-1])?, &values, Some(0))?;
        return a.like(put.array().reshape(&signed(a.shape())));
    };
    let (x, index, leading, axis) = rows_of(OP, a, indices, axis)?;
    let rank = a.ndim();
    let values = values.cast(a.dtype())?;
    let replaced = {
        let mut shape = index.shape().to_vec();
        let last = shape.pop().unwrap_or(1);
        shape.insert(axis, last);
        let spread = shape::broadcast(OP, &[values.shape(), &shape])?;
        if spread != shape {
            let message = format!(
                "[{OP}] Values of shape {} do not broadcast to {}.",
                tuple(values.shape()),
                tuple(&shape)
            );
            return Err(Error::value(message));
        }
        to_last(&values.array().broadcast_to(&shape), axis)
    };
    let (n, m) = (x.shape()[rank - 1], index.shape()[rank - 1]);
    let rows: usize = leading.iter().product();
    let device = x.device();
    let first = Array::arange(device, refrain::DType::I32, rows) * n as i64;
    let index = index.astype(refrain::DType::I32).reshape(&[rows as isize, m as isize]);
    // An index outside the row would fall into another one.
    let inside = index.ge(0).bit_and(index.lt(n as i64));
    let slots = inside.select(&(&index + &first.reshape(&[-1, 1])), -1).reshape(&[-1]);
    let put = x.reshape(&[-1]).scatter_rows(&replaced.reshape(&[-1]), &slots);
    a.like(from_last(&put.reshape(&signed(x.shape())), axis))
}

/// Start indices of some axes, clamped so that `sizes` elements follow.
fn starts(op: &str, a: &Value, start: &Value, axes: &[i64], sizes: &[usize]) -> Result<Vec<(usize, Array)>> {
    let resolved: Vec<usize> = axes
        .iter()
        .map(|&axis| shape::axis(op, axis, a.ndim()))
        .collect::<Result<_>>()?;
    if start.size() != axes.len() || start.ndim() > 1 {
        let message = format!("[{op}] {} start indices do not fit {} axes.", start.size(), axes.len());
        return Err(Error::value(message));
    }
    let flat = wrapped(op, &ops::reshape(start, &[-1])?, 0)?.astype(refrain::DType::I32);
    let each = resolved.iter().enumerate().map(|(number, &axis)| {
        let most = a.shape()[axis].saturating_sub(sizes[axis]) as i64;
        let one = flat.slice(0, number, number + 1).minimum(most).maximum(0);
        (axis, one)
    });
    Ok(each.collect())
}

/// `sizes` elements of each dimension, from the start indices (a value) of `axes`, and from 0 of the other axes.
///
/// # Errors
/// Fails if arguments do not fit.
pub fn slice(a: &Value, start: &Value, axes: &[i64], sizes: &[i64]) -> Result<Value> {
    let sizes = shape::extents("slice", sizes)?;
    if sizes.len() != a.ndim() || sizes.iter().zip(a.shape()).any(|(size, n)| size > n) {
        let message = format!(
            "[slice] Invalid slice size {} for an array of shape {}.",
            tuple(&sizes),
            tuple(a.shape())
        );
        return Err(Error::value(message));
    }
    let mut x = a.array().clone();
    for (axis, first) in starts("slice", a, start, axes, &sizes)? {
        let index = Array::arange(x.device(), refrain::DType::I32, sizes[axis]) + first;
        x = x.take(&index, axis as isize);
    }
    for (axis, &size) in sizes.iter().enumerate() {
        x = x.slice(axis as isize, 0, size);
    }
    a.like(x)
}

/// The value with `update` in it, from the start indices (a value) of `axes`, and from 0 of the other axes.
///
/// # Errors
/// Fails if arguments do not fit.
pub fn slice_update(a: &Value, update: &Value, start: &Value, axes: &[i64]) -> Result<Value> {
    let rank = a.ndim();
    if update.ndim() != rank || update.shape().iter().zip(a.shape()).any(|(size, n)| size > n) {
        let message = format!(
            "[slice_update] Update of shape {} does not fit an array of shape {}.",
            tuple(update.shape()),
            tuple(a.shape())
        );
        return Err(Error::value(message));
    }
    let (sizes, update) = (update.shape().to_vec(), update.cast(a.dtype())?);
    // Flat indices of the updated elements.
    let device = a.array().device();
    let first = starts("slice_update", a, start, axes, &sizes)?;
    let mut slots = Array::zeros(device, refrain::DType::I32, &[]);
    let mut stride = a.size();
    for axis in 0..rank {
        stride /= a.shape()[axis].max(1);
        let mut along = vec![1; rank];
        along[axis] = sizes[axis] as isize;
        let mut index = Array::arange(device, refrain::DType::I32, sizes[axis]);
        if let Some((_, start)) = first.iter().find(|(d, _)| *d == axis) {
            index = index + start;
        }
        slots = slots + (index * stride as i64).reshape(&along);
    }
    let slots = slots.broadcast_to(&sizes).reshape(&[-1]);
    let updated = a
        .array()
        .reshape(&[-1])
        .scatter_rows(&update.array().reshape(&[-1]), &slots);
    a.like(updated.reshape(&signed(a.shape())))
}

/// Rows `[rows, width]` of `x` replaced by, or combined with, rows of `values`.
pub(crate) fn scattered(x: &Array, values: &Array, slots: &Array, combine: Option<Combine>) -> Array {
    match combine {
        None => x.scatter_rows(values, slots),
        Some(combine) => x.combine_rows(values, slots, combine),
    }
}
