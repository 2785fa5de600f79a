//! Recurrent kernels: short causal convolution, the gated delta rule, and both fused as a gated delta net.
//!
//! This module assigns tokens to sequences. Tokens lie on one flat axis; those of one sequence are in order.
//! `positions` `[T]` i32 and `sequences` `[T]` u32 give each token's place. A state holds one slice for each of S
//! sequences; a sequence number beyond the last is clamped to it. Position 0 resets the sequence's state to zeros. A
//! token of negative position is padding: it leaves the state unchanged and its output is zero.

pub mod causal_conv;
pub mod delta_net;
pub mod gated_delta;

use crate::kit::iterations;
use crate::kit::text::{require_contiguous, require_dtype, require_shape};
use crate::{DType, OperandSpec, Traits, Unsupported};

/// What a call computes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RecurrenceForm {
    /// Results, and the next state in place of the state.
    Full,
    /// Results alone: the state stays as it is.
    ResultsOnly,
    /// The next state alone: the call has no results.
    StateOnly,
}

/// How a token acts on the state of its sequence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Token {
    /// Leaves the state unchanged; its output is zero.
    Padding,
    /// The first of its sequence: resets the state to zeros.
    First,
    /// Any later token.
    Next,
}

/// Returns each token's kind and the index of its sequence's slice of the state, in order.
pub(crate) fn tokens<'a>(
    positions: &'a [i32],
    sequences: &'a [u32],
    states: usize,
) -> impl Iterator<Item = (Token, usize)> + 'a {
    let kind = |position: i32| match position {
        ..0 => Token::Padding,
        0 => Token::First,
        _ => Token::Next,
    };
    let pairs = positions.iter().zip(sequences);
    pairs.map(move |(&position, &sequence)| (kind(position), (sequence as usize).min(states - 1)))
}

/// Checks the operands of a recurrence: `tokens` positions and sequences, and a contiguous f32 state `[S, slice..]`.
///
/// `numbers` are those of the three operands. `work` is the number of loop iterations of an invocation per token.
pub(crate) fn check(
    op: &'static str,
    traits: &Traits,
    [positions, sequences, state]: [&OperandSpec; 3],
    numbers: [usize; 3],
    [tokens, work]: [usize; 2],
    slice: &[usize],
) -> Result<(), Unsupported> {
    require_dtype(op, positions, DType::I32)?;
    require_dtype(op, sequences, DType::U32)?;
    require_dtype(op, state, DType::F32)?;
    require_shape(op, "positions", positions, &[tokens])?;
    require_shape(op, "sequences", sequences, &[tokens])?;
    let states = state.layout.shape.first().copied().unwrap_or(0);
    let shape: Vec<usize> = [states.max(1)].iter().chain(slice).copied().collect();
    require_shape(op, "the state", state, &shape)?;
    let iterations = tokens.saturating_mul(work);
    iterations::check(op, traits, iterations, || format!("{tokens} tokens at once"))?;
    for (operand, number) in [positions, sequences, state].into_iter().zip(numbers) {
        require_contiguous(op, operand, number)?;
    }
    Ok(())
}
