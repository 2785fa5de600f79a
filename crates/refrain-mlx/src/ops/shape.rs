//! Shapes and views.

use refrain::Array;

use crate::shape::{self, extents, signed, tuple};
use crate::{DType, Error, Result, Value};

/// The elements in another shape; one extent may be −1.
///
/// # Errors
/// Fails if the number of elements differs.
pub fn reshape(a: &Value, shape: &[i64]) -> Result<Value> {
    let unknown = shape.iter().filter(|&&n| n == -1).count();
    let known: Option<usize> = shape
        .iter()
        .filter(|&&n| n != -1)
        .try_fold(1usize, |product, &n| product.checked_mul(usize::try_from(n).ok()?));
    let fits = known.filter(|_| unknown <= 1).is_some_and(|known| match unknown {
        0 => known == a.size(),
        _ => known > 0 && a.size().is_multiple_of(known),
    });
    if unknown > 1 {
        return Err(Error::value("[reshape] Reshape can only infer one dimension."));
    }
    if unknown == 1 && known == Some(0) {
        return Err(Error::value("[reshape] Cannot infer the shape of an empty array"));
    }
    if !fits {
        let message = format!(
            "[reshape] Cannot reshape array of size {} into shape {}.",
            a.size(),
            tuple(shape)
        );
        return Err(Error::value(message));
    }
    let shape: Vec<isize> = shape.iter().map(|&n| n as isize).collect();
    a.like(a.array().reshape(&shape))
}

/// Axes `start` to `end`, both included, merged into one.
///
/// # Errors
/// Fails if an axis does not exist, or if the last comes before the first.
pub fn flatten(a: &Value, start: i64, end: i64) -> Result<Value> {
    let rank = a.ndim();
    if rank == 0 {
        return reshape(a, &[1]);
    }
    let clamped = |axis: i64| if axis < 0 { axis + rank as i64 } else { axis };
    let (first, last) = (clamped(start).max(0), clamped(end).min(rank as i64 - 1));
    if first >= rank as i64 || last < 0 {
        return Err(Error::axis("flatten", if last < 0 { end } else { start }, rank));
    }
    if last < first {
        return Err(Error::value(
            "[flatten] start_axis must be less than or equal to end_axis",
        ));
    }
    let (first, last) = (first as usize, last as usize);
    let merged: usize = a.shape()[first..=last].iter().product();
    let shape = [&a.shape()[..first], &[merged], &a.shape()[last + 1..]].concat();
    a.like(a.array().reshape(&signed(&shape)))
}

/// An axis split into several; one extent may be −1.
///
/// # Errors
/// Fails if the axis does not exist, or if its extent is not the product of the new ones.
pub fn unflatten(a: &Value, axis: i64, shape: &[i64]) -> Result<Value> {
    if shape.is_empty() {
        return Err(Error::value("[unflatten] Shape to unflatten to cannot be empty."));
    }
    let axis = shape::axis("unflatten", axis, a.ndim())?;
    let (n, known): (usize, i64) = (a.shape()[axis], shape.iter().filter(|&&n| n != -1).product());
    let mut new = shape.to_vec();
    if let Some(unknown) = new.iter_mut().find(|n| **n == -1).filter(|_| known > 0) {
        *unknown = n as i64 / known;
    }
    if new.iter().product::<i64>() != n as i64 {
        let message = format!(
            "[unflatten] Cannot unflatten axis {axis} with size {n} into shape {}.",
            tuple(shape)
        );
        return Err(Error::value(message));
    }
    let whole = |extents: &[usize]| extents.iter().map(|&n| n as i64).collect::<Vec<_>>();
    reshape(
        a,
        &[whole(&a.shape()[..axis]), new, whole(&a.shape()[axis + 1..])].concat(),
    )
}

/// Axes in another order; `None` reverses them.
///
/// # Errors
/// Fails unless every axis is named once.
pub fn transpose(a: &Value, axes: Option<&[i64]>) -> Result<Value> {
    let Some(axes) = axes else {
        return a.like(a.array().transpose());
    };
    if axes.len() != a.ndim() {
        let message = format!(
            "[transpose] Recived {} axes for array with {} dimensions.",
            axes.len(),
            a.ndim()
        );
        return Err(Error::value(message));
    }
    shape::axes("transpose", Some(axes), a.ndim())?;
    let axes: Vec<isize> = axes.iter().map(|&axis| axis as isize).collect();
    a.like(a.array().permute(&axes))
}

/// Two axes swapped.
///
/// # Errors
/// Fails if an axis does not exist.
pub fn swapaxes(a: &Value, axis1: i64, axis2: i64) -> Result<Value> {
    let axis1 = shape::axis("swapaxes", axis1, a.ndim())?;
    let axis2 = shape::axis("swapaxes", axis2, a.ndim())?;
    a.like(a.array().swap_axes(axis1 as isize, axis2 as isize))
}

/// An axis moved to another position.
///
/// # Errors
/// Fails if an axis does not exist.
pub fn moveaxis(a: &Value, source: i64, destination: i64) -> Result<Value> {
    let source = shape::axis("moveaxis", source, a.ndim())?;
    let destination = shape::axis("moveaxis", destination, a.ndim())?;
    let mut order: Vec<isize> = (0..a.ndim()).filter(|&d| d != source).map(|d| d as isize).collect();
    order.insert(destination, source as isize);
    a.like(a.array().permute(&order))
}

/// New axes of extent 1, at these positions of the result.
///
/// # Errors
/// Fails if an axis does not exist in the result, or is given twice.
pub fn expand_dims(a: &Value, axes: &[i64]) -> Result<Value> {
    let rank = a.ndim() + axes.len();
    let new = shape::axes("expand_dims", Some(axes), rank)?;
    let mut old = a.shape().iter();
    let shape: Vec<usize> = (0..rank)
        .map(|d| {
            if new.contains(&d) {
                1
            } else {
                *old.next().expect("as many as before")
            }
        })
        .collect();
    a.like(a.array().reshape(&signed(&shape)))
}

/// Axes of extent 1 removed; `None` removes all of them.
///
/// # Errors
/// Fails if an axis does not exist, or has another extent.
pub fn squeeze(a: &Value, axes: Option<&[i64]>) -> Result<Value> {
    let removed = match axes {
        None => (0..a.ndim()).filter(|&d| a.shape()[d] == 1).collect(),
        Some(_) => shape::axes("squeeze", axes, a.ndim())?,
    };
    if let Some(&axis) = removed.iter().find(|&&axis| a.shape()[axis] != 1) {
        let n = a.shape()[axis];
        let message = format!("[squeeze] Cannot squeeze axis {axis} with size {n} which is not equal to 1.");
        return Err(Error::value(message));
    }
    let kept = (0..a.ndim()).filter(|d| !removed.contains(d));
    let shape: Vec<usize> = kept.map(|d| a.shape()[d]).collect();
    a.like(a.array().reshape(&signed(&shape)))
}

/// Broadcast to a shape.
///
/// # Errors
/// Fails if NumPy's rules do not allow it.
pub fn broadcast_to(a: &Value, shape: &[i64]) -> Result<Value> {
    let shape = extents("broadcast_to", shape)?;
    if shape::broadcast("broadcast_to", &[a.shape(), &shape])? != shape {
        let message = format!(
            "[broadcast_shapes] Shapes {} and {} cannot be broadcast.",
            tuple(a.shape()),
            tuple(&shape)
        );
        return Err(Error::value(message));
    }
    a.like(a.array().broadcast_to(&shape))
}

/// The common shape of several shapes.
///
/// # Errors
/// Fails if there are no shapes, or if they do not broadcast.
pub fn broadcast_shapes(shapes: &[&[usize]]) -> Result<Vec<usize>> {
    if shapes.is_empty() {
        return Err(Error::value("[broadcast_shapes] Must provide at least one shape."));
    }
    shape::broadcast("broadcast_shapes", shapes)
}

/// All values broadcast to their common shape.
///
/// # Errors
/// Fails if the shapes do not broadcast.
pub fn broadcast_arrays(values: &[Value]) -> Result<Vec<Value>> {
    let shapes: Vec<&[usize]> = values.iter().map(Value::shape).collect();
    let shape = shape::broadcast("broadcast_arrays", &shapes)?;
    values
        .iter()
        .map(|value| value.like(value.array().broadcast_to(&shape)))
        .collect()
}

/// A copy in row-major order.
///
/// # Errors
/// Never fails today.
pub fn contiguous(a: &Value) -> Result<Value> {
    a.like(a.array().contiguous())
}

/// Elements in reverse order along axes.
///
/// # Errors
/// Fails if an axis does not exist.
pub fn flip(a: &Value, axes: Option<&[i64]>) -> Result<Value> {
    let mut x = a.array().clone();
    for axis in shape::axes("flip", axes, a.ndim())? {
        x = reversed(&x, axis);
    }
    a.like(x)
}

/// An array in reverse order along an axis.
pub(crate) fn reversed(x: &Array, axis: usize) -> Array {
    let n = x.shape()[axis];
    if n < 2 {
        return x.clone();
    }
    let indices = (n as i32 - 1) - Array::arange(x.device(), refrain::DType::I32, n);
    x.take(&indices, axis as isize)
}

/// Elements moved along axes, those at the end to the start; without axes, of the flattened array.
///
/// # Errors
/// Fails if an axis does not exist, or if there are as many shifts as axes.
pub fn roll(a: &Value, shifts: &[i64], axes: Option<&[i64]>) -> Result<Value> {
    let Some(axes) = axes else {
        let flat = reshape(a, &[-1])?;
        let rolled = roll(&flat, &[shifts.iter().sum()], Some(&[0]))?;
        return a.like(rolled.array().reshape(&signed(a.shape())));
    };
    let shifts = if shifts.len() == 1 {
        vec![shifts[0]; axes.len()]
    } else {
        shifts.to_vec()
    };
    if shifts.len() != axes.len() {
        return Err(Error::value(
            "[roll] At least one shift value for each axis is required.",
        ));
    }
    let mut x = a.array().clone();
    for (&axis, shift) in axes.iter().zip(shifts) {
        let axis = shape::axis("roll", axis, a.ndim())?;
        let n = x.shape()[axis];
        let cut = if n == 0 {
            0
        } else {
            (-shift).rem_euclid(n as i64) as usize
        };
        if cut > 0 {
            let axis = axis as isize;
            x = refrain::concatenate(&[&x.slice(axis, cut, n), &x.slice(axis, 0, cut)], axis);
        }
    }
    a.like(x)
}

/// Elements of the flattened array at `offset` + Σ strides · indices.
///
/// # Errors
/// Fails if shape and strides have different lengths.
pub fn as_strided(a: &Value, shape: Option<&[i64]>, strides: Option<&[i64]>, offset: i64) -> Result<Value> {
    let shape = match shape {
        Some(shape) => extents("as_strided", shape)?,
        None => a.shape().to_vec(),
    };
    let row_major = || {
        let mut strides = vec![1; shape.len()];
        for d in (1..shape.len()).rev() {
            strides[d - 1] = strides[d] * shape[d] as i64;
        }
        strides
    };
    let strides = strides.map_or_else(row_major, <[i64]>::to_vec);
    if strides.len() != shape.len() {
        return Err(Error::value(
            "[as_strided] shape and strides must have the same length.",
        ));
    }
    let device = a.array().device();
    let mut index = Array::full(device, refrain::DType::I32, &[], offset);
    for (d, (&n, &stride)) in shape.iter().zip(&strides).enumerate() {
        let mut along = vec![1; shape.len()];
        along[d] = n as isize;
        index = index + &(Array::arange(device, refrain::DType::I32, n).reshape(&along) * stride);
    }
    a.like(a.array().reshape(&[-1]).take(&index.broadcast_to(&shape), 0))
}

/// The same bytes as elements of another dtype. The last extent changes with the size of the elements.
///
/// This computes the value and copies it through host memory.
///
/// # Errors
/// Fails if the last extent is not divisible, if the dtype is not supported, and as [`crate::eval`].
pub fn view(a: &Value, dtype: DType) -> Result<Value> {
    if dtype == a.dtype() {
        return Ok(a.clone());
    }
    dtype.stored()?;
    let mut shape = a.shape().to_vec();
    if dtype.size() != a.dtype().size() {
        let Some(last) = shape.last_mut() else {
            let message = "[view] Changing the type of a scalar is only allowed for types with the same size.";
            return Err(Error::value(message));
        };
        let bytes = *last * a.dtype().size();
        if !bytes.is_multiple_of(dtype.size()) {
            let message = "[view] When viewing as a larger dtype, the size in bytes of the last axis must be a multiple of the requested type size.";
            return Err(Error::value(message));
        }
        *last = bytes / dtype.size();
    }
    let mut bytes = a.to_bytes()?;
    if dtype == DType::Bool {
        bytes.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
    }
    Value::from_bytes(&bytes, dtype, &shape)
}
