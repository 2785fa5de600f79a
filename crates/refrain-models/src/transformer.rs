use refrain::{Array, DType};

use crate::blocks::{Attention, Embedding, Head, Mlp, QkNorm, QkvStyle, RmsNorm, Ropes};
use crate::{Batch, Decoder, Error, LayerState, Loader, Pages};

/// What sets one family of dense transformers apart from another, beyond its configuration. Norms are
/// named as under `model.layers.N`; `None` stands where a family has none.
pub(crate) struct Style {
    /// The norm of what attention reads.
    pub before_attention: Option<&'static str>,
    /// The norm of what attention adds to the residual stream.
    pub after_attention: Option<&'static str>,
    /// The norm of what the feed-forward network reads.
    pub before_mlp: Option<&'static str>,
    /// The norm of what the feed-forward network adds to the residual stream.
    pub after_mlp: Option<&'static str>,
    /// The norms of queries and keys.
    pub qk_norm: QkNorm,
    /// Whether q, k and v share one tensor, and gate and up another.
    pub fused: bool,
}

/// A dense decoder: blocks of grouped-query attention and a gated feed-forward network, each added to a
/// residual stream.
pub(crate) struct Transformer {
    embedding: Embedding,
    layers: Vec<Layer>,
    norm: RmsNorm,
    head: Head,
    ropes: Ropes,
}

struct Layer {
    before_attention: Option<RmsNorm>,
    attention: Attention,
    after_attention: Option<RmsNorm>,
    before_mlp: Option<RmsNorm>,
    mlp: Mlp,
    after_mlp: Option<RmsNorm>,
}

impl Transformer {
    /// Loads the weights under Hugging Face's names.
    pub fn load(loader: &Loader<'_>, style: &Style) -> Result<Transformer, Error> {
        let config = loader.config;
        let embedding = Embedding::load(loader)?;
        let head = Head::load(loader, &embedding)?;
        Ok(Transformer {
            layers: (0..config.layers)
                .map(|number| Layer::load(loader, number, style))
                .collect::<Result<_, _>>()?,
            norm: loader.norm("model.norm", config.hidden_size)?,
            ropes: Ropes::new(config, loader.device),
            embedding,
            head,
        })
    }
}

impl Layer {
    fn load(loader: &Loader<'_>, number: usize, style: &Style) -> Result<Layer, Error> {
        let name = |part: &str| format!("model.layers.{number}.{part}");
        let norm = |own: Option<&str>| {
            own.map(|own| loader.norm(&name(own), loader.config.hidden_size))
                .transpose()
        };
        let qkv = if style.fused { QkvStyle::Fused } else { QkvStyle::Apart };
        Ok(Layer {
            before_attention: norm(style.before_attention)?,
            attention: Attention::load(loader, &name("self_attn"), number, style.qk_norm, qkv)?,
            after_attention: norm(style.after_attention)?,
            before_mlp: norm(style.before_mlp)?,
            mlp: Mlp::load(loader, &name("mlp"), style.fused)?,
            after_mlp: norm(style.after_mlp)?,
        })
    }
}

impl Decoder for Transformer {
    fn new_states(&self, dtype: DType, pages: Pages, sequences: usize) -> Result<Vec<LayerState>, refrain::Error> {
        let slots = pages.positions() * sequences;
        let state = |layer: &Layer| Ok(LayerState::Attention(layer.attention.new_cache(dtype, slots)?));
        self.layers.iter().map(state).collect()
    }

    fn forward(&self, batch: &Batch, states: &mut [LayerState]) -> Array {
        let slots = batch.slots();
        let ropes = self.ropes.within(batch.context);
        let mut x = self.embedding.forward(&batch.tokens);
        for (layer, state) in self.layers.iter().zip(states) {
            let read = normed(&x, &layer.before_attention);
            let mixed = layer.attention.forward(&read, batch, &slots, &ropes, state.cache());
            x = &x + normed(&mixed, &layer.after_attention);
            let thought = layer.mlp.forward(&normed(&x, &layer.before_mlp));
            x = &x + normed(&thought, &layer.after_mlp);
        }
        self.head.forward(&self.norm.forward(&batch.wanted_rows(&x)))
    }
}

fn normed(x: &Array, norm: &Option<RmsNorm>) -> Array {
    match norm {
        Some(norm) => norm.forward(x),
        None => x.clone(),
    }
}
