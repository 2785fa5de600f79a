//! Token embedding and output head.

use refrain::Array;
use refrain::nn::Weight;

use crate::{Error, Loader};

/// The token embedding.
#[derive(Clone)]
pub struct Embedding {
    weight: Weight,
    scale: f32,
}

impl Embedding {
    /// Loads `model.embed_tokens`.
    ///
    /// # Errors
    /// As [`Loader::array`].
    pub fn load(loader: &Loader<'_>) -> Result<Embedding, Error> {
        let config = loader.config;
        Ok(Embedding {
            weight: loader.matrix("model.embed_tokens.weight", config.vocab_size, config.hidden_size)?,
            scale: config.multipliers.embedding,
        })
    }

    /// Token ids u32 `[T]` → f32 `[T, hidden]`.
    pub fn forward(&self, tokens: &Array) -> Array {
        let rows = self.weight.take(tokens);
        if self.scale == 1.0 { rows } else { rows * self.scale }
    }
}

/// The output head (`lm_head`).
pub struct LmHead {
    weight: Weight,
    cap: Option<f32>,
    scale: f32,
}

impl LmHead {
    /// Loads `lm_head`, or reuses the token embedding if they are tied.
    ///
    /// # Errors
    /// As [`Loader::array`].
    pub fn load(loader: &Loader<'_>, embedding: &Embedding) -> Result<LmHead, Error> {
        let config = loader.config;
        Ok(LmHead {
            weight: if config.tie_word_embeddings {
                embedding.weight.clone()
            } else {
                loader.matrix("lm_head.weight", config.vocab_size, config.hidden_size)?
            },
            cap: config.multipliers.logit_cap,
            scale: config.multipliers.logit_scale / config.multipliers.logit_divisor,
        })
    }

    /// x `[O, hidden]` → logits f32 `[O, vocabulary]`, soft-capped as cap · tanh(x / cap) if there is a cap, then
    /// scaled.
    pub fn forward(&self, x: &Array) -> Array {
        let logits = self.weight.matmul(x);
        let logits = match self.cap {
            Some(cap) => (logits * (1.0 / cap)).tanh() * cap,
            None => logits,
        };
        if self.scale == 1.0 { logits } else { logits * self.scale }
    }
}
