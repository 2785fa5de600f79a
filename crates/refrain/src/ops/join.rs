//! Joining arrays.

use super::elementwise::promote;
use super::{Operation, axis_of};
use crate::{Array, Primitive};

/// The arrays `[.., n₀, ..]`, `[.., n₁, ..]` … one after the other along `axis` (which may count from
/// the last) → `[.., n₀ + n₁ + …, ..]`, in the dtype in which theirs meet. Invalid when there are none,
/// there is no such axis, or another extent differs.
#[track_caller]
pub fn concatenate(arrays: &[&Array], axis: isize) -> Array {
    let operation = Operation::new("concatenate");
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
