//! The elements of the last dimension in ascending order.
//!
//! `x` `[.., n]` of any dtype → `out`, the same, both without gaps; NaN comes last and -0 before 0.
//!
//! A bitonic network (Batcher 1968) over keys, unsigned words in the same order as elements; rows are filled up to a
//! power of two with what is larger than everything. A workgroup sorts a block in shared memory. Rows of several
//! blocks go through a workspace: between elements that are blocks apart, each step of the network is a call of its
//! own.

pub mod argmax;
pub mod top_k;

use rayon::prelude::*;

use crate::kit::text::{self, Text};
use crate::kit::threads::least_items;
use crate::kit::walk;
use crate::{Call, DType, OperandSpec, Push, Traits, Unsupported, Values};

const OP: &str = "sort";

/// The number of the workspace, behind `x` and `out`.
const WORKSPACE: usize = 2;

/// What a call does, as the shader numbers it.
#[derive(Clone, Copy)]
enum SortStage {
    /// Sorts rows of one block.
    Whole,
    /// Sorts each block of longer rows, every other one downwards.
    Blocks,
    /// Compares elements that are blocks apart.
    Apart,
    /// Finishes within blocks what was compared apart.
    Within,
    /// As the one before, for the last time: what comes of it is the result.
    Last,
}

/// The calls for operands `x` (0) and `out` (1), each depending on the one before, and the workspace that they need,
/// if any (2), whose contents do not matter.
///
/// # Errors
/// When dtypes or shapes do not fit, an operand must be copied first, or there are more than 2³¹ elements once rows
/// are powers of two.
pub fn calls(
    traits: &Traits,
    x: &OperandSpec,
    out: &OperandSpec,
) -> Result<(Vec<Call>, Option<OperandSpec>), Unsupported> {
    text::require_dtype(OP, out, x.dtype)?;
    text::require_shape(OP, "the result", out, &x.layout.shape)?;
    for (operand, number) in [(x, 0), (out, 1)] {
        text::require_contiguous(OP, operand, number)?;
        walk::check_reach(OP, &operand.layout)?;
    }
    let columns = x.layout.shape.last().copied().unwrap_or(1);
    if x.layout.count() == 0 {
        return Ok((vec![], None));
    }
    let padded = columns.next_power_of_two();
    let rows = x.layout.count() / columns;
    if rows.saturating_mul(padded) > 1 << 31 {
        let what = format!("{rows} rows of {columns} elements, which are sorted as {padded}");
        return Err(Unsupported::Size { op: OP, what });
    }
    let workgroup = traits.workgroup(256);
    let block = 2 * workgroup as usize;
    let problem = SortProblem {
        traits,
        operands: [x, out],
        sizes: [rows, columns, padded],
        workgroup,
    };
    if padded <= block {
        return Ok((vec![problem.call(SortStage::Whole, 0, 0)?], None));
    }
    let mut calls = vec![problem.call(SortStage::Blocks, 0, 0)?];
    let mut size = 2 * block;
    while size <= padded {
        let mut stride = size / 2;
        while stride >= block {
            calls.push(problem.call(SortStage::Apart, size, stride)?);
            stride /= 2;
        }
        let stage = if size == padded {
            SortStage::Last
        } else {
            SortStage::Within
        };
        calls.push(problem.call(stage, size, 0)?);
        size *= 2;
    }
    Ok((calls, Some(OperandSpec::contiguous(DType::U32, &[rows, padded]))))
}

struct SortProblem<'a> {
    traits: &'a Traits,
    operands: [&'a OperandSpec; 2],
    /// Rows, elements of a row, and what these are filled up to.
    sizes: [usize; 3],
    workgroup: u32,
}

impl SortProblem<'_> {
    /// `size`: elements that are brought into order together; `stride`: how far apart those are that are compared.
    fn call(&self, stage: SortStage, size: usize, stride: usize) -> Result<Call, Unsupported> {
        let ([x, out], [rows, columns, padded]) = (self.operands, self.sizes);
        let block = 2 * self.workgroup;
        let kind = match x.dtype.compute() {
            DType::F32 => "FLOATS",
            DType::I32 => "SIGNED",
            _ => "UNSIGNED",
        };
        let kernel = Text::new(self.traits, OP)
            .flag(kind, true)
            .input("x", x.dtype)
            .output("y", out.dtype)
            .body(include_str!("sort.comp"))
            .kernel(vec![(0, self.workgroup), (3, block), (4, stage as u32)]);
        let keys = match stage {
            SortStage::Whole => out.address(1),
            _ => Push::Address {
                operand: WORKSPACE,
                bytes: 0,
            },
        };
        let mut push = vec![x.address(0), out.address(1), keys];
        push.extend([rows, columns, padded, size, stride].map(|number| Push::U32(number as u32)));
        let groups = text::grid(OP, rows * padded.div_ceil(block as usize))?;
        Ok(Call { kernel, groups, push })
    }
}

/// The same on contiguous rows of `columns` elements.
pub fn reference(x: &Values, columns: usize) -> Values {
    fn sorted<T: Copy + Send + Sync, K: Ord>(x: &[T], columns: usize, key: impl Fn(&T) -> K + Sync) -> Vec<T> {
        let mut x = x.to_vec();
        x.par_chunks_mut(columns.max(1))
            .with_min_len(least_items(columns))
            .for_each(|row| row.sort_by_key(&key));
        x
    }
    match x {
        Values::F32(x) => Values::F32(sorted(x, columns, |x| {
            let bits = x.to_bits();
            match x.is_nan() {
                true => u32::MAX,
                false if bits >> 31 == 1 => !bits,
                false => bits | 1 << 31,
            }
        })),
        Values::I32(x) => Values::I32(sorted(x, columns, |x| *x)),
        Values::U32(x) => Values::U32(sorted(x, columns, |x| *x)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_ascends_with_nan_last() {
        let x = Values::F32(vec![2.0, f32::NAN, -1.0, 0.0, -0.0, 5.0, f32::NEG_INFINITY, 4.0]);
        let Values::F32(sorted) = reference(&x, 4) else {
            panic!("floats stay floats")
        };
        assert_eq!(sorted[..3], [-1.0, 0.0, 2.0]);
        assert!(sorted[3].is_nan());
        let bits: Vec<u32> = sorted[4..].iter().map(|x| x.to_bits()).collect();
        assert_eq!(bits, [f32::NEG_INFINITY, -0.0, 4.0, 5.0].map(f32::to_bits));
        assert_eq!(reference(&Values::I32(vec![3, -7, 0]), 3), Values::I32(vec![-7, 0, 3]));
    }
}
