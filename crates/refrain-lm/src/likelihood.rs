//! How likely a model finds tokens.

use refrain::{Array, Axes, DType, concatenate};

/// Numbers of a row of [`likelihoods`] that come before the likeliest tokens' own.
const HEAD: usize = 2;

/// How likely the tokens are that were `picked` (u32 `[S]`; one beyond the vocabulary gets any number), and the `most`
/// likeliest ones, by logits f32 `[S, V]` as the model gives them → f32 `[S, 2 + 2 · most]`: ln Σ exp of a row's logits,
/// the logit of its picked token, the largest logits from the largest down, and their tokens (of equal ones the lowest
/// first). A logit less the first of these is its token's log-probability. Invalid where shapes do not fit, and for
/// vocabularies whose tokens f32 does not tell apart.
#[track_caller]
pub fn likelihoods(logits: &Array, picked: &Array, most: usize) -> Array {
    let (largest, tokens) = logits.top_k_with_values(most);
    let total = logits.logsumexp(Axes::keepdims(&[-1]));
    let picked = logits.take_along(&picked.expand_dims(-1));
    concatenate(&[&total, &picked, &largest, &tokens.astype(DType::F32)], -1)
}

/// The likelihoods of one sequence.
#[derive(Debug, Clone, PartialEq)]
pub struct Likelihoods {
    /// Log-probability of the token that was picked.
    pub picked: f32,
    /// The likeliest tokens and their log-probabilities, likeliest first.
    pub likeliest: Vec<(u32, f32)>,
}

impl Likelihoods {
    /// Numbers of a row of [`likelihoods`] with so many of the likeliest tokens.
    pub fn width(most: usize) -> usize {
        HEAD + 2 * most
    }

    /// What a row of [`likelihoods`] says.
    ///
    /// # Panics
    /// If it is shorter than any row.
    pub fn of_row(row: &[f32]) -> Likelihoods {
        let (head, likeliest) = row.split_at(HEAD);
        let (logits, tokens) = likeliest.split_at(likeliest.len() / 2);
        let likely = |(logit, token): (&f32, &f32)| (*token as u32, logit - head[0]);
        Likelihoods {
            picked: head[1] - head[0],
            likeliest: logits.iter().zip(tokens).map(likely).collect(),
        }
    }
}
