//! Short causal depthwise convolution.

use std::hash::{Hash, Hasher};

use refrain_kernels::{RecurrenceForm, causal_conv, tuning};

use super::{checked, detail, finish, updated};
use crate::BatchTokens;
use refrain::Array;
use refrain::operation::{
    self, ArraySpec, HostStep, Kernels, OperandSpec, Operation, Traits, Unsupported, exact_inputs,
};

/// (x `[T, C]`, weights `[C, W]`, positions `[T]`, sequences `[T]`, state `[S, W−1, C]`) → `[T, C]`, and the state; one
/// of both in other forms.
#[derive(Hash, Debug)]
pub(super) struct CausalConv(pub RecurrenceForm);

impl Operation for CausalConv {
    fn name(&self) -> &'static str {
        "causal_conv"
    }

    fn key(&self, mut state: &mut dyn Hasher) {
        self.hash(&mut state);
    }

    fn detail(&self) -> String {
        detail(self.0)
    }

    fn results(&self, inputs: &[&ArraySpec]) -> Result<Vec<ArraySpec>, String> {
        let [x, weights, ..] = exact_inputs::<5>(inputs)?;
        let fits = x.rank() == 2
            && weights.rank() == 2
            && weights.dim(0) == x.dim(1)
            && weights.dim(1) > 0
            && [x, weights].iter().all(|a| a.dtype.is_float());
        let slice = [weights.dim(1).wrapping_sub(1), x.dim(1)];
        checked(self.0, inputs, fits, &x.shape, &slice)
    }

    fn updates(&self) -> &[usize] {
        updated(self.0, &[4])
    }

    fn lower(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<Kernels, Unsupported> {
        let [x, weights, positions, sequences, state] = operation::operands(&operands[..5]);
        // Without results, x has their shape.
        let inputs = [x, weights, operands.get(5).unwrap_or(x)];
        let places = [positions, sequences, state];
        let calls = causal_conv::calls_tuned(tuning::choose(traits), traits, self.0, inputs, places)?;
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
        finish(self.0, step, convolved, [(4, state)]);
    }

    fn multiplications(&self, operands: &[OperandSpec]) -> u64 {
        let taps = operands[1].layout.shape[1] as u64;
        (operands[0].layout.count() as u64).saturating_mul(taps)
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
    let [convolved, next] = Array::apply(CausalConv(RecurrenceForm::Full), &inputs);
    (convolved, next)
}

/// The results of [`causal_conv()`] alone: `state` stays as it is.
#[track_caller]
pub fn causal_conv_results(x: &Array, weights: &Array, tokens: BatchTokens<'_>, state: &Array) -> Array {
    let inputs = [x, weights, tokens.positions, tokens.sequences, state];
    let [convolved] = Array::apply(CausalConv(RecurrenceForm::ResultsOnly), &inputs);
    convolved
}

/// The next version of [`causal_conv()`]'s state alone. positions and sequences as in [`BatchTokens`].
#[track_caller]
pub fn causal_conv_state(x: &Array, weights: &Array, [positions, sequences]: [&Array; 2], state: &Array) -> Array {
    let inputs = [x, weights, positions, sequences, state];
    let [next] = Array::apply(CausalConv(RecurrenceForm::StateOnly), &inputs);
    next
}
