//! The parts that the families put together.

use super::{Activation, LayerAttention, MixtureConfig, RopeScaling};

/// Norms, of whichever kind the family has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NormConfig {
    /// Added to the mean square, or to the variance.
    pub eps: f32,
    /// Added to the weights as they are stored.
    pub offset: f32,
}

/// Rotary embeddings.
#[derive(Debug, Clone, PartialEq)]
pub struct PositionConfig {
    /// Base of the geometric series of wavelengths.
    pub theta: f64,
    /// How the frequencies were stretched for long contexts.
    pub scaling: RopeScaling,
    /// Base of local layers, whose frequencies are not stretched.
    pub local_theta: f64,
    /// Leading values of each head that are rotated (all: as wide as a head).
    pub dims: usize,
    /// Whether neighbours are rotated together, and not values half of those apart.
    pub interleaved: bool,
}

impl PositionConfig {
    /// The same in all layers, and not stretched.
    pub fn plain(theta: f64, dims: usize) -> PositionConfig {
        PositionConfig {
            theta,
            scaling: RopeScaling::None,
            local_theta: theta,
            dims,
            interleaved: false,
        }
    }
}

/// Grouped-query attention.
#[derive(Debug, Clone, PartialEq)]
pub struct AttentionConfig {
    /// Number of query heads.
    pub heads: usize,
    /// Number of key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Width of one head of queries and keys.
    pub head_dim: usize,
    /// Width of one head of values.
    pub value_dim: usize,
    /// The vectors that queries, keys and values are made of, where that is not what the layer reads.
    pub latent: Option<LatentConfig>,
    /// Whether the projections to queries, keys and values have biases.
    pub bias: bool,
    /// Whether the projection of what was mixed has a bias.
    pub output_bias: bool,
    /// Whether queries and keys have norms, of families in which some models do and others do not.
    pub qk_norm: bool,
    /// What scores are multiplied by before their softmax.
    pub scale: f32,
    /// What sets layers apart, in order; layers beyond its end are as by default (see
    /// [`layer_attention`](super::ModelConfig::layer_attention)).
    pub layers: Vec<LayerAttention>,
}

/// Latent vectors of a token (DeepSeek-AI 2024, arXiv:2405.04434).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LatentConfig {
    /// Width of the one that queries are made of, if there is one.
    pub q_rank: Option<usize>,
    /// Width of the one that keys and values are made of.
    pub kv_rank: usize,
}

impl AttentionConfig {
    /// Without biases, all layers alike.
    pub fn of_heads(heads: usize, kv_heads: usize, head_dim: usize) -> AttentionConfig {
        AttentionConfig {
            heads,
            kv_heads,
            head_dim,
            value_dim: head_dim,
            latent: None,
            bias: false,
            output_bias: false,
            qk_norm: false,
            scale: (head_dim as f64).powf(-0.5) as f32,
            layers: Vec::new(),
        }
    }
}

/// A feed-forward network, or a mixture of experts in its place.
#[derive(Debug, Clone, PartialEq)]
pub struct FeedForwardConfig {
    /// Width inside; of a mixture, inside an expert.
    pub intermediate_size: usize,
    /// Whether the projections of a network have biases.
    pub bias: bool,
    /// What is applied to the gate.
    pub activation: Activation,
    /// The experts, if there are such.
    pub mixture: Option<MixtureConfig>,
}

impl FeedForwardConfig {
    /// A network without biases.
    pub fn of_width(intermediate_size: usize) -> FeedForwardConfig {
        FeedForwardConfig {
            intermediate_size,
            bias: false,
            activation: Activation::Silu,
            mixture: None,
        }
    }
}

/// What is multiplied on the way from tokens to logits, and what bounds these.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Multipliers {
    /// What the token embedding is multiplied by.
    pub embedding: f32,
    /// What is multiplied that the blocks add to the residual stream.
    pub residual: f32,
    /// What logits are multiplied by.
    pub logit_scale: f32,
    /// What logits are divided by.
    pub logit_divisor: f32,
    /// Bound of the logits, which become cap · tanh(logit / cap).
    pub logit_cap: Option<f32>,
}

impl Multipliers {
    /// Nothing is.
    pub const NONE: Multipliers = Multipliers {
        embedding: 1.0,
        residual: 1.0,
        logit_scale: 1.0,
        logit_divisor: 1.0,
        logit_cap: None,
    };
}
