//! The place of the largest element of the last dimension.
//!
//! `x` `[.., n]` of any dtype and strides, n ≥ 1 → `out` `[..]` u32, any strides. Of equal elements
//! the first counts (-0 equals 0); NaN counts as larger than everything.

use rayon::prelude::*;

use crate::order;
use crate::rows::Rows;
use crate::text::{self, Text};
use crate::{Call, DType, Layout, Operand, Push, Traits, Unsupported, Values};

const OP: &str = "argmax";

/// The kernel for operands `x`, `out`.
///
/// # Errors
/// When rows are empty, dtypes or shapes do not fit, or sizes are beyond what a kernel takes (rows of
/// about 15 million elements).
pub fn call(traits: &Traits, x: &Operand, out: &Operand) -> Result<Call, Unsupported> {
    text::require_dtype(OP, out, DType::U32)?;
    let columns = x.layout.shape.last().copied().unwrap_or(0);
    if columns == 0 {
        let what = format!("no element to choose from in shape {:?}", x.layout.shape);
        return Err(Unsupported::Size { op: OP, what });
    }
    let repeated = Layout {
        shape: [&out.layout.shape[..], &[columns]].concat(),
        strides: [&out.layout.strides[..], &[0]].concat(),
        offset: out.layout.offset,
    };
    let rows = Rows::new(OP, [&x.layout, &repeated], 1)?;
    let lanes = rows.lanes(OP, traits, 1)?;
    let (words, inner) = rows.words();
    let kernel = Text::new(traits, OP)
        .input("x", x.dtype)
        .output("y", out.dtype)
        .body("#define WALKED 2u\n#define LANE_VALUE uint\n")
        .body(include_str!("shaders/order.glsl"))
        .body(include_str!("shaders/walk.glsl"))
        .body(include_str!("shaders/lanes.glsl"))
        .body(include_str!("shaders/argmax.comp"))
        .kernel(lanes.constants());
    Ok(Call {
        kernel,
        groups: rows.groups(OP, lanes)?,
        push: vec![
            x.address(0),
            out.address(1),
            Push::Record(words),
            Push::U32(rows.rows() as u32),
            Push::U32(columns as u32),
            Push::U32(inner),
        ],
    })
}

/// The same on contiguous rows of `columns` values.
///
/// # Panics
/// When `columns` is 0.
pub fn reference(x: &Values, columns: usize) -> Vec<u32> {
    assert_ne!(columns, 0, "an element to choose from");
    order::keys(x)
        .par_chunks(columns)
        .map(|row| {
            let mut best = 0;
            for (place, key) in row.iter().enumerate() {
                if *key > row[best] {
                    best = place;
                }
            }
            best as u32
        })
        .collect()
}
