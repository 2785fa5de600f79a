//! What carries a state from token to token.

use super::Caller;
use super::fast::BatchTokens;
use crate::operation::ArraySpec;
use crate::{Array, DType, Primitive};

/// A causal convolution of each channel by itself, over the tokens of each sequence: `out[t, c] = Σ_j
/// weights[c, j] · x[t − (W−1) + j, c]`. x floats `[T, C]`, weights floats `[C, W]`; state f32
/// `[S, W−1, C]` holds the last inputs of each sequence, the newest last. → x's shape in f32, and the
/// state's next version.
///
/// The tokens of a sequence stand in order; one at position 0 begins it anew, from zeros; one of negative
/// position is padding, which changes nothing and gives zeros. Invalid where shapes do not fit, or `state`
/// is no whole state; GPUs take up to 16 taps.
#[track_caller]
pub fn causal_conv(x: &Array, weights: &Array, tokens: BatchTokens<'_>, state: &Array) -> (Array, Array) {
    let operation = Caller::new("causal_conv");
    let inputs = [x, weights, tokens.positions, tokens.sequences, state];
    let fits = x.rank() == 2
        && weights.rank() == 2
        && weights.dim(0) == x.dim(1)
        && weights.dim(1) > 0
        && [x, weights].iter().all(|a| a.dtype().is_float())
        && fits(tokens, x.dim(0), state, &[weights.dim(1).wrapping_sub(1), x.dim(1)]);
    results(operation, Primitive::CausalConv, &inputs, x.shape(), fits)
}

/// The gated delta rule (Yang et al. 2024, arXiv:2412.06464): a memory M of each value head that each token
/// of a sequence lets fade, corrects and reads: `M ← decay · M; M ← M + beta · (v − M k) kᵀ; out = M q`.
/// q and k floats `[T, HK, D]`, v floats `[T, H, E]`, H a multiple of HK; decay and beta floats `[T, H]`;
/// state f32 `[S, H, E, D]`. → f32 `[T, H, E]`, and the state's next version.
///
/// Tokens as in [`causal_conv`]. Invalid where shapes do not fit, or `state` is no whole state.
#[track_caller]
pub fn gated_delta(
    [q, k, v]: [&Array; 3],
    [decay, beta]: [&Array; 2],
    tokens: BatchTokens<'_>,
    state: &Array,
) -> (Array, Array) {
    let operation = Caller::new("gated_delta");
    let inputs = [q, k, v, decay, beta, tokens.positions, tokens.sequences, state];
    let fits = q.rank() == 3
        && v.rank() == 3
        && q.shape() == k.shape()
        && q.count() > 0
        && q.dim(0) == v.dim(0)
        && v.dim(1).is_multiple_of(q.dim(1))
        && [decay, beta].iter().all(|gate| gate.shape() == &v.shape()[..2])
        && inputs[..5].iter().all(|a| a.dtype().is_float())
        && fits(tokens, v.dim(0), state, &[v.dim(1), v.dim(2), q.dim(2)]);
    results(operation, Primitive::GatedDelta, &inputs, v.shape(), fits)
}

/// Whether `state` has a part for each of at least one sequence, and there are places for `count` tokens.
fn fits(tokens: BatchTokens<'_>, count: usize, state: &Array, part: &[usize]) -> bool {
    tokens.positions.shape() == [count]
        && tokens.sequences.shape() == [count]
        && tokens.positions.dtype() == DType::I32
        && tokens.sequences.dtype() == DType::U32
        && state.dtype() == DType::F32
        && state.dim(0) > 0
        && state.shape()[1..] == *part
}

/// The one new result, of this shape, and the next version of the state, which is the last input.
fn results(operation: Caller, primitive: Primitive, inputs: &[&Array], shape: &[usize], fits: bool) -> (Array, Array) {
    if fits {
        let shape = shape.to_vec();
        let dtype = DType::F32;
        let made = operation.results(primitive, inputs, vec![ArraySpec { shape, dtype }]);
        let [result, next] = <[Array; 2]>::try_from(made).expect("a result and a state");
        return (result, next);
    }
    let of = |a: &&Array| format!("{}{:?}", a.dtype(), a.shape());
    let given: Vec<String> = inputs.iter().map(of).collect();
    let (state, given) = given.split_last().expect("there is a state");
    let what = format!("{} do not fit a state {state}", given.join(", "));
    let invalid = operation.invalid(inputs, what);
    (invalid.clone(), invalid)
}
