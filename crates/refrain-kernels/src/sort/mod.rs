//! Sort of the last dimension, ascending.
//!
//! `x` `[.., n]` of any dtype → `out`, the same, both contiguous. NaN comes last and -0 before 0.
//!
//! A bitonic network (Batcher 1968) sorts keys: unsigned words in the same order as the elements. Rows are padded to a
//! power of two with the largest key. A workgroup sorts a block in shared memory. Rows of several blocks go through a
//! workspace, and each step of the network that compares elements of different blocks is its own call.

pub mod argmax;
pub mod top_k;

use rayon::prelude::*;

use crate::kit::text::{self, SourceBuilder};
use crate::kit::threads::min_items;
use crate::kit::walk;
use crate::{Call, DType, OperandSpec, Push, Traits, Unsupported, Values};

const OP: &str = "sort";

/// Operand number of the workspace, after `x` and `out`.
const WORKSPACE: usize = 2;

/// The stage of a call, numbered as in the shader.
#[derive(Clone, Copy)]
enum SortStage {
    /// Sorts rows of a single block.
    Single,
    /// Sorts each block of longer rows, every second one descending.
    Blocks,
    /// Compares elements of different blocks.
    AcrossBlocks,
    /// Merges within blocks after [`SortStage::AcrossBlocks`].
    WithinBlocks,
    /// Merges within blocks for the last time, and stores the output.
    Last,
}

/// Returns the calls for operands `x` (0) and `out` (1), each depending on the one before, and the workspace they need,
/// if any (2), whose contents do not matter.
///
/// # Errors
/// When dtypes or shapes do not match, an operand must be copied first, or there are more than 2³¹ elements after
/// padding rows to powers of two.
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
        let what = format!("{rows} rows of {columns} elements, padded to {padded}, exceed 2³¹ elements");
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
        return Ok((vec![problem.call(SortStage::Single, 0, 0)?], None));
    }
    let mut calls = vec![problem.call(SortStage::Blocks, 0, 0)?];
    let mut size = 2 * block;
    while size <= padded {
        let mut stride = size / 2;
        while stride >= block {
            calls.push(problem.call(SortStage::AcrossBlocks, size, stride)?);
            stride /= 2;
        }
        let stage = if size == padded {
            SortStage::Last
        } else {
            SortStage::WithinBlocks
        };
        calls.push(problem.call(stage, size, 0)?);
        size *= 2;
    }
    Ok((calls, Some(OperandSpec::contiguous(DType::U32, &[rows, padded]))))
}

struct SortProblem<'a> {
    traits: &'a Traits,
    operands: [&'a OperandSpec; 2],
    /// Rows, elements per row, and elements per padded row.
    sizes: [usize; 3],
    workgroup: u32,
}

impl SortProblem<'_> {
    /// Returns the call of a stage. `size` is the length of the sorted runs, `stride` the distance of compared
    /// elements.
    fn call(&self, stage: SortStage, size: usize, stride: usize) -> Result<Call, Unsupported> {
        let ([x, out], [rows, columns, padded]) = (self.operands, self.sizes);
        let block = 2 * self.workgroup;
        let kind = match x.dtype.compute() {
            DType::F32 => "FLOATS",
            DType::I32 => "SIGNED",
            _ => "UNSIGNED",
        };
        let kernel = SourceBuilder::new(self.traits, OP)
            .flag(kind, true)
            .input("x", x.dtype)
            .output("y", out.dtype)
            .body(include_str!("sort.comp"))
            .kernel(vec![(0, self.workgroup), (3, block), (4, stage as u32)]);
        let keys = match stage {
            SortStage::Single => out.address(1),
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

/// Sorts contiguous rows of `columns` elements.
pub fn reference(x: &Values, columns: usize) -> Values {
    fn sorted<T: Copy + Send + Sync, K: Ord>(x: &[T], columns: usize, key: impl Fn(&T) -> K + Sync) -> Vec<T> {
        let mut x = x.to_vec();
        x.par_chunks_mut(columns.max(1))
            .with_min_len(min_items(columns))
            .for_each(|row| row.sort_by_key(&key));
        x
    }
    match x {
        Values::F32(x) => Values::F32(sorted(x, columns, |x| {
            let bits = x.to_bits();
            if x.is_nan() {
                u32::MAX
            } else if bits >> 31 == 1 {
                !bits
            } else {
                bits | 1 << 31
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
    fn rows_are_ascending_with_nan_last() {
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
