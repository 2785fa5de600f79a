use refrain::{Array, DType, Device, Quantised, fast};

use crate::{Error, Loader};

/// A matrix `[N, K]` as its checkpoint has it.
#[derive(Clone)]
pub enum Weight {
    /// f32, f16 or bf16 elements.
    Dense(Array),
    /// A few bits per element.
    Quantised(Quantised),
}

impl Weight {
    /// x `[T, K]` · Wᵀ → f32 `[T, N]`.
    pub fn matmul(&self, x: &Array) -> Array {
        match self {
            Weight::Dense(w) => x.matmul(&w.transpose()),
            Weight::Quantised(w) => w.matmul(x),
        }
    }

    /// x `[T, U, K]` or `[T, 1, K]` with the matrices of `experts` (u32 `[T, U]`), `rows` rows each →
    /// f32 `[T, U, rows]`.
    pub fn expert_matmul(&self, x: &Array, experts: &Array, rows: usize) -> Array {
        match self {
            Weight::Dense(w) => fast::expert_matmul(x, experts, w, rows),
            Weight::Quantised(w) => w.expert_matmul(x, experts, rows),
        }
    }

    /// Where it lies.
    pub fn device(&self) -> &Device {
        match self {
            Weight::Dense(w) => w.device(),
            Weight::Quantised(w) => w.quants.device(),
        }
    }

    /// Rows `indices` `[T]` → f32 `[T, K]`.
    pub fn take(&self, indices: &Array) -> Array {
        match self {
            Weight::Dense(w) => w.take(indices, 0).astype(DType::F32),
            Weight::Quantised(w) => w.take(indices),
        }
    }
}

/// A projection y = x · Wᵀ + b.
pub struct Linear {
    /// W `[outputs, inputs]`.
    pub weight: Weight,
    /// b `[outputs]`, if there is one.
    pub bias: Option<Array>,
}

impl Linear {
    /// Where it lies.
    pub fn device(&self) -> &Device {
        self.weight.device()
    }

    /// x `[T, inputs]` → f32 `[T, outputs]`.
    pub fn forward(&self, x: &Array) -> Array {
        let y = self.weight.matmul(x);
        match &self.bias {
            Some(bias) => y + bias,
            None => y,
        }
    }
}

/// The token embedding.
pub struct Embedding {
    weight: Weight,
    scale: f32,
}

impl Embedding {
    /// `model.embed_tokens`.
    pub fn load(loader: &Loader<'_>) -> Result<Embedding, Error> {
        let config = loader.config;
        Ok(Embedding {
            weight: loader.matrix("model.embed_tokens.weight", config.vocab_size, config.hidden_size)?,
            scale: config.embedding_scale,
        })
    }

    /// Token ids u32 `[T]` → f32 `[T, hidden]`.
    pub fn forward(&self, tokens: &Array) -> Array {
        let rows = self.weight.take(tokens);
        if self.scale == 1.0 { rows } else { rows * self.scale }
    }
}

/// The output head: logits over the vocabulary.
pub struct Head {
    weight: Weight,
    cap: Option<f32>,
}

impl Head {
    /// `lm_head`, or the token embedding where they are tied.
    pub fn load(loader: &Loader<'_>, embedding: &Embedding) -> Result<Head, Error> {
        let config = loader.config;
        Ok(Head {
            weight: match config.tie_word_embeddings {
                true => embedding.weight.clone(),
                false => loader.matrix("lm_head.weight", config.vocab_size, config.hidden_size)?,
            },
            cap: config.logit_cap,
        })
    }

    /// x `[O, hidden]` → f32 `[O, vocabulary]`, bent by cap · tanh(x / cap) where there is a cap.
    pub fn forward(&self, x: &Array) -> Array {
        let logits = self.weight.matmul(x);
        match self.cap {
            Some(cap) => (logits * (1.0 / cap)).tanh() * cap,
            None => logits,
        }
    }
}
