//! Joining arrays.

use super::elementwise::promote;
use super::number::{Number, filled};
use super::{Caller, axis_of};
use crate::{Array, Primitive};

/// The arrays `[.., n₀, ..]`, `[.., n₁, ..]` … one after the other along `axis` (which may count from
/// the last) → `[.., n₀ + n₁ + …, ..]`, in the dtype in which theirs meet. Invalid when there are none,
/// there is no such axis, or another extent differs.
#[track_caller]
pub fn concatenate(arrays: &[&Array], axis: isize) -> Array {
    joined(Caller::new("concatenate"), arrays, axis)
}

/// Arrays of one shape `[.., ..]` side by side along a new dimension `axis` of the result (which may count
/// from its last) → `[.., n, ..]`, in the dtype in which theirs meet. Invalid when there are none, the
/// result has no such dimension, or shapes differ.
#[track_caller]
pub fn stack(arrays: &[&Array], axis: isize) -> Array {
    let operation = Caller::new("stack");
    if let Some(other) = arrays.iter().find(|x| x.shape() != arrays[0].shape()) {
        let what = format!("{:?} does not stand beside {:?}", other.shape(), arrays[0].shape());
        return operation.invalid(arrays, what);
    }
    let expanded: Vec<Array> = arrays.iter().map(|x| operation.expand_dims(x, axis)).collect();
    joined(operation, &expanded.iter().collect::<Vec<_>>(), axis)
}

impl Array {
    /// As many elements of `value` before and after each dimension as `widths` says: `[n₀, ..]` →
    /// `[before₀ + n₀ + after₀, ..]`. Invalid unless there is a pair for each dimension.
    #[track_caller]
    pub fn pad(&self, widths: &[(usize, usize)], value: impl Into<Number>) -> Array {
        let operation = Caller::new("pad");
        if widths.len() != self.rank() {
            let what = format!("{} pairs of widths for {:?}", widths.len(), self.shape());
            return operation.invalid(&[self], what);
        }
        let value = value.into();
        let mut padded = self.clone();
        for (axis, &(before, after)) in widths.iter().enumerate() {
            let side = |extent: usize| {
                let mut shape = padded.shape().to_vec();
                shape[axis] = extent;
                filled(operation, self.device(), self.dtype(), &shape, value)
            };
            let parts = [(before, side(before)), (1, padded.clone()), (after, side(after))];
            let parts: Vec<&Array> = parts.iter().filter(|part| part.0 > 0).map(|part| &part.1).collect();
            if parts.len() > 1 {
                padded = joined(operation, &parts, axis as isize);
            }
            if padded.error().is_some() {
                break;
            }
        }
        padded
    }
}

fn joined(operation: Caller, arrays: &[&Array], axis: isize) -> Array {
    let [first, ..] = arrays else {
        return operation.invalid(&[], "there is nothing to join".to_string());
    };
    let Some(axis) = axis_of(first, axis) else {
        return operation.invalid(arrays, format!("there is no axis {axis} in {:?}", first.shape()));
    };
    let mut shape = first.shape().to_vec();
    shape[axis] = 0;
    for x in arrays {
        let fits = x.rank() == shape.len() && (0..shape.len()).all(|d| d == axis || x.shape()[d] == shape[d]);
        let Some(extent) = x
            .shape()
            .get(axis)
            .and_then(|&n| shape[axis].checked_add(n))
            .filter(|_| fits)
        else {
            let what = format!("{:?} does not join {:?} along axis {axis}", x.shape(), first.shape());
            return operation.invalid(arrays, what);
        };
        shape[axis] = extent;
    }
    let dtype = arrays.iter().map(|x| x.dtype()).fold(first.dtype(), promote);
    let converted: Vec<Array> = arrays.iter().map(|x| x.astype(dtype)).collect();
    let inputs: Vec<&Array> = converted.iter().collect();
    operation.node(Primitive::Concatenate { axis }, &inputs, &shape, dtype)
}
