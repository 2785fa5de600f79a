//! Recurrent operations, which carry a state from token to token.

mod causal_conv;
mod delta_net;
mod depthwise_conv;
mod gated_delta;
mod rewrite;

pub use causal_conv::{causal_conv, causal_conv_results, causal_conv_state};
pub use depthwise_conv::{MAX_DEPTHWISE_TAPS, depthwise_conv};
pub use gated_delta::{gated_delta, gated_delta_decode, gated_delta_from, gated_delta_results, gated_delta_state};

use refrain::DType;
use refrain::operation::{ArraySpec, HostStep, Values};
use refrain_kernels::RecurrenceForm;

/// Checks the inputs of a recurrence and returns its one new result, f32 of `shape`, if the form has results.
///
/// The last inputs are positions, sequences and the state. There must be as many positions and sequences as tokens, and
/// a `slice` of the state for each of at least one sequence. `matches` is the result of the caller's own checks.
///
/// # Errors
/// A description of the mismatch.
fn checked(
    form: RecurrenceForm,
    inputs: &[&ArraySpec],
    matches: bool,
    shape: &[usize],
    slice: &[usize],
) -> Result<Vec<ArraySpec>, String> {
    let [given @ .., state] = inputs else {
        return Err("the state is missing".to_string());
    };
    let [.., positions, sequences] = given else {
        return Err("positions and sequences are missing".to_string());
    };
    let count = shape.first().copied().unwrap_or(0);
    let tokens_match = positions.shape[..] == [count]
        && sequences.shape[..] == [count]
        && positions.dtype == DType::I32
        && sequences.dtype == DType::U32;
    let state_matches = state.dtype == DType::F32 && state.dim(0) > 0 && state.shape[1..] == *slice;
    if matches && tokens_match && state_matches {
        let result = || ArraySpec::new(shape, DType::F32);
        return Ok((form != RecurrenceForm::StateOnly).then(result).into_iter().collect());
    }
    let given: Vec<String> = given.iter().map(|x| x.to_string()).collect();
    Err(format!("{} do not match the state {state}", given.join(", ")))
}

/// Returns the inputs that a form updates, given the state's.
fn updated(form: RecurrenceForm, state: &'static [usize]) -> &'static [usize] {
    match form {
        RecurrenceForm::Full | RecurrenceForm::StateOnly => state,
        RecurrenceForm::ResultsOnly => &[],
    }
}

/// Stores what a form computes: results, and the next states at the numbers of their inputs.
fn finish<const N: usize>(
    form: RecurrenceForm,
    step: &HostStep<'_>,
    results: Vec<f32>,
    states: [(usize, Vec<f32>); N],
) {
    if form != RecurrenceForm::StateOnly {
        step.store(0, &Values::F32(results));
    }
    if form != RecurrenceForm::ResultsOnly {
        for (number, state) in states {
            step.update(number, &Values::F32(state));
        }
    }
}

/// Returns what is printed of a form.
fn detail(form: RecurrenceForm) -> String {
    let detail = match form {
        RecurrenceForm::Full => "",
        RecurrenceForm::ResultsOnly => " results only",
        RecurrenceForm::StateOnly => " state only",
    };
    detail.to_owned()
}
