use refrain::{Array, DType};

use crate::blocks::{Attention, DeltaNet, Embedding, Head, Mixture, QkNorm, QkvStyle, RmsNorm, Ropes};
use crate::{Batch, Decoder, Error, LayerState, Loader, Pages};

/// The text decoder of Qwen3.5-MoE (Qwen team 2026), the structure of Qwen3-Next (2025): gated delta nets,
/// gated attention in every fourth layer, and a mixture of experts in each.
pub(crate) struct Qwen3_5Moe {
    embedding: Embedding,
    layers: Vec<Layer>,
    norm: RmsNorm,
    head: Head,
    ropes: Ropes,
}

struct Layer {
    before_mixer: RmsNorm,
    mixer: Mixer,
    before_mixture: RmsNorm,
    mixture: Mixture,
}

/// What lets tokens see those before them.
enum Mixer {
    Delta(DeltaNet),
    Attention(Attention),
}

impl Qwen3_5Moe {
    /// Loads the weights under Hugging Face's names.
    pub fn load(loader: &Loader<'_>) -> Result<Qwen3_5Moe, Error> {
        let config = loader.config;
        let embedding = Embedding::load(loader)?;
        let head = Head::load(loader, &embedding)?;
        Ok(Qwen3_5Moe {
            layers: (0..config.layers)
                .map(|number| Layer::load(loader, number))
                .collect::<Result<_, _>>()?,
            norm: loader.norm("model.norm", config.hidden_size)?,
            ropes: Ropes::new(config, loader.device),
            embedding,
            head,
        })
    }
}

impl Layer {
    fn load(loader: &Loader<'_>, number: usize) -> Result<Layer, Error> {
        let name = |part: &str| format!("model.layers.{number}.{part}");
        let config = loader.config;
        let norm = |part: &str| loader.norm(&name(part), config.hidden_size);
        let (Some(nets), Some(mixture)) = (&config.delta_nets, &config.mixture) else {
            unreachable!("every configuration of this family has both")
        };
        Ok(Layer {
            before_mixer: norm("input_layernorm")?,
            mixer: match config.is_recurrent(number) {
                true => Mixer::Delta(DeltaNet::load(loader, &name("linear_attn"), nets)?),
                false => Mixer::Attention(Attention::load(
                    loader,
                    &name("self_attn"),
                    number,
                    QkNorm::Heads,
                    QkvStyle::Gated,
                )?),
            },
            before_mixture: norm("post_attention_layernorm")?,
            mixture: Mixture::load(loader, &name("mlp"), mixture)?,
        })
    }
}

impl Decoder for Qwen3_5Moe {
    fn new_states(&self, dtype: DType, pages: Pages, sequences: usize) -> Result<Vec<LayerState>, refrain::Error> {
        let slots = pages.positions() * sequences;
        let state = |layer: &Layer| match &layer.mixer {
            Mixer::Delta(net) => Ok(LayerState::Recurrent(net.new_state(sequences)?)),
            Mixer::Attention(attention) => Ok(LayerState::Attention(attention.new_cache(dtype, slots)?)),
        };
        self.layers.iter().map(state).collect()
    }

    fn forward(&self, batch: &Batch, states: &mut [LayerState]) -> Array {
        let slots = batch.slots();
        let ropes = self.ropes.within(batch.context);
        let mut x = self.embedding.forward(&batch.tokens);
        for (layer, state) in self.layers.iter().zip(states) {
            let read = layer.before_mixer.forward(&x);
            x = &x
                + match &layer.mixer {
                    Mixer::Delta(net) => net.forward(&read, batch, state.recurrence()),
                    Mixer::Attention(attention) => attention.forward(&read, batch, &slots, &ropes, state.cache()),
                };
            x = &x + layer.mixture.forward(&layer.before_mixture.forward(&x));
        }
        self.head.forward(&self.norm.forward(&batch.wanted_rows(&x)))
    }
}
