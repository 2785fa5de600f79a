//! The write of keys or values into a KV cache in a block format.
//!
//! `rows` `[T, KVH, D]` floats whose heads may have gaps, `slots` `[T]` i32, `state` `[N, KVH, words]` u32 (written):
//! heads of `rows[t]` are rounded to the format and stored in slot `slots[t]`. A slot outside 0 … N−1 is skipped.

use super::BlockFormat;
use crate::kit::text::{SourceBuilder, address, grid, require_contiguous, require_dtype, require_float, require_shape};
use crate::{Call, DType, OperandSpec, Push, Traits, Unsupported};

const OP: &str = "store_blocks";

/// Returns the call for operands `rows`, `slots`, `state`.
///
/// # Errors
/// [`Unsupported::NeedsContiguous`] when a head's values or another operand are not contiguous; [`Unsupported::Size`]
/// when shapes contradict each other; [`Unsupported::DType`] for operands of other types.
pub fn call(
    traits: &Traits,
    [rows, slots, state]: [&OperandSpec; 3],
    format: BlockFormat,
) -> Result<Call, Unsupported> {
    let (&[tokens, heads, dim], &[count, _, _]) = (&rows.layout.shape[..], &state.layout.shape[..]) else {
        let (rows, state) = (&rows.layout.shape, &state.layout.shape);
        let what = format!("rows and state have shapes {rows:?} and {state:?}, expected 3 dimensions");
        return Err(Unsupported::Size { op: OP, what });
    };
    if !format.supports(dim) {
        let what = format!("heads of {dim} values in {}: must be a multiple of 32", format.name);
        return Err(Unsupported::Size { op: OP, what });
    }
    require_float(OP, rows)?;
    require_dtype(OP, slots, DType::I32)?;
    require_dtype(OP, state, DType::U32)?;
    require_shape(OP, "slots", slots, &[tokens])?;
    require_shape(OP, "the state", state, &[count, heads, format.words(dim)])?;
    require_contiguous(OP, slots, 1)?;
    require_contiguous(OP, state, 2)?;
    if rows.layout.strides[2] != 1 {
        return Err(Unsupported::NeedsContiguous { op: OP, operand: 0 });
    }
    let pairs = tokens * heads * dim.div_ceil(64);
    let workgroup = traits.workgroup(64);
    let mut push = vec![address(OP, 0, rows)?, address(OP, 1, slots)?, address(OP, 2, state)?];
    let strides = [rows.layout.strides[0], rows.layout.strides[1]];
    let numbers = [tokens, heads, dim, count].into_iter().chain(strides);
    push.extend(numbers.map(|v| Push::U32(v as u32)));
    Ok(Call {
        kernel: SourceBuilder::new(traits, OP)
            .input("rows", rows.dtype)
            .input("slots", slots.dtype)
            .define("STATE_BITS", format!("{}u", format.bits))
            .body(&format.text("state"))
            .body(include_str!("store.comp"))
            .kernel(vec![(0, workgroup)]),
        groups: grid(OP, pairs.div_ceil(workgroup as usize))?,
        push,
    })
}
