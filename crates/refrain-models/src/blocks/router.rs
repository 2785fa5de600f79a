//! The router of a mixture of experts.

use refrain::{Array, DType};

use super::Linear;
use crate::config::{ExpertGroups, MoeConfig, RouterConfig, RouterScore};
use crate::{Error, Loader};

/// Selects the experts of each token.
pub struct Router {
    scores: Linear,
    /// Added to the scores for selection only: `[experts]`.
    correction: Option<Array>,
    config: RouterConfig,
    experts: usize,
}

impl Router {
    /// Loads `{name}.weight` `[experts, hidden]`, and optional `{name}.bias` and `{name}.e_score_correction_bias`.
    ///
    /// # Errors
    /// As [`Loader::array`].
    pub fn load(loader: &Loader<'_>, name: &str, sizes: &MoeConfig) -> Result<Router, Error> {
        Ok(Router {
            scores: loader.linear(name, sizes.experts, loader.config.hidden_size, sizes.style.biases)?,
            correction: if sizes.router.score_correction {
                Some(loader.vector(&format!("{name}.e_score_correction_bias"), sizes.experts)?)
            } else {
                None
            },
            config: sizes.router.clone(),
            experts: sizes.experts,
        })
    }

    /// x `[T, hidden]` → expert indices u32 `[T, U]` and their weights f32 `[T, U]`.
    pub fn forward(&self, x: &Array) -> [Array; 2] {
        let scores = self.scores.forward(x);
        let scores = match self.config.score {
            RouterScore::Softmax => scores.softmax(),
            RouterScore::Sigmoid => scores.sigmoid(),
        };
        let experts = self.selection_scores(&scores).top_k(self.config.experts_per_token);
        let weights = scores.take_along(&experts);
        let sum = || weights.sum(&[-1]).expand_dims(1);
        let weights = if self.config.renormalise {
            match self.config.score {
                RouterScore::Softmax => &weights / sum(),
                // All scores may be zero.
                RouterScore::Sigmoid => &weights / (sum() + 1e-20),
            }
        } else {
            weights
        };
        let weights = match self.config.scale {
            1.0 => weights,
            scale => weights * scale,
        };
        [experts, weights]
    }

    /// Scores for selection `[T, E]`: corrected, and masked to the best groups.
    fn selection_scores(&self, scores: &Array) -> Array {
        let corrected = match &self.correction {
            Some(correction) => scores + correction,
            None => scores.clone(),
        };
        match self.config.groups {
            Some(groups) => self.mask_groups(&corrected, groups),
            None => corrected,
        }
    }

    /// Sets the scores `[T, E]` of experts outside the best groups to the minimum.
    fn mask_groups(&self, scores: &Array, groups: ExpertGroups) -> Array {
        let ExpertGroups {
            count,
            selected,
            top_experts,
        } = groups;
        let each = (self.experts / count) as isize;
        let grouped = scores.reshape(&[-1, count as isize, each]);
        let best = grouped
            .take_along(&grouped.top_k(top_experts))
            .sum(&[-1])
            .top_k(selected);
        let numbers = Array::arange(scores.device(), DType::U32, count);
        let chosen = best.expand_dims(2).eq(&numbers).astype(DType::U32).sum(&[1]);
        let kept = chosen.expand_dims(2).select(&grouped, f32::MIN);
        kept.reshape(&[-1, self.experts as isize])
    }
}
