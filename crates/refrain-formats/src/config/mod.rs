//! What a decoder must know about its model, the same from `config.json` and from GGUF metadata.

mod generation;
mod hf;
mod hybrid;
mod layers;
mod rope;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Error;

pub use generation::GenerationConfig;
pub use hybrid::{DeltaNets, MixtureConfig};
pub use layers::{Activation, LayerAttention, LayerRope};
pub use rope::RopeScaling;

pub(crate) use generation::token_ids;
pub(crate) use hf::text_name;
use hybrid::check_counts;
pub(crate) use rope::all_close;

/// The model families that are supported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Architecture {
    /// Qwen3, dense.
    Qwen3,
    /// Llama 1 to 3.3, and everything else that is published as `llama`.
    Llama,
    /// Qwen2 and Qwen2.5.
    Qwen2,
    /// Mistral.
    Mistral,
    /// SmolLM3.
    SmolLm3,
    /// OLMo 2; in GGUF files also OLMo 3.
    Olmo2,
    /// OLMo 3.
    Olmo3,
    /// Phi-3.
    Phi3,
    /// Gemma 3's text decoder.
    Gemma3,
    /// Qwen3.5's mixtures of experts (and those that followed in their structure), their text decoder.
    Qwen3_5Moe,
}

impl Architecture {
    /// All of them.
    pub const ALL: [Architecture; 10] = [
        Architecture::Qwen3,
        Architecture::Llama,
        Architecture::Qwen2,
        Architecture::Mistral,
        Architecture::SmolLm3,
        Architecture::Olmo2,
        Architecture::Olmo3,
        Architecture::Phi3,
        Architecture::Gemma3,
        Architecture::Qwen3_5Moe,
    ];

    /// The name in `model_type` of config.json and, but for [`Architecture::gguf_name`], in GGUF.
    pub fn name(self) -> &'static str {
        match self {
            Architecture::Qwen3 => "qwen3",
            Architecture::Llama => "llama",
            Architecture::Qwen2 => "qwen2",
            Architecture::Mistral => "mistral",
            Architecture::SmolLm3 => "smollm3",
            Architecture::Olmo2 => "olmo2",
            Architecture::Olmo3 => "olmo3",
            Architecture::Phi3 => "phi3",
            Architecture::Gemma3 => "gemma3_text",
            Architecture::Qwen3_5Moe => "qwen3_5_moe_text",
        }
    }

    /// The name in `general.architecture` of GGUF.
    pub fn gguf_name(self) -> &'static str {
        match self {
            Architecture::Mistral => "llama",
            Architecture::Olmo3 => "olmo2",
            Architecture::Gemma3 => "gemma3",
            Architecture::Qwen3_5Moe => "qwen35moe",
            other => other.name(),
        }
    }

    /// The architecture of a `model_type`; `file` is for the message if there is none.
    pub(crate) fn by_name(name: &str, file: &str) -> Result<Self, Error> {
        // mlx-lm takes the name of the whole model for that of its text decoder.
        let name = if name == "qwen3_5_moe" {
            "qwen3_5_moe_text"
        } else {
            name
        };
        Self::find(&Self::ALL, name, file, Self::name)
    }

    /// The architecture of a `general.architecture`; `file` is for the message if there is none.
    pub(crate) fn by_gguf_name(name: &str, file: &str) -> Result<Self, Error> {
        let known: Vec<Self> = Self::ALL
            .into_iter()
            .filter(|known| *known != Self::Qwen3_5Moe)
            .collect();
        Self::find(&known, name, file, Self::gguf_name)
    }

    fn find(known: &[Self], name: &str, file: &str, naming: fn(Self) -> &'static str) -> Result<Self, Error> {
        let found = known.iter().copied().find(|known| naming(*known) == name);
        found.ok_or_else(|| {
            let mut supported: Vec<&str> = known.iter().map(|known| naming(*known)).collect();
            let mut seen = BTreeSet::new();
            supported.retain(|known| seen.insert(*known));
            Error::Architecture {
                file: file.to_owned(),
                architecture: name.to_owned(),
                supported: supported.join(", "),
            }
        })
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The hyperparameters of a decoder-only transformer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelConfig {
    /// The model family.
    pub architecture: Architecture,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Width inside the feed-forward network.
    pub intermediate_size: usize,
    /// Number of transformer blocks.
    pub layers: usize,
    /// Number of query heads.
    pub heads: usize,
    /// Number of key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Width of one head.
    pub head_dim: usize,
    /// Rows of the token embedding.
    pub vocab_size: usize,
    /// Added to the mean square in RMS norms.
    pub rms_norm_eps: f32,
    /// Base of the rotary embedding's geometric series of wavelengths.
    pub rope_theta: f64,
    /// How the rotary frequencies were stretched for long contexts.
    pub rope_scaling: RopeScaling,
    /// Base of the rotary embedding of local layers, whose frequencies are not stretched.
    pub local_rope_theta: f64,
    /// Leading values of each head that are rotated (all: `head_dim`).
    pub rope_dims: usize,
    /// Longest context that the model was made for, in tokens.
    pub max_position: usize,
    /// Whether the token embedding is also the output head.
    pub tie_word_embeddings: bool,
    /// Whether the projections to queries, keys and values have biases.
    pub attention_bias: bool,
    /// Whether the projection of what attention mixed has a bias.
    pub attention_output_bias: bool,
    /// What scores are multiplied by before their softmax.
    pub attention_scale: f32,
    /// Whether the projections of the feed-forward network have biases.
    pub mlp_bias: bool,
    /// What is applied to the gate of the feed-forward network.
    pub activation: Activation,
    /// What the token embedding is multiplied by.
    pub embedding_scale: f32,
    /// Added to the gains of norms as they are stored.
    pub norm_offset: f32,
    /// Bound of the logits, which become cap · tanh(logit / cap).
    pub logit_cap: Option<f32>,
    /// What sets layers apart, in order; layers beyond its end are as by default (see
    /// [`ModelConfig::layer_attention`]).
    pub layer_attention: Vec<LayerAttention>,
    /// The gated delta nets that some layers have in the place of attention.
    pub delta_nets: Option<DeltaNets>,
    /// The experts that layers have in the place of one feed-forward network (whose width is then that of
    /// an expert).
    pub mixture: Option<MixtureConfig>,
    /// Tokens that begin a text.
    pub bos_ids: Vec<u32>,
    /// Tokens that end a text.
    pub eos_ids: Vec<u32>,
    /// How MLX quantised the weights, if it did.
    pub quantisation: Option<Quantisation>,
}

/// MLX's affine quantisation, as config.json has it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Quantisation {
    /// Bits per value: 4 or 8.
    pub bits: u8,
    /// Values that share a scale and a bias: 32, 64 or 128.
    pub group_size: u16,
    /// Layers (by their tensors' names without `.weight`) that differ: their bits and group size,
    /// or `None` for a layer that was left as it was.
    pub overrides: BTreeMap<String, Option<(u8, u16)>>,
}

impl Quantisation {
    /// Bits and group size of a layer (the name of its weight without `.weight`), or `None` if it
    /// was not quantised.
    pub fn of(&self, layer: &str) -> Option<(u8, u16)> {
        match self.overrides.get(layer) {
            Some(own) => *own,
            None => Some((self.bits, self.group_size)),
        }
    }
}

/// Larger counts than any model has; what is above is a damaged file.
pub(crate) const MAX_WIDTH: usize = 1 << 20;
pub(crate) const MAX_LAYERS: usize = 1 << 12;
pub(crate) const MAX_HEADS: usize = 1 << 12;
const MAX_VOCABULARY: usize = 1 << 24;
const MAX_POSITION: usize = 1 << 31;

impl ModelConfig {
    /// How layer `number` attends.
    pub fn layer_attention(&self, number: usize) -> LayerAttention {
        self.layer_attention.get(number).copied().unwrap_or_default()
    }

    /// Whether layer `number` is a gated delta net.
    pub fn is_recurrent(&self, number: usize) -> bool {
        let listed = self.delta_nets.as_ref().and_then(|nets| nets.layers.get(number));
        listed.copied().unwrap_or(false)
    }

    /// How many layers attend.
    pub fn attention_layers(&self) -> usize {
        (0..self.layers).filter(|&number| !self.is_recurrent(number)).count()
    }

    /// Check that the numbers are ones that a model can have; `file` is for messages.
    ///
    /// # Errors
    /// Names the value that is out of range or contradicts another.
    pub(crate) fn validate(&self, file: &str) -> Result<(), Error> {
        let counts = [
            ("hidden_size", self.hidden_size, MAX_WIDTH),
            ("intermediate_size", self.intermediate_size, MAX_WIDTH),
            ("num_hidden_layers", self.layers, MAX_LAYERS),
            ("num_attention_heads", self.heads, MAX_HEADS),
            ("num_key_value_heads", self.kv_heads, MAX_HEADS),
            ("vocab_size", self.vocab_size, MAX_VOCABULARY),
            ("max_position_embeddings", self.max_position, MAX_POSITION),
        ];
        check_counts(file, &counts)?;
        if let Some(nets) = &self.delta_nets {
            nets.validate(file)?;
        }
        if let Some(mixture) = &self.mixture {
            mixture.validate(file)?;
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            return Err(Error::file(
                file,
                format!(
                    "num_attention_heads ({}) is not a multiple of num_key_value_heads ({})",
                    self.heads, self.kv_heads
                ),
            ));
        }
        if !(32..=256).contains(&self.head_dim) || !self.head_dim.is_multiple_of(2) {
            return Err(Error::file(
                file,
                format!(
                    "the head size is {}, but only even ones from 32 to 256 are supported",
                    self.head_dim
                ),
            ));
        }
        if !(self.rms_norm_eps.is_finite() && (0.0..1.0).contains(&self.rms_norm_eps)) {
            return Err(Error::file(
                file,
                format!("rms_norm_eps is {}, not a small number", self.rms_norm_eps),
            ));
        }
        for (name, value) in [
            ("query_pre_attn_scalar", Some(self.attention_scale)),
            ("final_logit_softcapping", self.logit_cap),
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
        let partial = matches!(self.architecture, Architecture::Phi3 | Architecture::Qwen3_5Moe)
            && self.rope_dims.is_multiple_of(2);
        if self.rope_dims != self.head_dim && !(partial && (2..self.head_dim).contains(&self.rope_dims)) {
            return Err(Error::file(
                file,
                format!(
                    "rotary embeddings cover {} of {} values of a head, which is not supported of {}",
                    self.rope_dims, self.head_dim, self.architecture
                ),
            ));
        }
        if !(self.rope_theta.is_finite() && self.rope_theta > 1.0) {
            return Err(Error::file(
                file,
                format!("rope_theta is {}, not above 1", self.rope_theta),
            ));
        }
        if !(self.local_rope_theta.is_finite() && self.local_rope_theta > 1.0) {
            return Err(Error::file(
                file,
                format!(
                    "the rope_theta of local layers is {}, not above 1",
                    self.local_rope_theta
                ),
            ));
        }
        self.rope_scaling.validate(self.rope_dims, file)
    }
}
