use refrain::{Array, fast};

use crate::blocks::{Attention, Embedding, Head, Mlp, Rope};
use crate::{Batch, Cache, Decoder, Error, Loader};

/// Llama (Touvron et al. 2023, arXiv:2302.13971), to Llama 3.3: pre-norm blocks of grouped-query
/// attention and a gated feed-forward network.
pub struct Llama {
    embedding: Embedding,
    layers: Vec<Layer>,
    norm: Array,
    head: Head,
    rope: Rope,
    eps: f32,
}

pub(crate) struct Layer {
    attention_norm: Array,
    attention: Attention,
    mlp_norm: Array,
    mlp: Mlp,
}

impl Llama {
    /// Loads the weights under Hugging Face's names.
    pub fn load(loader: &Loader<'_>) -> Result<Llama, Error> {
        Llama::with_norms(loader, false)
    }

    /// The same with norms of the queries and keys, if `normed`.
    pub(crate) fn with_norms(loader: &Loader<'_>, normed: bool) -> Result<Llama, Error> {
        let config = loader.config;
        let embedding = Embedding::load(loader)?;
        let head = Head::load(loader, &embedding)?;
        Ok(Llama {
            layers: (0..config.layers)
                .map(|n| Layer::load(loader, n, normed))
                .collect::<Result<_, _>>()?,
            norm: loader.vector("model.norm.weight", config.hidden_size)?,
            rope: Rope::new(config, loader.device),
            eps: config.rms_norm_eps,
            embedding,
            head,
        })
    }
}

impl Layer {
    fn load(loader: &Loader<'_>, number: usize, normed: bool) -> Result<Layer, Error> {
        let name = |part: &str| format!("model.layers.{number}.{part}");
        let hidden = loader.config.hidden_size;
        Ok(Layer {
            attention_norm: loader.vector(&name("input_layernorm.weight"), hidden)?,
            attention: Attention::load(loader, &name("self_attn"), normed)?,
            mlp_norm: loader.vector(&name("post_attention_layernorm.weight"), hidden)?,
            mlp: Mlp::load(loader, &name("mlp"))?,
        })
    }
}

impl Decoder for Llama {
    fn forward(&self, batch: &Batch, caches: &mut [Cache]) -> Array {
        let norm = |x: &Array, weight: &Array| fast::rms_norm(x, Some(weight), self.eps);
        let slots = batch.slots();
        let mut x = self.embedding.forward(&batch.tokens);
        for (layer, cache) in self.layers.iter().zip(caches) {
            x = &x
                + layer
                    .attention
                    .forward(&norm(&x, &layer.attention_norm), batch, &slots, &self.rope, cache);
            x = &x + layer.mlp.forward(&norm(&x, &layer.mlp_norm));
        }
        self.head.forward(&norm(&x.take(&batch.wanted, 0), &self.norm))
    }
}
