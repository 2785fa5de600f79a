//! The experts of each token, as operands of a call.

use crate::{DType, Push};

/// Routing of tokens to experts. A section's matrices hold those of all experts, one after another.
pub(crate) struct Routing {
    /// Address of the expert indices.
    pub experts: Push,
    /// Number of experts.
    pub count: usize,
    /// Stride between the matrices of consecutive experts, in rows.
    pub between: usize,
    /// Experts per token.
    pub used: usize,
    pub tokens: usize,
    /// Weights of the sum over a token's experts; `None` if each expert yields a result.
    pub weights: Option<RoutingWeights>,
}

/// Weights of a token's experts.
pub(crate) struct RoutingWeights {
    pub address: Push,
    pub dtype: DType,
    /// Stride between tokens.
    pub stride: usize,
    /// Whether these are scores of all experts. The weights are then the softmax over the token's experts.
    pub are_scores: bool,
}

impl Routing {
    /// Number of separate products: (token, expert) pairs, or tokens if experts are added up.
    pub(crate) fn repeats(&self) -> usize {
        self.tokens * if self.weights.is_some() { 1 } else { self.used }
    }
}
