//! Log-probabilities of tokens.

use refrain::{Array, Axes, DType, concatenate};

/// Values of a row of [`logprobs`] before those of the top tokens.
const HEAD_WIDTH: usize = 2;

/// Returns the logits that log-probabilities are computed from: of the `sampled` tokens (u32 `[S]`) and of the `top`
/// most probable ones.
///
/// `logits` f32 `[S, V]` are the model's → f32 `[S, 2 + 2 · top]`: ln Σ exp of a row's logits, the logit of its sampled token,
/// the largest logits in descending order, and their tokens (of equal ones the lowest first). A logit minus the first
/// value is its token's log-probability. The values of a sampled token beyond the vocabulary are unspecified. The
/// result is invalid if shapes do not match, or if the vocabulary exceeds the integers that f32 holds exactly.
#[track_caller]
pub fn logprobs(logits: &Array, sampled: &Array, top: usize) -> Array {
    let (largest, tokens) = logits.top_k_with_values(top);
    let total = logits.logsumexp(Axes::keepdims(&[-1]));
    let sampled_logits = logits.take_along(&sampled.expand_dims(-1));
    concatenate(&[&total, &sampled_logits, &largest, &tokens.astype(DType::F32)], -1)
}

/// Log-probabilities at one position of a sequence.
#[derive(Debug, Clone, PartialEq)]
pub struct Logprobs {
    /// Log-probability of the sampled token.
    pub sampled: f32,
    /// The most probable tokens and their log-probabilities, most probable first.
    pub top: Vec<(u32, f32)>,
}

impl Logprobs {
    /// Returns the number of values of a row of [`logprobs`] with `top` most probable tokens.
    pub fn width(top: usize) -> usize {
        HEAD_WIDTH + 2 * top
    }

    /// Reads a row of [`logprobs`].
    ///
    /// # Panics
    /// Panics if it is shorter than any row.
    pub fn from_row(row: &[f32]) -> Logprobs {
        let (head, top) = row.split_at(HEAD_WIDTH);
        let (logits, tokens) = top.split_at(top.len() / 2);
        let logprob = |(logit, token): (&f32, &f32)| (*token as u32, logit - head[0]);
        Logprobs {
            sampled: head[1] - head[0],
            top: logits.iter().zip(tokens).map(logprob).collect(),
        }
    }
}
