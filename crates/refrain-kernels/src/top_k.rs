//! The places of the largest elements of the last dimension, largest first.
//!
//! `x` `[.., n]` of any dtype and strides, 1 ≤ k ≤ n → `out` `[.., k]` u32, any strides. Of equal
//! elements the first comes first (-0 equals 0); NaN counts as larger than everything.
//!
//! Nothing is sorted that is not returned: a workgroup finds the k-th largest element by radix
//! selection (histograms of eight bits at a time, over the value and then over the place, which makes
//! all elements distinct), collects what lies above, and sorts that. Where k is larger than
//! 1,024, each chunk of the result has its own workgroup, which selects both of its ends.

use rayon::prelude::*;

use crate::order;
use crate::rows::Rows;
use crate::text::{self, Text};
use crate::threads::least_items;
use crate::{Call, DType, Layout, Operand, Push, Traits, Unsupported, Values};

const OP: &str = "top_k";

/// Most results that one workgroup sorts.
const CHUNK: usize = 1024;

/// Times an element may be read: two selections of eight histograms, and the collection.
const PASSES: usize = 17;

/// The kernel for operands `x`, `out`; k is the last extent of `out`.
///
/// # Errors
/// When k is 0 or larger than n, dtypes or shapes do not fit, or sizes are beyond what a kernel takes
/// (rows of about 3.5 million elements with workgroups of 1,024, or 450,000 with 128).
pub fn call(traits: &Traits, x: &Operand, out: &Operand) -> Result<Call, Unsupported> {
    text::require_dtype(OP, out, DType::U32)?;
    let ends = (x.layout.shape.split_last(), out.layout.shape.split_last());
    let (Some((&n, _)), Some((&k, leading))) = ends else {
        let what = "a scalar has no last axis".to_string();
        return Err(Unsupported::Size { op: OP, what });
    };
    if k == 0 || k > n {
        let what = format!("the largest {k} of {n} elements");
        return Err(Unsupported::Size { op: OP, what });
    }
    let last = leading.len();
    // Only the rows' starts are walked; columns have one stride on each side.
    let starts = Layout {
        shape: [leading, &[n]].concat(),
        strides: [&out.layout.strides[..last], &[0]].concat(),
        offset: out.layout.offset,
    };
    crate::walk::check_reach(OP, &out.layout)?;
    let rows = Rows::new(OP, [&x.layout, &starts], 1)?;
    let workgroup = traits.workgroup(if n >= 8192 { 1024 } else { 256 });
    if n.div_ceil(workgroup as usize) * PASSES > crate::iterations::MOST_ITERATIONS {
        let what = format!("rows of {n} elements are too long for one workgroup of {workgroup}");
        return Err(Unsupported::Size { op: OP, what });
    }
    let chunks = k.div_ceil(CHUNK);
    let sorted = k.min(CHUNK).next_power_of_two();
    let kernel = Text::new(traits, OP)
        .input("x", x.dtype)
        .output("y", out.dtype)
        .body("#define WALKED 2u\n")
        .body(include_str!("shaders/order.glsl"))
        .body(include_str!("shaders/walk.glsl"))
        .body(include_str!("shaders/top_k.comp"))
        .kernel(vec![(0, workgroup), (3, sorted as u32), (5, rows.outer().rank())]);
    Ok(Call {
        kernel,
        groups: text::grid(OP, rows.rows() * chunks)?,
        push: vec![
            x.address(0),
            out.address(1),
            Push::Record(rows.outer().words()),
            Push::U32(rows.rows() as u32),
            Push::U32(n as u32),
            Push::U32(x.layout.strides[last] as u32),
            Push::U32(k as u32),
            Push::U32(out.layout.strides[last] as u32),
        ],
    })
}

/// The same on contiguous rows of `columns` values: k places for each row.
///
/// # Panics
/// When k is larger than `columns`, or `columns` is 0.
pub fn reference(x: &Values, columns: usize, k: usize) -> Vec<u32> {
    assert!(k <= columns && columns > 0, "the largest {k} of {columns}");
    let keys = order::keys(x);
    let rows: Vec<Vec<u32>> = keys
        .par_chunks(columns)
        .with_min_len(least_items(columns))
        .map(|row| {
            let rank = |&place: &u32| (!row[place as usize], place);
            let mut places: Vec<u32> = (0..columns as u32).collect();
            if k < columns {
                places.select_nth_unstable_by_key(k, rank);
                places.truncate(k);
            }
            places.sort_unstable_by_key(rank);
            places
        })
        .collect();
    rows.concat()
}
