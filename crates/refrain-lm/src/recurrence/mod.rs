//! Recurrent operations, which carry a state from token to token.

mod causal_conv;
mod delta_net;
mod depthwise_conv;
mod gated_delta;
mod rewrite;

pub use causal_conv::causal_conv;
pub use depthwise_conv::{MAX_DEPTHWISE_TAPS, depthwise_conv};
pub use gated_delta::{gated_delta, gated_delta_from};

use refrain::DType;
use refrain::operation::ArraySpec;

/// Checks the inputs of a recurrence and returns its one new result, f32 of `shape`.
///
/// The last inputs are positions, sequences and the state. There must be as many positions and sequences as tokens, and
/// a `slice` of the state for each of at least one sequence. `matches` is the result of the caller's own checks.
///
/// # Errors
/// A description of the mismatch.
fn checked(inputs: &[&ArraySpec], matches: bool, shape: &[usize], slice: &[usize]) -> Result<Vec<ArraySpec>, String> {
    let [given @ .., state] = inputs else {
        return Err("the state is missing".to_string());
    };
    let [.., positions, sequences] = given else {
        return Err("positions and sequences are missing".to_string());
    };
    let count = shape.first().copied().unwrap_or(0);
    let tokens_match = positions.shape == [count]
        && sequences.shape == [count]
        && positions.dtype == DType::I32
        && sequences.dtype == DType::U32;
    let state_matches = state.dtype == DType::F32 && state.dim(0) > 0 && state.shape[1..] == *slice;
    if matches && tokens_match && state_matches {
        return Ok(vec![ArraySpec {
            shape: shape.to_vec(),
            dtype: DType::F32,
        }]);
    }
    let given: Vec<String> = given.iter().map(|x| x.to_string()).collect();
    Err(format!("{} do not match the state {state}", given.join(", ")))
}
