//! Short causal depthwise convolution.

use std::hash::Hasher;

use refrain_kernels::causal_conv;

use super::checked;
use crate::BatchTokens;
use refrain::Array;
use refrain::operation::{
    self, ArraySpec, HostStep, Kernels, OperandSpec, Operation, Traits, Unsupported, Values, exact_inputs,
};

/// (x `[T, C]`, weights `[C, W]`, positions `[T]`, sequences `[T]`, state `[S, W−1, C]`) → `[T, C]`, and the state.
#[derive(Debug)]
pub(super) struct CausalConv;

impl Operation for CausalConv {
    fn name(&self) -> &'static str {
        "causal_conv"
    }

    fn key(&self, _state: &mut dyn Hasher) {}

    fn results(&self, inputs: &[&ArraySpec]) -> Result<Vec<ArraySpec>, String> {
        let [x, weights, ..] = exact_inputs::<5>(inputs)?;
        let fits = x.rank() == 2
            && weights.rank() == 2
            && weights.dim(0) == x.dim(1)
            && weights.dim(1) > 0
            && [x, weights].iter().all(|a| a.dtype.is_float());
        checked(inputs, fits, &x.shape, &[weights.dim(1).wrapping_sub(1), x.dim(1)])
    }

    fn updates(&self) -> &[usize] {
        &[4]
    }

    fn lower(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<Kernels, Unsupported> {
        let [x, weights, positions, sequences, state, out] = operation::operands(operands);
        let calls = causal_conv::calls(traits, x, weights, [positions, sequences, state], out)?;
        Ok(Kernels::chained(calls))
    }

    fn reference(&self, step: &HostStep<'_>) {
        let x = step.read();
        let mut state = x.f32(4);
        let inputs = causal_conv::CausalConvInputs {
            x: &x.f32(0),
            weights: &x.f32(1),
            positions: &x.i32(2),
            sequences: &x.u32(3),
            channels: x.shape(0)[1],
        };
        let convolved = causal_conv::reference(&inputs, &mut state);
        drop(x);
        step.store(0, &Values::F32(convolved));
        step.update(4, &Values::F32(state));
    }

    fn multiplications(&self, operands: &[OperandSpec]) -> u64 {
        let taps = operands[1].layout.shape[1] as u64;
        (operands[5].layout.count() as u64).saturating_mul(taps)
    }
}

/// Causal depthwise convolution over the tokens of each sequence: `out[t, c] = Σ_j
/// weights[c, j] · x[t − (W−1) + j, c]`.
///
/// x floats `[T, C]`, weights floats `[C, W]`; state f32 `[S, W−1, C]` holds the last inputs of each sequence, the
/// newest last. → x's shape in f32, and the state's next version.
///
/// The tokens of a sequence are in order. Position 0 resets the sequence's state to zeros. A token of negative position
/// is padding: it leaves the state unchanged and its output is zero. Results are invalid if shapes do not match, or if
/// `state` is not a whole state. GPUs support up to 16 taps.
#[track_caller]
pub fn causal_conv(x: &Array, weights: &Array, tokens: BatchTokens<'_>, state: &Array) -> (Array, Array) {
    let inputs = [x, weights, tokens.positions, tokens.sequences, state];
    let [convolved, next] = Array::apply(CausalConv, &inputs);
    (convolved, next)
}
