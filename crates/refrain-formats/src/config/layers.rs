//! What differs between the layers of a model, or between families.

use serde::{Deserialize, Serialize};

/// How one layer attends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerAttention {
    /// The last positions that a token sees, its own included; `None` for all of them.
    pub window: Option<usize>,
    /// How the layer's queries and keys are rotated.
    pub rope: LayerRope,
}

/// How one layer's queries and keys are rotated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LayerRope {
    /// Not at all (NoPE, arXiv 2305.19466).
    None,
    /// With the model's base and scaling.
    #[default]
    Global,
    /// With the base of local layers, unscaled.
    Local,
}

/// The function of a gated feed-forward network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// x · sigmoid(x).
    Silu,
    /// GELU by way of tanh.
    GeluTanh,
}
