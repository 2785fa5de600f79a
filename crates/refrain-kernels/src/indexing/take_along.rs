//! Elements of each row, chosen by that row's indices.
//!
//! `x` `[.., n]` of any dtype, `indices` `[.., m]` u32 or i32 with the same leading dimensions →
//! `out` `[.., m]` of x's dtype: `out[.., j] = x[.., indices[.., j]]`. An index outside 0 … n-1 gives
//! zero. Any strides.

use super::gather::{Gather, index_at};
use crate::{Call, OperandSpec, Traits, Unsupported, Values};

const OP: &str = "take_along";

/// Returns the call for operands `x`, `indices`, `out`.
///
/// # Errors
/// When dtypes or shapes do not match, or sizes exceed the limits of a kernel.
pub fn call(traits: &Traits, x: &OperandSpec, indices: &OperandSpec, out: &OperandSpec) -> Result<Call, Unsupported> {
    let shape = &x.layout.shape;
    let Some((&extent, leading)) = shape.split_last() else {
        let what = "a scalar has no last axis".to_string();
        return Err(Unsupported::Size { op: OP, what });
    };
    let out_shape = &indices.layout.shape;
    if out_shape.split_last().map(|(_, leading)| leading) != Some(leading) {
        let what = format!("indices of shape {out_shape:?} do not match x of shape {shape:?}");
        return Err(Unsupported::Size { op: OP, what });
    }
    let last = shape.len() - 1;
    let mut source = x.layout.clone();
    let stride = std::mem::replace(&mut source.strides[last], 0);
    source.shape.clone_from(out_shape);
    Gather {
        op: OP,
        source,
        indices: indices.layout.clone(),
        axis: (extent, stride),
        operands: [x, indices, out],
    }
    .call(traits)
}

/// Computes the gather on contiguous values: rows of `n` values, rows of `m` indices.
///
/// # Panics
/// Panics if the indices are floats, or if `m` is not 0 and they are not whole rows.
pub fn reference(x: &Values, n: usize, indices: &Values, m: usize) -> Values {
    let sources = (0..indices.len()).map(|number| {
        let row = number / m;
        index_at(indices, number, n).map(|index| row * n + index)
    });
    x.gather(sources)
}
