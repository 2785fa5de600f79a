//! Joining arrays.

use super::axis_of;
use super::elementwise::promote;
use crate::{Array, Primitive};

/// The arrays one after the other along `axis` (which may count from the last); other extents equal.
///
/// # Panics
/// When `arrays` is empty.
#[track_caller]
pub fn concatenate(arrays: &[&Array], axis: isize) -> Array {
    let first = arrays[0];
    let Some(axis) = axis_of(first, axis) else {
        return Array::invalid(first, "concatenate", format!("no axis {axis} in {:?}", first.shape()));
    };
    let mut shape = first.shape().to_vec();
    shape[axis] = 0;
    for x in arrays {
        let fits = x.rank() == shape.len() && (0..shape.len()).all(|d| d == axis || x.shape()[d] == shape[d]);
        if !fits {
            let what = format!("{:?} does not join {:?} along axis {axis}", x.shape(), first.shape());
            return Array::invalid(if x.error().is_some() { x } else { first }, "concatenate", what);
        }
        shape[axis] += x.shape()[axis];
    }
    let dtype = arrays.iter().map(|x| x.dtype()).reduce(promote).expect("not empty");
    let converted: Vec<Array> = arrays.iter().map(|x| x.astype(dtype)).collect();
    let inputs: Vec<&Array> = converted.iter().collect();
    Array::lazy(Primitive::Concatenate { axis }, &inputs, &shape, dtype)
}
