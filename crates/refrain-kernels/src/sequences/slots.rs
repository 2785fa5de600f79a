//! Slots of tokens in a paged KV cache.
//!
//! `positions` `[T]` i32, `sequences` `[T]` u32, `pages` `[S, P]` u32, all contiguous → `out` `[T]` i32:
//! `pages[s, p / page_size] · page_size + p mod page_size` for position p of sequence s; −1 for a
//! negative position, and if the page table has no such row or page.

use crate::kit::text::{SourceBuilder, address, grid, require_dtype, require_shape};
use crate::{Call, DType, OperandSpec, Push, Traits, Unsupported};

const OP: &str = "slots";

/// Returns the call. Operands: positions 0, sequences 1, pages 2, out 3.
///
/// # Errors
/// When dtypes or shapes do not match, or an operand is not contiguous.
pub fn call(
    traits: &Traits,
    positions: &OperandSpec,
    sequences: &OperandSpec,
    pages: &OperandSpec,
    out: &OperandSpec,
    page_size: usize,
) -> Result<Call, Unsupported> {
    require_dtype(OP, positions, DType::I32)?;
    require_dtype(OP, sequences, DType::U32)?;
    require_dtype(OP, pages, DType::U32)?;
    require_dtype(OP, out, DType::I32)?;
    let (&[tokens], &[rows, table]) = (&positions.layout.shape[..], &pages.layout.shape[..]) else {
        let what = format!(
            "positions and pages have shapes {:?} and {:?}, expected 1 and 2 dimensions",
            positions.layout.shape, pages.layout.shape
        );
        return Err(Unsupported::Size { op: OP, what });
    };
    require_shape(OP, "sequences", sequences, &[tokens])?;
    require_shape(OP, "the result", out, &[tokens])?;
    let mut push = Vec::new();
    for (operand, number) in [positions, sequences, pages, out].into_iter().zip(0..) {
        if !operand.layout.is_contiguous() {
            return Err(Unsupported::NeedsContiguous {
                op: OP,
                operand: number,
            });
        }
        push.push(address(OP, number, operand)?);
    }
    push.extend([tokens, rows, table, page_size].map(|v| Push::U32(v as u32)));
    let threads = traits.workgroup(64);
    let kernel = SourceBuilder::new(traits, OP)
        .input("positions", DType::I32)
        .input("sequences", DType::U32)
        .input("pages", DType::U32)
        .output("out", DType::I32)
        .body(include_str!("slots.comp"))
        .kernel(vec![(0, threads)]);
    Ok(Call {
        kernel,
        groups: grid(OP, tokens.div_ceil(threads as usize))?,
        push,
    })
}

/// Computes the slots in plain Rust; `shape` is that of `pages`.
///
/// # Panics
/// Panics if `pages` does not hold the elements of `shape`.
pub fn reference(positions: &[i32], sequences: &[u32], pages: &[u32], shape: &[usize], page_size: usize) -> Vec<i32> {
    let (rows, table) = (shape[0], shape[1]);
    let slot = |(&position, &sequence): (&i32, &u32)| {
        let position = usize::try_from(position).ok()?;
        let (row, page) = (sequence as usize, position / page_size);
        let page = (row < rows && page < table).then(|| pages[row * table + page])?;
        i32::try_from(page as usize * page_size + position % page_size).ok()
    };
    positions
        .iter()
        .zip(sequences)
        .map(|pair| slot(pair).unwrap_or(-1))
        .collect()
}
