//! Short causal depthwise convolution with a state, as in Mamba and Gated DeltaNet.
//!
//! `x` `[T, C]` floats, `weights` `[C, W]` floats, `positions` `[T]` i32, `sequences` `[T]` u32, `state`
//! `[S, W−1, C]` f32 (updated) → `out` `[T, C]`, any float type: `out[t, c] = Σ_j weights[c, j] ·
//! x[t − (W−1) + j, c]`. Inputs before the first token of this call come from the sequence's state, oldest first. The
//! call leaves the last W−1 inputs in the state. Tokens belong to sequences as in [`crate::gated_delta`].
//!
//! Few tokens run sequentially: an invocation keeps a channel's last inputs in registers. Many tokens run in parallel:
//! an invocation takes a run of neighbouring tokens, looks back for the inputs before them, and a second call updates
//! the state.
//!
//! The results may be computed without the update of the state, and the update without the results ([`RecurrenceForm`]).

use crate::kit::text::{SourceBuilder, address, grid, outer_strides, require_float, require_shape};
use crate::recurrence::{self, RecurrenceForm, Token};
use crate::tuning::{self, Tuning};
use crate::{Call, OperandSpec, Push, Traits, Unsupported};

const OP: &str = "causal_conv";
/// Maximum number of taps of the convolution: an invocation keeps them in registers.
const MAX_TAPS: usize = 16;
/// Neighbouring tokens of an invocation where tokens run in parallel.
const RUN: usize = 8;

/// Returns the calls, each depending on the one before it. Operands: x 0, weights 1, positions 2, sequences 3, state 4
/// (updated), out 5.
///
/// # Errors
/// When dtypes or shapes do not match, there are more than 16 taps, or an operand must be copied first
/// ([`Unsupported::NeedsContiguous`]).
pub fn calls(
    traits: &Traits,
    x: &OperandSpec,
    weights: &OperandSpec,
    indices: [&OperandSpec; 3],
    out: &OperandSpec,
) -> Result<Vec<Call>, Unsupported> {
    let tuning = tuning::choose(traits);
    calls_tuned(tuning, traits, RecurrenceForm::Full, [x, weights, out], indices)
}

/// [`calls`] with a given row of the tuning table, in any form; results are bit-identical for every row and form. Takes
/// x, weights and out, then positions, sequences and state. [`RecurrenceForm::StateOnly`] has no operand 5: out gives
/// the shape of results only.
///
/// # Errors
/// Those of [`calls`].
pub fn calls_tuned(
    tuning: &Tuning,
    traits: &Traits,
    form: RecurrenceForm,
    [x, weights, out]: [&OperandSpec; 3],
    [positions, sequences, state]: [&OperandSpec; 3],
) -> Result<Vec<Call>, Unsupported> {
    check(traits, [x, weights, out], [positions, sequences, state])?;
    let (&[tokens, channels], &[_, taps]) = (&x.layout.shape[..], &weights.layout.shape[..]) else {
        unreachable!("checked to be matrices")
    };
    let states = state.layout.shape[0];
    let has_results = form != RecurrenceForm::StateOnly;
    let mut push = Vec::new();
    let results = has_results.then_some(out);
    let operands = [x, weights, positions, sequences, state].into_iter().chain(results);
    for (number, operand) in operands.enumerate() {
        push.push(address(OP, number, operand)?);
    }
    push.extend([tokens, channels, states].map(|v| Push::U32(v as u32)));
    push.extend(outer_strides(OP, 0, x)?);
    if has_results {
        push.extend(outer_strides(OP, 5, out)?);
    }
    let threads = traits.workgroup(64);
    let call = |algorithm: &str, bodies: &[&str], groups: [u32; 3]| {
        let text = SourceBuilder::new(traits, &format!("{OP}.{algorithm}"))
            .flag("STATE_ONLY", !has_results)
            .flag("RESULTS_ONLY", form == RecurrenceForm::ResultsOnly)
            .input("x", x.dtype)
            .input("weights", weights.dtype)
            .input("positions", positions.dtype)
            .input("sequences", sequences.dtype);
        let text = match form {
            RecurrenceForm::ResultsOnly => text.input("state", state.dtype),
            RecurrenceForm::Full | RecurrenceForm::StateOnly => text.output("state", state.dtype),
        };
        let text = if has_results { text.output("y", out.dtype) } else { text };
        let text = text.body(include_str!("causal_conv/common.glsl"));
        let text = bodies.iter().fold(text, |text, body| text.body(body));
        Call {
            kernel: text.kernel(vec![(0, threads), (3, taps as u32), (4, RUN as u32)]),
            groups,
            push: push.clone(),
        }
    };
    let sequential = include_str!("causal_conv/sequential.comp");
    let look_back = include_str!("causal_conv/look_back.glsl");
    let parallel = include_str!("causal_conv/parallel.comp");
    let update_state = include_str!("causal_conv/update_state.comp");
    let row_groups = |rows: usize| grid(OP, (rows * channels).div_ceil(threads as usize));
    if has_results && tokens <= tuning.max_serial_conv_tokens {
        return Ok(vec![call("sequential", &[sequential], row_groups(states)?)]);
    }
    if states.max(channels) > 65_535 {
        let what = format!("{states} states of {channels} channels exceed the limits of a dispatch");
        return Err(Unsupported::Size { op: OP, what });
    }
    let state_groups = [channels.div_ceil(threads as usize), states, 1].map(|g| g.max(1) as u32);
    let mut calls = vec![];
    if has_results {
        let groups = row_groups(tokens.div_ceil(RUN))?;
        calls.push(call("parallel", &[look_back, parallel], groups));
    }
    if form != RecurrenceForm::ResultsOnly {
        calls.push(call("update_state", &[look_back, update_state], state_groups));
    }
    Ok(calls)
}

/// Checks dtypes and shapes.
fn check(
    traits: &Traits,
    [x, weights, out]: [&OperandSpec; 3],
    [positions, sequences, state]: [&OperandSpec; 3],
) -> Result<(), Unsupported> {
    for operand in [x, weights, out] {
        require_float(OP, operand)?;
    }
    let (&[tokens, channels], &[_, taps]) = (&x.layout.shape[..], &weights.layout.shape[..]) else {
        let what = format!(
            "x {:?} and weights {:?} must be matrices",
            x.layout.shape, weights.layout.shape
        );
        return Err(Unsupported::Size { op: OP, what });
    };
    if !(1..=MAX_TAPS).contains(&taps) {
        let what = format!("{taps} taps; 1 to {MAX_TAPS} are supported");
        return Err(Unsupported::Size { op: OP, what });
    }
    require_shape(OP, "the weights", weights, &[channels, taps])?;
    require_shape(OP, "the result", out, &[tokens, channels])?;
    recurrence::check(
        OP,
        traits,
        [positions, sequences, state],
        [2, 3, 4],
        [tokens, 2],
        &[taps - 1, channels],
    )?;
    if !weights.layout.is_contiguous() {
        return Err(Unsupported::NeedsContiguous { op: OP, operand: 1 });
    }
    Ok(())
}

/// Contiguous inputs of [`reference()`].
#[derive(Clone, Copy)]
pub struct CausalConvInputs<'a> {
    /// `[T, C]`.
    pub x: &'a [f32],
    /// `[C, W]`.
    pub weights: &'a [f32],
    /// `[T]`.
    pub positions: &'a [i32],
    /// `[T]`.
    pub sequences: &'a [u32],
    /// C.
    pub channels: usize,
}

/// Computes the convolution in plain Rust; updates `state`.
///
/// # Panics
/// Panics if the slices' lengths contradict each other.
pub fn reference(inputs: &CausalConvInputs<'_>, state: &mut [f32]) -> Vec<f32> {
    let channels = inputs.channels;
    let mut out = vec![0.0; inputs.x.len()];
    if channels == 0 {
        return out;
    }
    let taps = inputs.weights.len() / channels;
    let slice = (taps - 1) * channels;
    let states = state.len().checked_div(slice).unwrap_or(1);
    let tokens = recurrence::tokens(inputs.positions, inputs.sequences, states);
    for (t, (token, sequence)) in tokens.enumerate() {
        let state = &mut state[sequence * slice..][..slice];
        match token {
            Token::Padding => continue,
            Token::First => state.fill(0.0),
            Token::Next => {}
        }
        let row = t * channels..(t + 1) * channels;
        let (x, out) = (&inputs.x[row.clone()], &mut out[row]);
        for c in 0..channels {
            let weights = &inputs.weights[c * taps..][..taps];
            let earlier = (0..taps - 1).map(|j| weights[j] * state[j * channels + c]);
            out[c] = earlier.sum::<f32>() + weights[taps - 1] * x[c];
        }
        if slice > 0 {
            state.copy_within(channels.., 0);
            state[slice - channels..].copy_from_slice(x);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_holds_the_last_inputs_of_each_sequence() {
        let inputs = CausalConvInputs {
            x: &[1.0, 2.0, 5.0, 7.0],
            weights: &[100.0, 10.0, 1.0],
            positions: &[0, 1, 4, -1],
            sequences: &[1, 1, 0, 0],
            channels: 1,
        };
        let mut state = [3.0, 4.0, f32::NAN, f32::NAN];
        assert_eq!(reference(&inputs, &mut state), [1.0, 12.0, 345.0, 0.0]);
        assert_eq!(state, [4.0, 5.0, 1.0, 2.0]);
    }
}
