//! Index of the largest element of the last dimension.
//!
//! `x` `[.., n]` of any dtype and strides, n ≥ 1 → `out` `[..]` u32, any strides. Of equal elements
//! the first wins (-0 equals 0). NaN is larger than everything.

use rayon::prelude::*;

use crate::kit::order;
use crate::kit::rows::RowLayout;
use crate::kit::text::{self, SourceBuilder};
use crate::kit::threads::min_items;
use crate::{Call, DType, Layout, OperandSpec, Traits, Unsupported, Values};

const OP: &str = "argmax";

/// Operand number of the workspace, after `x` and `out`.
const WORKSPACE: usize = 2;

/// Returns the calls for operands `x` (0) and `out` (1), each depending on the one before, and the workspace they need,
/// if any (2), whose contents do not matter.
///
/// With few long rows, several workgroups split each row, and a second call chooses among what they found.
///
/// # Errors
/// When rows are empty, dtypes or shapes do not match, or sizes exceed the limits of a kernel.
pub fn calls(
    traits: &Traits,
    x: &OperandSpec,
    out: &OperandSpec,
) -> Result<(Vec<Call>, Option<OperandSpec>), Unsupported> {
    text::require_dtype(OP, out, DType::U32)?;
    let columns = x.layout.shape.last().copied().unwrap_or(0);
    if columns == 0 {
        let what = format!("argmax of no elements in shape {:?}", x.layout.shape);
        return Err(Unsupported::Size { op: OP, what });
    }
    let rows = RowLayout::new(OP, [&x.layout, &repeated(out, columns)], 1)?;
    let definitions = concat!("#define LANE_VALUE uint\n", include_str!("../kit/order.glsl"));
    let body = include_str!("argmax.comp");
    let lanes = rows.lanes(traits);
    let parts = rows.splits(traits, lanes);
    if parts == 1 {
        let call = rows.call(SourceBuilder::new(traits, OP), [x, out], definitions, body, lanes)?;
        return Ok((vec![call], None));
    }
    // The largest element of each part, as its key and its index.
    let shape: Vec<usize> = out.layout.shape.iter().copied().chain([parts, 2]).collect();
    let workspace = OperandSpec::contiguous(DType::U32, &shape);
    let split = rows.call_with(
        SourceBuilder::new(traits, "argmax.split"),
        [(x, 0), (&workspace, WORKSPACE)],
        definitions,
        body,
        lanes,
        [parts, 0],
    )?;
    let keys = OperandSpec {
        dtype: DType::U32,
        layout: Layout {
            shape: shape[..shape.len() - 1].into(),
            strides: workspace.layout.strides[..shape.len() - 1].into(),
            offset: 0,
        },
    };
    let found = RowLayout::new(OP, [&keys.layout, &repeated(out, parts)], 1)?;
    let choose = found.call_with(
        SourceBuilder::new(traits, "argmax.choose").flag("PAIRS", true),
        [(&keys, WORKSPACE), (out, 1)],
        definitions,
        body,
        found.lanes(traits),
        [1, 0],
    )?;
    Ok((vec![split, choose], Some(workspace)))
}

/// Returns the output's layout, broadcast along `columns` columns.
fn repeated(out: &OperandSpec, columns: usize) -> Layout {
    Layout {
        shape: [&out.layout.shape[..], &[columns]].concat().into(),
        strides: [&out.layout.strides[..], &[0]].concat().into(),
        offset: out.layout.offset,
    }
}

/// Computes the argmax of contiguous rows of `columns` values.
///
/// # Panics
/// Panics if `columns` is 0.
pub fn reference(x: &Values, columns: usize) -> Vec<u32> {
    assert_ne!(columns, 0, "rows have elements");
    order::keys(x)
        .par_chunks(columns)
        .with_min_len(min_items(columns))
        .map(|row| {
            let mut best = 0;
            for (index, key) in row.iter().enumerate() {
                if *key > row[best] {
                    best = index;
                }
            }
            best as u32
        })
        .collect()
}
