//! What kernels that go through a sequence token by token share: which tokens are whose.
//!
//! Tokens lie on one flat axis; those of one sequence stand in order. `positions` `[T]` i32 and
//! `sequences` `[T]` u32 say where each belongs. A state has a part for each of S sequences; a token of
//! a sequence beyond them counts as the last one's. Position 0 begins a sequence anew, from zeros,
//! whatever the state held. A token of negative position is padding: it changes no state and results in
//! zeros.

pub mod causal_conv;
pub mod delta_net;
pub mod gated_delta;

use crate::kit::iterations;
use crate::kit::text::{require_contiguous, require_dtype, require_shape};
use crate::{DType, OperandSpec, Traits, Unsupported};

/// What a token means to its sequence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Token {
    /// Changes nothing.
    Padding,
    /// The first: what came before is forgotten.
    First,
    /// Any other.
    Next,
}

/// Tokens, in order, with the parts of the state that they belong to.
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

/// Fails unless positions, sequences and the state are what a recurrence takes: `tokens` of each, and a
/// state of f32 `[S, part..]` with S at least 1, all gapless. `first` is the number of the positions'
/// operand; the sequences' and the state's follow. `work` is how often a token makes an invocation loop.
pub(crate) fn check(
    op: &'static str,
    traits: &Traits,
    [positions, sequences, state]: [&OperandSpec; 3],
    first: usize,
    [tokens, work]: [usize; 2],
    part: &[usize],
) -> Result<(), Unsupported> {
    require_dtype(op, positions, DType::I32)?;
    require_dtype(op, sequences, DType::U32)?;
    require_dtype(op, state, DType::F32)?;
    require_shape(op, "positions", positions, &[tokens])?;
    require_shape(op, "sequences", sequences, &[tokens])?;
    let states = state.layout.shape.first().copied().unwrap_or(0);
    let whole: Vec<usize> = [states.max(1)].iter().chain(part).copied().collect();
    require_shape(op, "the state", state, &whole)?;
    let rounds = tokens.saturating_mul(work);
    iterations::check(op, traits, rounds, || format!("{tokens} tokens at once"))?;
    for (operand, number) in [positions, sequences, state].into_iter().zip(first..) {
        require_contiguous(op, operand, number)?;
    }
    Ok(())
}
