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

/// Returns the call for operands `x`, `out`.
///
/// # Errors
/// When rows are empty, dtypes or shapes do not match, or sizes exceed the limits of a kernel (on
/// Mesa's software drivers, rows of about 240 million elements with workgroups of 1,024).
pub fn call(traits: &Traits, x: &OperandSpec, out: &OperandSpec) -> Result<Call, Unsupported> {
    text::require_dtype(OP, out, DType::U32)?;
    let columns = x.layout.shape.last().copied().unwrap_or(0);
    if columns == 0 {
        let what = format!("argmax of no elements in shape {:?}", x.layout.shape);
        return Err(Unsupported::Size { op: OP, what });
    }
    let repeated = Layout {
        shape: [&out.layout.shape[..], &[columns]].concat().into(),
        strides: [&out.layout.strides[..], &[0]].concat().into(),
        offset: out.layout.offset,
    };
    let rows = RowLayout::new(OP, [&x.layout, &repeated], 1)?;
    let definitions = concat!("#define LANE_VALUE uint\n", include_str!("../kit/order.glsl"));
    rows.call(
        SourceBuilder::new(traits, OP),
        [x, out],
        definitions,
        include_str!("argmax.comp"),
        rows.whole(traits, 1)?,
    )
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
