//! Where a call finds the experts that tokens are routed to.

use crate::{DType, Push};

/// Experts that tokens are routed to: the section's matrices hold those of all, one after the other.
pub(crate) struct Routing {
    /// The experts, or what they are chosen by.
    pub experts: Push,
    pub choice: Option<ExpertChoice>,
    /// Of how many there are matrices.
    pub count: usize,
    /// Rows from one to the next.
    pub between: usize,
    /// Experts of a token.
    pub used: usize,
    pub tokens: usize,
    /// Where the sums over a token's experts are the result: what they are weighted by.
    pub weights: Option<RoutingWeights>,
}

/// That a token's experts are those of its largest scores.
pub(crate) struct ExpertChoice {
    pub dtype: DType,
    /// Between tokens.
    pub stride: usize,
}

/// By what a token's experts are weighted.
pub(crate) enum RoutingWeights {
    Read {
        address: Push,
        dtype: DType,
        /// Between tokens.
        stride: usize,
        /// Whether these are scores of all experts, and the weights their softmax over those that are used.
        are_scores: bool,
    },
    /// By the softmax of the scores that they were chosen by.
    Chosen,
}

impl Routing {
    /// Whole products that are made apart.
    pub(crate) fn repeats(&self) -> usize {
        self.tokens * if self.weights.is_some() { 1 } else { self.used }
    }
}
