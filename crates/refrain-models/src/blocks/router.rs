use refrain::Array;

use super::Linear;
use crate::config::MixtureConfig;
use crate::{Error, Loader};

/// What chooses the experts of each token.
pub struct Router {
    scores: Linear,
    used: usize,
    renormalise: bool,
}

impl Router {
    /// The matrix `{name}.weight` `[experts, hidden]`, and perhaps `{name}.bias`.
    ///
    /// # Errors
    /// As [`Loader::array`].
    pub fn load(loader: &Loader<'_>, name: &str, sizes: &MixtureConfig) -> Result<Router, Error> {
        Ok(Router {
            scores: loader.linear(name, sizes.experts, loader.config.hidden_size, sizes.style.biases)?,
            used: sizes.router.used,
            renormalise: sizes.router.renormalise,
        })
    }

    /// x `[T, hidden]` → each token's experts u32 `[T, U]` and their weights f32 `[T, U]`.
    pub fn forward(&self, x: &Array) -> [Array; 2] {
        let scores = self.scores.forward(x).softmax();
        let experts = scores.top_k(self.used);
        let weights = scores.take_along(&experts);
        let weights = match self.renormalise {
            true => &weights / weights.sum(&[-1]).expand_dims(1),
            false => weights,
        };
        [experts, weights]
    }
}
