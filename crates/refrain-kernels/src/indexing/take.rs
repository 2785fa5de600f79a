//! Rows (or other slices) of a table, chosen by indices.
//!
//! `table` `[..before, n, ..after]` of any dtype, `indices` `[..picked]` u32 or i32, `axis` (that
//! of `n`) → `out` `[..before, ..picked, ..after]` of the table's dtype:
//! `out[b, p, a] = table[b, indices[p], a]`. An index outside 0 … n-1 gives zeros. Any strides.

use super::gather::{Gather, index_at};
use crate::{Call, Layout, OperandSpec, Traits, Unsupported, Values};

const OP: &str = "take";

/// Returns the output's shape: `table[..axis] ++ indices ++ table[axis + 1..]`.
pub fn output_shape(table: &[usize], indices: &[usize], axis: usize) -> Vec<usize> {
    [&table[..axis], indices, &table[axis + 1..]].concat()
}

/// Returns the call for operands `table`, `indices`, `out`.
///
/// # Errors
/// When the axis does not exist, dtypes or shapes do not match, or sizes exceed the limits of a kernel.
pub fn call(
    traits: &Traits,
    table: &OperandSpec,
    indices: &OperandSpec,
    axis: usize,
    out: &OperandSpec,
) -> Result<Call, Unsupported> {
    let shape = &table.layout.shape;
    if axis >= shape.len() {
        let what = format!("axis {axis} is out of range for a table of shape {shape:?}");
        return Err(Unsupported::Size { op: OP, what });
    }
    let picked = indices.layout.rank();
    let out_shape = output_shape(shape, &indices.layout.shape, axis);
    let broadcast = |before: &[usize], middle: &[usize], after: &[usize], offset| Layout {
        shape: out_shape.clone().into(),
        strides: [before, middle, after].concat().into(),
        offset,
    };
    let strides = &table.layout.strides;
    let (before, after) = (&strides[..axis], &strides[axis + 1..]);
    Gather {
        op: OP,
        source: broadcast(before, &vec![0; picked], after, table.layout.offset),
        indices: broadcast(
            &vec![0; before.len()],
            &indices.layout.strides,
            &vec![0; after.len()],
            indices.layout.offset,
        ),
        axis: (shape[axis], strides[axis]),
        operands: [table, indices, out],
    }
    .call(traits)
}

/// Computes the gather on contiguous values; the output is row-major in [`output_shape`].
///
/// # Panics
/// Panics if the axis does not exist or the indices are floats.
pub fn reference(table: &Values, shape: &[usize], indices: &Values, axis: usize) -> Values {
    let extent = shape[axis];
    let before: usize = shape[..axis].iter().product();
    let after: usize = shape[axis + 1..].iter().product();
    let sources = (0..before).flat_map(|b| {
        (0..indices.len()).flat_map(move |p| {
            let row = index_at(indices, p, extent).map(|index| (b * extent + index) * after);
            (0..after).map(move |a| row.map(|row| row + a))
        })
    });
    table.gather(sources)
}
