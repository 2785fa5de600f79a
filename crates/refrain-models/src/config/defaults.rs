//! Defaults of families for missing keys.

use super::layers::Activation;
use crate::family::Family;

/// A family's defaults for missing keys of `config.json`, as in transformers, and options for reading the others.
pub struct Defaults {
    /// The family.
    pub family: &'static Family,
    /// `None`: hidden_size / num_attention_heads.
    pub head_dim: Option<usize>,
    /// `None`: the key is required.
    pub heads: Option<usize>,
    /// `None`: num_attention_heads.
    pub kv_heads: Option<usize>,
    /// `None`: the key is required.
    pub vocab_size: Option<usize>,
    /// Maximum context length.
    pub max_position: usize,
    /// Base of the rotary embedding.
    pub rope_theta: f64,
    /// Fraction of each head that is rotated.
    pub partial_rotary_factor: f64,
    /// Whether the file has separate rotary settings per layer type.
    pub rope_per_layer_type: bool,
    /// Context length of the pretraining, for families whose early files use other names for LongRoPE.
    pub longrope_original_max_position: Option<f64>,
    /// Epsilon of norms.
    pub norm_eps: f64,
    /// Whether the token embedding is also the output head.
    pub tie_word_embeddings: bool,
    /// Key of the activation in `config.json`; `None` if the activation is fixed.
    pub activation_key: Option<&'static str>,
    /// Default activation.
    pub activation: Activation,
    /// Which projections have biases in `config.json`. For GGUF, the tensors show it.
    pub biases: Biases,
}

/// Which projections have biases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Biases {
    /// The q, k and v projections.
    pub attention: bool,
    /// The output projection of attention.
    pub output: bool,
    /// The MLP's projections.
    pub mlp: bool,
}

impl Defaults {
    /// The defaults that transformers has for most families.
    pub const fn new(family: &'static Family) -> Defaults {
        Defaults {
            family,
            head_dim: None,
            heads: None,
            kv_heads: None,
            vocab_size: None,
            max_position: 32768,
            rope_theta: 10_000.0,
            partial_rotary_factor: 1.0,
            rope_per_layer_type: false,
            longrope_original_max_position: None,
            norm_eps: 1e-6,
            tie_word_embeddings: false,
            activation_key: Some("hidden_act"),
            activation: Activation::Silu,
            biases: Biases {
                attention: false,
                output: false,
                mlp: false,
            },
        }
    }
}
