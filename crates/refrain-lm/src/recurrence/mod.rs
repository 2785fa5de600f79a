//! Operations that carry a state from token to token.

mod causal_conv;
mod delta_net;
mod gated_delta;
mod rewrite;

pub use causal_conv::causal_conv;
pub use gated_delta::gated_delta;

use refrain::DType;
use refrain::operation::ArraySpec;

/// The one new result, f32 of `shape`, where there are places for as many tokens as it has, and the state has a `part`
/// for each of at least one sequence. The last inputs are positions, sequences and the state.
///
/// # Errors
/// What does not fit.
fn fitting(inputs: &[&ArraySpec], fits: bool, shape: &[usize], part: &[usize]) -> Result<Vec<ArraySpec>, String> {
    let [given @ .., state] = inputs else {
        return Err("there is no state".to_string());
    };
    let [.., positions, sequences] = given else {
        return Err("there are no places".to_string());
    };
    let count = shape.first().copied().unwrap_or(0);
    let placed = positions.shape == [count]
        && sequences.shape == [count]
        && positions.dtype == DType::I32
        && sequences.dtype == DType::U32;
    let kept = state.dtype == DType::F32 && state.dim(0) > 0 && state.shape[1..] == *part;
    if fits && placed && kept {
        return Ok(vec![ArraySpec {
            shape: shape.to_vec(),
            dtype: DType::F32,
        }]);
    }
    let given: Vec<String> = given.iter().map(|x| x.to_string()).collect();
    Err(format!("{} do not fit a state {state}", given.join(", ")))
}
