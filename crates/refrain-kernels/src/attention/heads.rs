//! Norm and RoPE of heads in one dispatch: what [`super::prepare`] does for queries, without the others.
//!
//! `x` `[T, H, D]`, floats whose heads may have gaps, and `positions` `[T]` i32 → `out` `[T, H, D]`, contiguous floats. The
//! result is that of [`crate::rms_norm`] over each head and then [`crate::rope`].
//!
//! Operands by number: x 0, positions 1, RoPE's frequencies 2, the norm's weight 3 if it has one; then out.

use super::HeadPreparation;
use super::OP;
use super::prepare::{PrepareSizes, PrepareVariant, check_head_dim, finished, source};
use crate::kit::arguments::PushArguments;
use crate::kit::text::{address, is_wide, require_contiguous, require_dtype, require_float, require_shape};
use crate::rms_norm::Norm;
use crate::rope::RopeParams;
use crate::{Call, DType, OperandSpec, Traits, Unsupported};

/// Number of the first optional operand.
const OPTIONAL: usize = 2;

/// Norm and RoPE as those of queries.
fn preparation(norm: Norm, rope: RopeParams) -> HeadPreparation {
    HeadPreparation {
        rope: Some(rope),
        q_norm: Some(norm),
        k_norm: None,
    }
}

/// Returns the operand numbers of the frequencies and of the norm's weight, where present.
fn optional(heads: &HeadPreparation) -> [Option<usize>; 3] {
    heads.numbers(OPTIONAL)
}

/// Checks the operands and returns their extents.
fn checked(operands: &[&OperandSpec], heads: &HeadPreparation) -> Result<PrepareSizes, Unsupported> {
    let out = OPTIONAL + heads.operands();
    if operands.len() != out + 1 {
        let what = format!("{} operands given, expected {}", operands.len(), out + 1);
        return Err(Unsupported::Size { op: OP, what });
    }
    let [x, positions, out] = [0, 1, out].map(|number| operands[number]);
    let &[tokens, count, head_dim] = &x.layout.shape[..] else {
        let what = format!("heads have shape {:?}, expected 3 dimensions", x.layout.shape);
        return Err(Unsupported::Size { op: OP, what });
    };
    require_float(OP, x)?;
    require_float(OP, out)?;
    require_dtype(OP, positions, DType::I32)?;
    require_shape(OP, "the result", out, &x.layout.shape)?;
    require_shape(OP, "positions", positions, &[tokens])?;
    check_head_dim(head_dim)?;
    if [tokens, count].contains(&0) {
        let what = "tokens and heads must not be 0".to_string();
        return Err(Unsupported::Size { op: OP, what });
    }
    require_contiguous(OP, positions, 1)?;
    require_contiguous(OP, out, operands.len() - 1)?;
    if x.layout.strides[2] != 1 {
        return Err(Unsupported::NeedsContiguous { op: OP, operand: 0 });
    }
    heads.check(operands, OPTIONAL, head_dim)?;
    Ok(PrepareSizes {
        tokens,
        heads: count,
        kv_heads: 0,
        head_dim,
        value_dim: head_dim,
        slots: 0,
    })
}

/// Returns the call.
///
/// # Errors
/// [`Unsupported::NeedsContiguous`] when a head's values, positions or the result are not contiguous;
/// [`Unsupported::Size`] when shapes contradict each other; [`Unsupported::DType`] for operands of other types.
pub fn call(traits: &Traits, operands: &[&OperandSpec], norm: Norm, rope: RopeParams) -> Result<Call, Unsupported> {
    let heads = preparation(norm, rope);
    let sizes = checked(operands, &heads)?;
    let variant = PrepareVariant::of(traits, &sizes, &heads);
    let (x, out) = (operands[0], operands[operands.len() - 1]);
    let mut arguments = PushArguments::new(traits);
    arguments.address("x_ref q".to_string(), address(OP, 0, x)?);
    arguments.address("positions_ref positions".to_string(), address(OP, 1, operands[1])?);
    for (name, number) in HeadPreparation::NAMES.into_iter().zip(optional(&heads)) {
        let Some(number) = number else { continue };
        arguments.address(format!("{name}_ref {name}"), address(OP, number, operands[number])?);
    }
    arguments.address("y_ref y".to_string(), address(OP, operands.len() - 1, out)?);
    arguments.number("TOKENS", sizes.tokens);
    arguments.number("Q_TOKEN", x.layout.strides[0]);
    arguments.number("Q_HEAD", x.layout.strides[1]);
    arguments.check(OP)?;
    let mut text = source(traits, &variant, "attention.heads")
        .input("x", x.dtype)
        .output("y", out.dtype)
        .input("positions", DType::I32);
    if variant.unit == 4 {
        let fours = |operand: &OperandSpec| is_wide(operand, &operand.layout.strides[..2]);
        text = text
            .runs("x", x.dtype, 4, fours(x))
            .store_vec4("y", out.dtype, fours(out));
    }
    finished(
        text,
        (&variant, &sizes),
        operands,
        (&heads, optional(&heads)),
        &arguments,
    )
}
