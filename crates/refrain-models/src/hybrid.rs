//! Hybrid decoders: some layers are attention layers, the others Gated DeltaNets.

use refrain::Array;
use refrain_formats::RowOrder;

use crate::blocks::{Attention, AttentionStyle, DeltaNet, Embedding, FeedForward, LmHead, MlpStyle, Norm, Ropes};
use crate::config::{MAX_LAYERS, ModelConfig};
use crate::mtp::{self, HeadLayer, LayerMtpHead, Place};
use crate::tensors::{TensorRow, TensorTable};
use crate::{Batch, CacheTypes, Decoder, Error, LayerState, Loader, MtpHead, Pages};

/// Lists the tensors of a hybrid model.
pub fn tensors(config: &ModelConfig, attention: AttentionStyle) -> Vec<TensorRow> {
    let mut table = TensorTable::new(config);
    for number in 0..(config.layers + config.mtp_layers).min(MAX_LAYERS) {
        let layer = table.layer(config, number);
        layer.norm(["input_layernorm", "attn_norm"], config.hidden_size);
        layer.norm(["post_attention_layernorm", "post_attention_norm"], config.hidden_size);
        match config.delta_net.as_ref().filter(|_| config.is_recurrent(number)) {
            Some(nets) => DeltaNet::tensors(layer, config, nets),
            None => Attention::tensors(layer, config, attention, RowOrder::AsStored),
        }
        FeedForward::tensors(layer, config, number, MlpStyle::Gated);
    }
    if config.mtp_layers > 0 {
        mtp::tensors(&mut table, config);
    }
    table.rows()
}

/// A decoder of attention and Gated DeltaNet layers, each followed by an MLP or a mixture of experts.
pub struct Hybrid {
    embedding: Embedding,
    layers: Vec<HybridLayer>,
    norm: Norm,
    head: LmHead,
    mtp_head: Option<LayerMtpHead<HybridLayer>>,
    ropes: Ropes,
}

struct HybridLayer {
    mixer_norm: Norm,
    mixer: Mixer,
    ffn_norm: Norm,
    feed_forward: FeedForward,
}

/// The token-mixing part of a layer.
enum Mixer {
    Delta(Box<DeltaNet>),
    Attention(Box<Attention>),
}

impl Hybrid {
    /// Loads the weights by their Hugging Face names.
    ///
    /// # Errors
    /// As [`Loader::array`].
    pub fn load(loader: &Loader<'_>, attention: AttentionStyle) -> Result<Hybrid, Error> {
        let config = loader.config;
        let embedding = Embedding::load(loader)?;
        let head = LmHead::load(loader, &embedding)?;
        let layer = |number| HybridLayer::load(loader, number, attention);
        Ok(Hybrid {
            layers: (0..config.layers).map(layer).collect::<Result<_, _>>()?,
            norm: loader.norm("model.norm", config.hidden_size)?,
            mtp_head: LayerMtpHead::load(loader, &embedding, layer)?,
            ropes: Ropes::new(config, loader.device),
            embedding,
            head,
        })
    }
}

impl HybridLayer {
    fn load(loader: &Loader<'_>, number: usize, attention: AttentionStyle) -> Result<HybridLayer, Error> {
        let layer = loader.config.layer_name(number);
        let name = |part: &str| format!("{layer}.{part}");
        let config = loader.config;
        let norm = |part: &str| loader.norm(&name(part), config.hidden_size);
        Ok(HybridLayer {
            mixer_norm: norm("input_layernorm")?,
            mixer: match config.delta_net.as_ref().filter(|_| config.is_recurrent(number)) {
                Some(nets) => Mixer::Delta(Box::new(DeltaNet::load(loader, &name("linear_attn"), nets)?)),
                None => Mixer::Attention(Box::new(Attention::load(
                    loader,
                    &name("self_attn"),
                    number,
                    attention,
                )?)),
            },
            ffn_norm: norm("post_attention_layernorm")?,
            feed_forward: FeedForward::load(loader, number, MlpStyle::Gated)?,
        })
    }
}

impl HeadLayer for HybridLayer {
    fn new_state(&self, types: CacheTypes, pages: Pages, sequences: usize) -> Result<LayerState, refrain::Error> {
        match &self.mixer {
            Mixer::Delta(net) => Ok(LayerState::Recurrent(net.new_state(sequences)?)),
            Mixer::Attention(attention) => {
                let slots = pages.positions() * sequences;
                Ok(LayerState::Attention(attention.new_cache(types, slots)?))
            }
        }
    }

    fn forward(&self, x: &Array, batch: &Batch, place: &Place<'_>, state: &mut LayerState, is_last: bool) -> Array {
        let input = self.mixer_norm.forward(x);
        let mixer_out = match &self.mixer {
            Mixer::Delta(net) => net.forward(&input, batch, state.recurrent_state()),
            Mixer::Attention(attention) => attention.forward(&input, batch, &place.slots, place.ropes, state.cache()),
        };
        let x = batch.output_rows(&(x + mixer_out), is_last);
        &x + self.feed_forward.forward(&self.ffn_norm.forward(&x))
    }
}

impl Decoder for Hybrid {
    fn new_states(&self, types: CacheTypes, pages: Pages, sequences: usize) -> Result<Vec<LayerState>, refrain::Error> {
        let state = |layer: &HybridLayer| layer.new_state(types, pages, sequences);
        self.layers.iter().map(state).collect()
    }

    fn hidden(&self, batch: &Batch, states: &mut [LayerState]) -> Array {
        let place = Place {
            slots: batch.slots(),
            ropes: &self.ropes.for_context(batch.context),
        };
        let mut x = self.embedding.forward(&batch.tokens);
        for (number, (layer, state)) in self.layers.iter().zip(states).enumerate() {
            x = layer.forward(&x, batch, &place, state, number + 1 == self.layers.len());
        }
        self.norm.forward(&x)
    }

    fn logits(&self, hidden: &Array) -> Array {
        self.head.forward(hidden)
    }

    fn mtp_head(&self) -> Option<&dyn MtpHead> {
        self.mtp_head.as_ref().map(|head| head as &dyn MtpHead)
    }
}
