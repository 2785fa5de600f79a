//! Dense decoders: what most families are, each by its own style.

use refrain::{Array, DType};
use refrain_formats::RowOrder;

use crate::blocks::{
    Attention, AttentionStyle, BlockNorm, Embedding, FeedForward, Head, MlpStyle, NormKind, QkNorm, QkvStyle, Ropes,
};
use crate::config::{MAX_LAYERS, ModelConfig};
use crate::tensors::{Names, Table, TensorRow};
use crate::{Batch, Decoder, Error, LayerState, Loader, Pages};

/// What sets one family of dense transformers apart from another, beyond its configuration. Norms are named as in a
/// layer, by Hugging Face and in GGUF; `None` stands where a family has none.
pub struct Style {
    /// The norm of what attention reads.
    pub before_attention: Option<Names>,
    /// The norm of what attention adds to the residual stream.
    pub after_attention: Option<Names>,
    /// The norm of what the feed-forward network reads.
    pub before_mlp: Option<Names>,
    /// The norm of what the feed-forward network adds to the residual stream.
    pub after_mlp: Option<Names>,
    /// The norms of queries and keys.
    pub qk_norm: QkNorm,
    /// The kind of all but those.
    pub norm: NormKind,
    /// How queries, keys and values are projected.
    pub qkv: QkvStyle,
    /// Whether the softmax of each head is also over a score that was learned.
    pub sinks: bool,
    /// How the feed-forward network's inner values are.
    pub mlp: MlpStyle,
    /// Whether attention and the feed-forward network read the same, and are added at once (Wang & Komatsuzaki 2021).
    pub parallel: bool,
    /// Whether converters to GGUF reorder the rows of queries and keys for interleaved rotary embeddings.
    pub interleaved: bool,
}

impl Style {
    /// Norms before attention and the feed-forward network, as most families have them.
    pub const USUAL: Style = Style {
        before_attention: Some(["input_layernorm", "attn_norm"]),
        after_attention: None,
        before_mlp: Some(["post_attention_layernorm", "ffn_norm"]),
        after_mlp: None,
        qk_norm: QkNorm::None,
        norm: NormKind::Rms,
        qkv: QkvStyle::Apart,
        sinks: false,
        mlp: MlpStyle::Gated,
        parallel: false,
        interleaved: false,
    };

    fn attention(&self) -> AttentionStyle {
        AttentionStyle {
            qk_norm: self.qk_norm,
            qkv: self.qkv,
            sinks: self.sinks,
        }
    }

    /// The tensors of a model of this style.
    pub fn tensors(&self, config: &ModelConfig) -> Vec<TensorRow> {
        let (hidden, head) = (config.hidden_size, config.attention.head_dim);
        let mut table = Table::new(config);
        if self.norm == NormKind::Layer {
            table.add(["model.norm.bias", "output_norm.bias"], &[hidden]);
        }
        for number in 0..config.layers.min(MAX_LAYERS) {
            let layer = table.layer(number);
            let norms = [
                self.before_attention,
                self.after_attention,
                self.before_mlp,
                self.after_mlp,
            ];
            for names in norms.into_iter().flatten() {
                BlockNorm::tensors(layer, self.norm, names, hidden);
            }
            Attention::tensors(
                layer,
                config,
                self.attention(),
                if self.interleaved {
                    RowOrder::Interleaved { head_dim: head }
                } else {
                    RowOrder::AsStored
                },
            );
            FeedForward::tensors(layer, config, number, self.mlp);
        }
        table.rows()
    }

    /// Brings a model of this style onto a device.
    ///
    /// # Errors
    /// As [`Loader::array`].
    pub fn build(&self, loader: &Loader<'_>) -> Result<Box<dyn Decoder>, Error> {
        Ok(Box::new(Transformer::load(loader, self)?))
    }
}

/// A dense decoder: blocks of grouped-query attention and a gated feed-forward network, each added to a
/// residual stream.
pub struct Transformer {
    embedding: Embedding,
    layers: Vec<Layer>,
    norm: BlockNorm,
    head: Head,
    ropes: Ropes,
    residual_scale: f32,
    parallel: bool,
}

struct Layer {
    before_attention: Option<BlockNorm>,
    attention: Attention,
    after_attention: Option<BlockNorm>,
    before_mlp: Option<BlockNorm>,
    mlp: FeedForward,
    after_mlp: Option<BlockNorm>,
}

impl Transformer {
    /// Loads the weights under Hugging Face's names.
    ///
    /// # Errors
    /// As [`Loader::array`].
    pub fn load(loader: &Loader<'_>, style: &Style) -> Result<Transformer, Error> {
        let config = loader.config;
        let embedding = Embedding::load(loader)?;
        let head = Head::load(loader, &embedding)?;
        Ok(Transformer {
            layers: (0..config.layers)
                .map(|number| Layer::load(loader, number, style))
                .collect::<Result<_, _>>()?,
            norm: BlockNorm::load(loader, style.norm, "model.norm", config.hidden_size)?,
            ropes: Ropes::new(config, loader.device),
            residual_scale: config.multipliers.residual,
            parallel: style.parallel,
            embedding,
            head,
        })
    }
}

impl Layer {
    fn load(loader: &Loader<'_>, number: usize, style: &Style) -> Result<Layer, Error> {
        let name = |part: &str| format!("model.layers.{number}.{part}");
        let norm = |own: Option<Names>| {
            own.map(|[own, _]| BlockNorm::load(loader, style.norm, &name(own), loader.config.hidden_size))
                .transpose()
        };
        Ok(Layer {
            before_attention: norm(style.before_attention)?,
            attention: Attention::load(loader, &name("self_attn"), number, style.attention())?,
            after_attention: norm(style.after_attention)?,
            before_mlp: norm(style.before_mlp)?,
            mlp: FeedForward::load(loader, number, style.mlp)?,
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

    fn hidden(&self, batch: &Batch, states: &mut [LayerState]) -> Array {
        let slots = batch.slots();
        let ropes = self.ropes.within(batch.context);
        let mut x = self.embedding.forward(&batch.tokens);
        for (number, (layer, state)) in self.layers.iter().zip(states).enumerate() {
            let rows = |x: &Array| batch.rows_behind(x, number + 1 == self.layers.len());
            let read = normed(&x, &layer.before_attention);
            let mixed = layer.attention.forward(&read, batch, &slots, &ropes, state.cache());
            x = rows(&(&x + self.scaled(normed(&mixed, &layer.after_attention))));
            let read = if self.parallel {
                rows(&read)
            } else {
                normed(&x, &layer.before_mlp)
            };
            let inner = layer.mlp.forward(&read);
            x = &x + self.scaled(normed(&inner, &layer.after_mlp));
        }
        self.norm.forward(&x)
    }

    fn logits(&self, hidden: &Array) -> Array {
        self.head.forward(hidden)
    }
}

impl Transformer {
    /// What a block adds to the residual stream.
    fn scaled(&self, x: Array) -> Array {
        if self.residual_scale == 1.0 {
            x
        } else {
            x * self.residual_scale
        }
    }
}

fn normed(x: &Array, norm: &Option<BlockNorm>) -> Array {
    match norm {
        Some(norm) => norm.forward(x),
        None => x.clone(),
    }
}
