//! Decoders of which some layers attend and the others are gated delta nets.

use refrain::{Array, DType};
use refrain_formats::RowOrder;

use crate::blocks::{Attention, AttentionStyle, BlockNorm, DeltaNet, Embedding, FeedForward, Head, MlpStyle, Ropes};
use crate::config::{MAX_LAYERS, ModelConfig};
use crate::tensors::{Table, TensorRow};
use crate::{Batch, Decoder, Error, LayerState, Loader, Pages};

/// The tensors of such a model.
pub fn tensors(config: &ModelConfig, attention: AttentionStyle) -> Vec<TensorRow> {
    let mut table = Table::new(config);
    let Some(nets) = &config.delta_nets else {
        return table.rows();
    };
    for number in 0..config.layers.min(MAX_LAYERS) {
        let layer = table.layer(number);
        layer.norm(["input_layernorm", "attn_norm"], config.hidden_size);
        layer.norm(["post_attention_layernorm", "post_attention_norm"], config.hidden_size);
        if config.is_recurrent(number) {
            DeltaNet::tensors(layer, config, nets)
        } else {
            Attention::tensors(layer, config, attention, RowOrder::AsStored)
        }
        FeedForward::tensors(layer, config, number, MlpStyle::Gated);
    }
    table.rows()
}

/// A decoder of layers that attend and layers that are recurrent, each with a feed-forward network or a mixture of
/// experts.
pub struct Hybrid {
    embedding: Embedding,
    layers: Vec<HybridLayer>,
    norm: BlockNorm,
    head: Head,
    ropes: Ropes,
}

struct HybridLayer {
    before_mixer: BlockNorm,
    mixer: Mixer,
    before_feed_forward: BlockNorm,
    feed_forward: FeedForward,
}

/// What lets tokens see those before them.
enum Mixer {
    Delta(Box<DeltaNet>),
    Attention(Box<Attention>),
}

impl Hybrid {
    /// Loads the weights under Hugging Face's names.
    ///
    /// # Errors
    /// As [`Loader::array`].
    pub fn load(loader: &Loader<'_>, attention: AttentionStyle) -> Result<Hybrid, Error> {
        let config = loader.config;
        let embedding = Embedding::load(loader)?;
        let head = Head::load(loader, &embedding)?;
        Ok(Hybrid {
            layers: (0..config.layers)
                .map(|number| HybridLayer::load(loader, number, attention))
                .collect::<Result<_, _>>()?,
            norm: loader.norm("model.norm", config.hidden_size)?,
            ropes: Ropes::new(config, loader.device),
            embedding,
            head,
        })
    }
}

impl HybridLayer {
    fn load(loader: &Loader<'_>, number: usize, attention: AttentionStyle) -> Result<HybridLayer, Error> {
        let name = |part: &str| format!("model.layers.{number}.{part}");
        let config = loader.config;
        let norm = |part: &str| loader.norm(&name(part), config.hidden_size);
        Ok(HybridLayer {
            before_mixer: norm("input_layernorm")?,
            mixer: match config.delta_nets.as_ref().filter(|_| config.is_recurrent(number)) {
                Some(nets) => Mixer::Delta(Box::new(DeltaNet::load(loader, &name("linear_attn"), nets)?)),
                None => Mixer::Attention(Box::new(Attention::load(
                    loader,
                    &name("self_attn"),
                    number,
                    attention,
                )?)),
            },
            before_feed_forward: norm("post_attention_layernorm")?,
            feed_forward: FeedForward::load(loader, number, MlpStyle::Gated)?,
        })
    }
}

impl Decoder for Hybrid {
    fn new_states(&self, dtype: DType, pages: Pages, sequences: usize) -> Result<Vec<LayerState>, refrain::Error> {
        let slots = pages.positions() * sequences;
        let state = |layer: &HybridLayer| match &layer.mixer {
            Mixer::Delta(net) => Ok(LayerState::Recurrent(net.new_state(sequences)?)),
            Mixer::Attention(attention) => Ok(LayerState::Attention(attention.new_cache(dtype, slots)?)),
        };
        self.layers.iter().map(state).collect()
    }

    fn hidden(&self, batch: &Batch, states: &mut [LayerState]) -> Array {
        let slots = batch.slots();
        let ropes = self.ropes.within(batch.context);
        let mut x = self.embedding.forward(&batch.tokens);
        for (number, (layer, state)) in self.layers.iter().zip(states).enumerate() {
            let read = layer.before_mixer.forward(&x);
            let mixed = match &layer.mixer {
                Mixer::Delta(net) => net.forward(&read, batch, state.recurrence()),
                Mixer::Attention(attention) => attention.forward(&read, batch, &slots, &ropes, state.cache()),
            };
            x = batch.rows_behind(&(&x + mixed), number + 1 == self.layers.len());
            x = &x + layer.feed_forward.forward(&layer.before_feed_forward.forward(&x));
        }
        self.norm.forward(&x)
    }

    fn logits(&self, hidden: &Array) -> Array {
        self.head.forward(hidden)
    }
}
