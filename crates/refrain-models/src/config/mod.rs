//! What a decoder must know about its model, the same from `config.json` and from GGUF metadata: the sizes of the parts
//! that the families put together, and what the engine asks of any.

pub(crate) mod keys;
pub mod layers;
mod parts;
pub mod read;
mod rope;
pub(crate) mod rope_gguf;
pub mod rope_json;
mod sizes;
pub(crate) mod wrapper;
pub mod written_gguf;
pub mod written_json;

use refrain_formats::{Error, MatrixPlace, Quantisation};

use crate::family::Family;

pub use layers::{Activation, LayerAttention, LayerRope};
pub use parts::{AttentionConfig, FeedForwardConfig, LatentConfig, Multipliers, NormConfig, PositionConfig};
pub use rope::{RopeScaling, all_close};
use sizes::check_counts;
pub use sizes::{DeltaNets, ExpertGroups, MixtureConfig, MixtureStyle, RouterConfig, RouterScore, is_norm, is_router};

/// The hyperparameters of a decoder-only transformer: what every one has, and the parts that its family puts together.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelConfig {
    /// The model family.
    pub family: &'static Family,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Number of transformer blocks.
    pub layers: usize,
    /// Rows of the token embedding.
    pub vocab_size: usize,
    /// Longest context that the model was made for, in tokens.
    pub max_position: usize,
    /// Whether the token embedding is also the output head.
    pub tie_word_embeddings: bool,
    /// The norms.
    pub norm: NormConfig,
    /// How positions are encoded.
    pub positions: PositionConfig,
    /// Attention, of the layers that attend.
    pub attention: AttentionConfig,
    /// The gated delta nets that some layers have in the place of attention.
    pub delta_nets: Option<DeltaNets>,
    /// What computes each token by itself.
    pub feed_forward: FeedForwardConfig,
    /// What is multiplied on the way from tokens to logits.
    pub multipliers: Multipliers,
    /// Tokens that begin a text.
    pub bos_ids: Vec<u32>,
    /// Tokens that end a text.
    pub eos_ids: Vec<u32>,
    /// How MLX quantised the weights, if it did.
    pub quantisation: Option<Quantisation>,
}

/// Larger counts than any model has; what is above is a damaged file.
pub(crate) const MAX_WIDTH: usize = 1 << 20;
/// More layers than any model has.
pub const MAX_LAYERS: usize = 1 << 12;
pub(crate) const MAX_HEADS: usize = 1 << 12;
const MAX_VOCABULARY: usize = 1 << 24;
const MAX_POSITION: usize = 1 << 31;

impl ModelConfig {
    /// A model of a family by hidden size, intermediate size, layers, query heads, key and value heads, and the width of a
    /// head; all else is as most models have it.
    pub fn of_sizes(family: &'static Family, sizes: [usize; 5], head_dim: usize) -> ModelConfig {
        let [hidden_size, intermediate_size, layers, heads, kv_heads] = sizes;
        ModelConfig {
            family,
            hidden_size,
            layers,
            vocab_size: 32_000,
            max_position: 2048,
            tie_word_embeddings: false,
            norm: NormConfig { eps: 1e-6, offset: 0.0 },
            positions: PositionConfig::plain(10_000.0, head_dim),
            attention: AttentionConfig::of_heads(heads, kv_heads, head_dim),
            delta_nets: None,
            feed_forward: FeedForwardConfig::of_width(intermediate_size),
            multipliers: Multipliers::NONE,
            bos_ids: Vec::new(),
            eos_ids: Vec::new(),
            quantisation: None,
        }
    }

    /// What the choice of a matrix's encoding depends on.
    pub fn matrix_place(&self) -> MatrixPlace {
        MatrixPlace {
            layers: self.layers,
            tied: self.tie_word_embeddings,
        }
    }

    /// The window of the layers that have one.
    pub fn window(&self) -> Option<usize> {
        (0..self.layers).find_map(|layer| self.layer_attention(layer).window)
    }

    /// The first layer that sees everything.
    pub fn first_without_window(&self) -> Option<usize> {
        (0..self.layers).find(|&layer| self.layer_attention(layer).window.is_none())
    }

    /// What transformers calls the layers' kinds of attention.
    pub fn layer_types(&self) -> Vec<&'static str> {
        let kind = |layer| match self.layer_attention(layer).window {
            Some(_) => "sliding_attention",
            None => "full_attention",
        };
        (0..self.layers).map(kind).collect()
    }

    /// How layer `number` attends.
    pub fn layer_attention(&self, number: usize) -> LayerAttention {
        self.attention.layers.get(number).copied().unwrap_or_default()
    }

    /// Whether layer `number` is a gated delta net.
    pub fn is_recurrent(&self, number: usize) -> bool {
        let listed = self.delta_nets.as_ref().and_then(|nets| nets.layers.get(number));
        listed.copied().unwrap_or(false)
    }

    /// The experts of layer `number`, if it has such.
    pub fn layer_mixture(&self, number: usize) -> Option<&MixtureConfig> {
        let mixture = self.feed_forward.mixture.as_ref();
        mixture.filter(|mixture| number >= mixture.dense_layers)
    }

    /// How many layers attend.
    pub fn attention_layers(&self) -> usize {
        (0..self.layers).filter(|&number| !self.is_recurrent(number)).count()
    }

    /// Bytes that all recurrent layers keep of a sequence, however long it is; none where all layers attend.
    pub fn recurrent_bytes(&self) -> u64 {
        let layers = (self.layers - self.attention_layers()) as u64;
        self.delta_nets.as_ref().map_or(0, |nets| layers * nets.state_bytes())
    }

    /// Check that the numbers are ones that a model can have; `file` is for messages.
    ///
    /// # Errors
    /// Names the value that is out of range or contradicts another.
    pub fn validate(&self, file: &str) -> Result<(), Error> {
        let counts = [
            ("hidden_size", self.hidden_size, MAX_WIDTH),
            ("intermediate_size", self.feed_forward.intermediate_size, MAX_WIDTH),
            ("num_hidden_layers", self.layers, MAX_LAYERS),
            ("num_attention_heads", self.attention.heads, MAX_HEADS),
            ("num_key_value_heads", self.attention.kv_heads, MAX_HEADS),
            ("vocab_size", self.vocab_size, MAX_VOCABULARY),
            ("max_position_embeddings", self.max_position, MAX_POSITION),
        ];
        check_counts(file, &counts)?;
        if let Some(LatentConfig { q_rank, kv_rank }) = self.attention.latent {
            let counts = [("q_lora_rank", q_rank.unwrap_or(1)), ("kv_lora_rank", kv_rank)];
            check_counts(file, &counts.map(|(name, count)| (name, count, MAX_WIDTH)))?;
        }
        if let Some(nets) = &self.delta_nets {
            nets.validate(file)?;
        }
        if let Some(mixture) = &self.feed_forward.mixture {
            mixture.validate(file)?;
        }
        if !self.attention.heads.is_multiple_of(self.attention.kv_heads) {
            return Err(Error::file(
                file,
                format!(
                    "num_attention_heads ({}) is not a multiple of num_key_value_heads ({})",
                    self.attention.heads, self.attention.kv_heads
                ),
            ));
        }
        for size in [self.attention.head_dim, self.attention.value_dim] {
            if !(32..=256).contains(&size) || !size.is_multiple_of(2) {
                return Err(Error::file(
                    file,
                    format!("the head size is {size}, but only even ones from 32 to 256 are supported"),
                ));
            }
        }
        if !(self.norm.eps.is_finite() && (0.0..1.0).contains(&self.norm.eps)) {
            return Err(Error::file(
                file,
                format!("rms_norm_eps is {}, not a small number", self.norm.eps),
            ));
        }
        for (name, value) in [
            ("query_pre_attn_scalar", Some(self.attention.scale)),
            ("logit_scale", Some(self.multipliers.logit_scale)),
            ("final_logit_softcapping", self.multipliers.logit_cap),
        ] {
            if let Some(value) = value
                && !(value.is_finite() && value > 0.0)
            {
                return Err(Error::file(file, format!("{name} is not a positive number")));
            }
        }
        self.validate_rope(file)
    }

    fn validate_rope(&self, file: &str) -> Result<(), Error> {
        let partial = self.family.rotates_part && self.positions.dims.is_multiple_of(2);
        if self.positions.dims != self.attention.head_dim
            && !(partial && (2..self.attention.head_dim).contains(&self.positions.dims))
        {
            return Err(Error::file(
                file,
                format!(
                    "rotary embeddings cover {} of {} values of a head, which is not supported of {}",
                    self.positions.dims, self.attention.head_dim, self.family
                ),
            ));
        }
        if !(self.positions.theta.is_finite() && self.positions.theta > 1.0) {
            return Err(Error::file(
                file,
                format!("rope_theta is {}, not above 1", self.positions.theta),
            ));
        }
        if !(self.positions.local_theta.is_finite() && self.positions.local_theta > 1.0) {
            return Err(Error::file(
                file,
                format!(
                    "the rope_theta of local layers is {}, not above 1",
                    self.positions.local_theta
                ),
            ));
        }
        self.positions.scaling.validate(self.positions.dims, file)
    }
}
