//! Where a call finds the experts that tokens are routed to.

use crate::{DType, Push};

/// Experts that tokens are routed to: the section's matrices hold those of all, one after the other.
pub(crate) struct Routing {
    /// The experts.
    pub experts: Push,
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

/// By what a token's experts are weighted.
pub(crate) struct RoutingWeights {
    pub address: Push,
    pub dtype: DType,
    /// Between tokens.
    pub stride: usize,
    /// Whether these are scores of all experts, and the weights their softmax over those that are used.
    pub are_scores: bool,
}

impl Routing {
    /// Whole products that are made apart.
    pub(crate) fn repeats(&self) -> usize {
        self.tokens * if self.weights.is_some() { 1 } else { self.used }
    }
}
