//! Configuration of the parts of a decoder.

use super::{Activation, LayerAttention, MoeConfig, RopeScaling};

/// Norms.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NormConfig {
    /// Epsilon, added to the mean square or variance.
    pub eps: f32,
    /// Added to the stored weights: 1 for families that store them minus 1 (Gemma 3).
    pub offset: f32,
}

/// Rotary embeddings.
#[derive(Debug, Clone, PartialEq)]
pub struct PositionConfig {
    /// Base of the frequencies.
    pub theta: f64,
    /// Scaling for long contexts.
    pub scaling: RopeScaling,
    /// Base of local (sliding-window) layers, without scaling.
    pub local_theta: f64,
    /// Number of leading values of each head that are rotated; the head size if all.
    pub dims: usize,
    /// Whether neighbouring values form pairs, instead of values half a head apart.
    pub interleaved: bool,
}

impl PositionConfig {
    /// The same embedding in all layers, without scaling.
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
    /// Multi-head latent attention, if the family uses it.
    pub mla: Option<MlaConfig>,
    /// Whether the q, k and v projections have biases.
    pub bias: bool,
    /// Whether the output projection has a bias.
    pub output_bias: bool,
    /// Whether queries and keys are normalised, in families where this differs between models.
    pub qk_norm: bool,
    /// Factor of the attention scores before the softmax.
    pub scale: f32,
    /// Settings of each layer in order; missing layers have default settings (see
    /// [`layer_attention`](super::ModelConfig::layer_attention)).
    pub layers: Vec<LayerAttention>,
}

/// Ranks of multi-head latent attention (DeepSeek-AI 2024, arXiv:2405.04434).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MlaConfig {
    /// Rank of the query latent; `None` for full-rank queries.
    pub q_rank: Option<usize>,
    /// Rank of the key-value latent.
    pub kv_rank: usize,
}

impl AttentionConfig {
    /// Attention without biases, with the same settings in all layers.
    pub fn from_heads(heads: usize, kv_heads: usize, head_dim: usize) -> AttentionConfig {
        AttentionConfig {
            heads,
            kv_heads,
            head_dim,
            value_dim: head_dim,
            mla: None,
            bias: false,
            output_bias: false,
            qk_norm: false,
            scale: (head_dim as f64).powf(-0.5) as f32,
            layers: Vec::new(),
        }
    }
}

/// Feed-forward layers: MLPs or mixtures of experts.
#[derive(Debug, Clone, PartialEq)]
pub struct FeedForwardConfig {
    /// Intermediate size of the MLP, or of an expert.
    pub intermediate_size: usize,
    /// Whether an MLP's projections have biases.
    pub bias: bool,
    /// Activation of the gate.
    pub activation: Activation,
    /// The mixture of experts, if any.
    pub moe: Option<MoeConfig>,
}

impl FeedForwardConfig {
    /// An MLP without biases.
    pub fn from_width(intermediate_size: usize) -> FeedForwardConfig {
        FeedForwardConfig {
            intermediate_size,
            bias: false,
            activation: Activation::Silu,
            moe: None,
        }
    }
}

/// Scaling factors between tokens and logits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Multipliers {
    /// Factor of the token embedding.
    pub embedding: f32,
    /// Factor of what each block adds to the residual stream.
    pub residual: f32,
    /// Factor of the logits.
    pub logit_scale: f32,
    /// Divisor of the logits.
    pub logit_divisor: f32,
    /// Soft cap of the logits: cap · tanh(logit / cap).
    pub logit_cap: Option<f32>,
}

impl Multipliers {
    /// No scaling.
    pub const NONE: Multipliers = Multipliers {
        embedding: 1.0,
        residual: 1.0,
        logit_scale: 1.0,
        logit_divisor: 1.0,
        logit_cap: None,
    };
}

/// Whether the tensor is a norm's weight, which is never quantised although it may have a row per head.
pub fn is_norm(name: &str) -> bool {
    name.ends_with("norm.weight") || name.starts_with("mtp.pre_fc_norm_")
}
