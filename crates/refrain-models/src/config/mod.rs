//! Hyperparameters of a decoder, the same from `config.json` and from GGUF metadata.
//!
//! [`ModelConfig`] holds them. [`read`] parses them, [`write_json`] and [`write_gguf`] write them back.

mod components;
mod defaults;
mod delta_net;
pub(crate) mod key_names;
pub(crate) mod keys;
pub mod layers;
mod limits;
mod moe;
pub mod read;
mod rope;
pub(crate) mod rope_gguf;
pub mod rope_json;
pub(crate) mod wrapper;
pub mod write_gguf;
pub mod write_json;

use refrain_formats::{Error, QuantContext, Quantisation};

use crate::family::Family;

pub use components::{AttentionConfig, FeedForwardConfig, MlaConfig, Multipliers, NormConfig, PositionConfig, is_norm};
pub use delta_net::DeltaNetConfig;
pub use layers::{Activation, LayerAttention, LayerRope};
pub use limits::MAX_LAYERS;
use limits::{MAX_HEADS, MAX_POSITION, MAX_VOCABULARY, MAX_WIDTH, check_counts};
pub use moe::{ExpertGroups, MoeConfig, MoeStyle, RouterConfig, RouterScore, is_router};
pub use rope::{RopeScaling, all_close};

/// Hyperparameters of a decoder-only transformer.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelConfig {
    /// The model family.
    pub family: &'static Family,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Number of transformer blocks.
    pub layers: usize,
    /// Number of multi-token prediction layers behind them: 0 or 1.
    pub mtp_layers: usize,
    /// Vocabulary size: rows of the token embedding.
    pub vocab_size: usize,
    /// Maximum context length in tokens.
    pub max_position: usize,
    /// Whether the token embedding is also the output head.
    pub tie_word_embeddings: bool,
    /// Norms.
    pub norm: NormConfig,
    /// Rotary embedding.
    pub positions: PositionConfig,
    /// Attention layers.
    pub attention: AttentionConfig,
    /// Gated DeltaNet layers, which replace attention in some layers.
    pub delta_net: Option<DeltaNetConfig>,
    /// Feed-forward layers.
    pub feed_forward: FeedForwardConfig,
    /// Scaling factors of embedding, residual stream and logits.
    pub multipliers: Multipliers,
    /// Beginning-of-sequence tokens.
    pub bos_ids: Vec<u32>,
    /// End-of-sequence tokens.
    pub eos_ids: Vec<u32>,
    /// MLX's quantisation, if any.
    pub quantisation: Option<Quantisation>,
}

impl ModelConfig {
    /// Creates a model of a family with default settings. `sizes` are hidden size, intermediate size, layers, query
    /// heads, and key and value heads.
    pub fn from_sizes(family: &'static Family, sizes: [usize; 5], head_dim: usize) -> ModelConfig {
        let [hidden_size, intermediate_size, layers, heads, kv_heads] = sizes;
        ModelConfig {
            family,
            hidden_size,
            layers,
            mtp_layers: 0,
            vocab_size: 32_000,
            max_position: 2048,
            tie_word_embeddings: false,
            norm: NormConfig { eps: 1e-6, offset: 0.0 },
            positions: PositionConfig::plain(10_000.0, head_dim),
            attention: AttentionConfig::from_heads(heads, kv_heads, head_dim),
            delta_net: None,
            feed_forward: FeedForwardConfig::from_width(intermediate_size),
            multipliers: Multipliers::NONE,
            bos_ids: Vec::new(),
            eos_ids: Vec::new(),
            quantisation: None,
        }
    }

    /// Properties that the encodings of a mixed quantisation depend on.
    pub fn quant_context(&self) -> QuantContext {
        QuantContext {
            layers: self.layers,
            tied: self.tie_word_embeddings,
        }
    }

    /// Sliding window of the layers that have one.
    pub fn window(&self) -> Option<usize> {
        (0..self.layers).find_map(|layer| self.layer_attention(layer).window)
    }

    /// First layer with full attention.
    pub fn first_without_window(&self) -> Option<usize> {
        (0..self.layers).find(|&layer| self.layer_attention(layer).window.is_none())
    }

    /// Attention types of the layers, as named by transformers.
    pub fn layer_types(&self) -> Vec<&'static str> {
        let kind = |layer| match self.layer_attention(layer).window {
            Some(_) => "sliding_attention",
            None => "full_attention",
        };
        (0..self.layers).map(kind).collect()
    }

    /// Attention settings of layer `number`.
    pub fn layer_attention(&self, number: usize) -> LayerAttention {
        self.attention.layers.get(number).copied().unwrap_or_default()
    }

    /// Whether layer `number` is a Gated DeltaNet.
    pub fn is_recurrent(&self, number: usize) -> bool {
        let listed = self.delta_net.as_ref().and_then(|nets| nets.layers.get(number));
        listed.copied().unwrap_or(false)
    }

    /// Mixture of experts of layer `number`, if it has one.
    pub fn layer_moe(&self, number: usize) -> Option<&MoeConfig> {
        let moe = self.feed_forward.moe.as_ref();
        moe.filter(|moe| number >= moe.dense_layers)
    }

    /// Name of layer `number` in Hugging Face files. Multi-token prediction layers follow the model's.
    pub fn layer_name(&self, number: usize) -> String {
        if number < self.layers {
            format!("model.layers.{number}")
        } else {
            self.family.mtp.layer(self.layers)
        }
    }

    /// Whether a tensor of this name, in Hugging Face files, belongs to a multi-token prediction layer.
    pub fn is_mtp(&self, name: &str) -> bool {
        let number = |rest: &str| rest.split('.').next()?.parse::<usize>().ok();
        let layer = name.strip_prefix("model.layers.").and_then(number);
        name.starts_with("mtp.") || layer.is_some_and(|layer| layer >= self.layers)
    }

    /// Whether a tensor with this name is used: one of a multi-token prediction head only if the model has a head.
    pub fn uses(&self, name: &str) -> bool {
        self.mtp_layers > 0 || !self.is_mtp(name)
    }

    /// Number of attention layers.
    pub fn attention_layers(&self) -> usize {
        (0..self.layers).filter(|&number| !self.is_recurrent(number)).count()
    }

    /// Bytes of recurrent state per sequence, independent of its length; 0 without recurrent layers.
    pub fn recurrent_bytes(&self) -> u64 {
        let layers = (self.layers - self.attention_layers()) as u64;
        self.delta_net.as_ref().map_or(0, |nets| layers * nets.state_bytes())
    }

    /// Checks that the values are in range and consistent; `file` is for messages.
    ///
    /// # Errors
    /// Names the invalid value.
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
        if let Some(MlaConfig { q_rank, kv_rank }) = self.attention.mla {
            let counts = [("q_lora_rank", q_rank.unwrap_or(1)), ("kv_lora_rank", kv_rank)];
            check_counts(file, &counts.map(|(name, count)| (name, count, MAX_WIDTH)))?;
        }
        if let Some(nets) = &self.delta_net {
            nets.validate(file)?;
        }
        if let Some(moe) = &self.feed_forward.moe {
            moe.validate(file)?;
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
                    format!("the head size is {size}, but only even sizes from 32 to 256 are supported"),
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
        let partial = self.family.partial_rotary && self.positions.dims.is_multiple_of(2);
        if self.positions.dims != self.attention.head_dim
            && !(partial && (2..self.attention.head_dim).contains(&self.positions.dims))
        {
            return Err(Error::file(
                file,
                format!(
                    "rotary embeddings cover {} of {} values of a head, which is not supported for {}",
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
