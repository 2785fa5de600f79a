use refrain::{Array, DType};

use super::Linear;
use crate::config::{ExpertGroups, MixtureConfig, RouterConfig, RouterScore};
use crate::{Error, Loader};

/// What chooses the experts of each token.
pub struct Router {
    scores: Linear,
    /// What is added to the scores for the choice: `[experts]`.
    correction: Option<Array>,
    config: RouterConfig,
    experts: usize,
}

impl Router {
    /// The matrix `{name}.weight` `[experts, hidden]`, and perhaps `{name}.bias` and `{name}.e_score_correction_bias`.
    ///
    /// # Errors
    /// As [`Loader::array`].
    pub fn load(loader: &Loader<'_>, name: &str, sizes: &MixtureConfig) -> Result<Router, Error> {
        Ok(Router {
            scores: loader.linear(name, sizes.experts, loader.config.hidden_size, sizes.style.biases)?,
            correction: if sizes.router.corrected {
                Some(loader.vector(&format!("{name}.e_score_correction_bias"), sizes.experts)?)
            } else {
                None
            },
            config: sizes.router.clone(),
            experts: sizes.experts,
        })
    }

    /// x `[T, hidden]` → each token's experts u32 `[T, U]` and their weights f32 `[T, U]`.
    pub fn forward(&self, x: &Array) -> [Array; 2] {
        let scores = self.scores.forward(x);
        let scores = match self.config.score {
            RouterScore::Softmax => scores.softmax(),
            RouterScore::Sigmoid => scores.sigmoid(),
        };
        let experts = self.preferred(&scores).top_k(self.config.used);
        let weights = scores.take_along(&experts);
        let sum = || weights.sum(&[-1]).expand_dims(1);
        let weights = match (self.config.renormalise, self.config.score) {
            (true, RouterScore::Softmax) => &weights / sum(),
            // All of them may be zero.
            (true, RouterScore::Sigmoid) => &weights / (sum() + 1e-20),
            (false, _) => weights,
        };
        let weights = match self.config.scale {
            1.0 => weights,
            scale => weights * scale,
        };
        [experts, weights]
    }

    /// What experts are chosen by, `[T, E]`.
    fn preferred(&self, scores: &Array) -> Array {
        let corrected = match &self.correction {
            Some(correction) => scores + correction,
            None => scores.clone(),
        };
        match self.config.groups {
            Some(groups) => self.of_best_groups(&corrected, groups),
            None => corrected,
        }
    }

    /// Scores `[T, E]`, but of groups that a token's experts are not taken from as low as can be.
    fn of_best_groups(&self, scores: &Array, groups: ExpertGroups) -> Array {
        let ExpertGroups { count, used, judged } = groups;
        let each = (self.experts / count) as isize;
        let grouped = scores.reshape(&[-1, count as isize, each]);
        let best = grouped.take_along(&grouped.top_k(judged)).sum(&[-1]).top_k(used);
        let numbers = Array::arange(scores.device(), DType::U32, count);
        let chosen = best.expand_dims(2).eq(&numbers).astype(DType::U32).sum(&[1]);
        let kept = chosen.expand_dims(2).select(&grouped, f32::MIN);
        kept.reshape(&[-1, self.experts as isize])
    }
}
