//! The dense decoder of most families, configured by a [`TransformerStyle`].

use refrain::Array;
use refrain_formats::RowOrder;
use serde_json::Value;

use crate::blocks::{
    Attention, AttentionStyle, Embedding, FeedForward, LmHead, MlpStyle, Norm, NormKind, QkNorm, QkvStyle, Ropes,
};
use crate::config::key_names::EPS;
use crate::config::{MAX_LAYERS, ModelConfig};
use crate::family::{Family, Keys};
use crate::mtp::{self, HeadLayer, LayerMtpHead, MtpNames, Place};
use crate::tensors::{TensorNames, TensorRow, TensorTable};
use crate::{Batch, CacheTypes, Decoder, Error, LayerState, Loader, MtpHead, Pages};

/// Architectural choices of a family of transformers, beyond its configuration. Norms are named by their Hugging Face
/// and GGUF names within a layer; `None` means that the family has no such norm.
pub struct TransformerStyle {
    /// Norm before attention.
    pub attn_norm: Option<TensorNames>,
    /// Norm of attention's output, before the residual sum.
    pub attn_post_norm: Option<TensorNames>,
    /// Norm before the MLP.
    pub ffn_norm: Option<TensorNames>,
    /// Norm of the MLP's output, before the residual sum.
    pub ffn_post_norm: Option<TensorNames>,
    /// Norms of queries and keys.
    pub qk_norm: QkNorm,
    /// Kind of all norms except those of queries and keys.
    pub norm: NormKind,
    /// Layout of the query, key and value projections.
    pub qkv: QkvStyle,
    /// Whether each head's softmax includes a learned sink logit.
    pub sinks: bool,
    /// Layout of the MLP's projections.
    pub mlp: MlpStyle,
    /// Whether attention and MLP read the same input and are added together (Wang & Komatsuzaki 2021).
    pub parallel: bool,
    /// Whether GGUF converters permute the rows of queries and keys for interleaved rotary embeddings.
    pub interleaved: bool,
}

impl TransformerStyle {
    /// Pre-norm transformer with RMS norms, as in most families.
    pub const DEFAULT: TransformerStyle = TransformerStyle {
        attn_norm: Some(["input_layernorm", "attn_norm"]),
        attn_post_norm: None,
        ffn_norm: Some(["post_attention_layernorm", "ffn_norm"]),
        ffn_post_norm: None,
        qk_norm: QkNorm::None,
        norm: NormKind::Rms,
        qkv: QkvStyle::Separate,
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

    /// Lists the tensors of a model.
    pub fn tensors(&self, config: &ModelConfig) -> Vec<TensorRow> {
        let (hidden, head) = (config.hidden_size, config.attention.head_dim);
        let mut table = TensorTable::new(config);
        if self.norm == NormKind::Layer {
            table.add(["model.norm.bias", "output_norm.bias"], &[hidden]);
        }
        for number in 0..(config.layers + config.mtp_layers).min(MAX_LAYERS) {
            let layer = table.layer(config, number);
            let norms = [self.attn_norm, self.attn_post_norm, self.ffn_norm, self.ffn_post_norm];
            for names in norms.into_iter().flatten() {
                Norm::tensors(layer, self.norm, names, hidden);
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
        if config.mtp_layers > 0 {
            mtp::tensors(&mut table, config);
        }
        table.rows()
    }

    /// Loads a model onto a device.
    ///
    /// # Errors
    /// As [`Loader::array`].
    pub fn build(&self, loader: &Loader<'_>) -> Result<Box<dyn Decoder>, Error> {
        Ok(Box::new(Transformer::load(loader, self)?))
    }
}

/// A transformer: blocks of grouped-query attention and an MLP (or mixture of experts) on a residual stream.
pub struct Transformer {
    embedding: Embedding,
    layers: Vec<Layer>,
    norm: Norm,
    head: LmHead,
    mtp_head: Option<LayerMtpHead<Layer>>,
    ropes: Ropes,
}

struct Layer {
    attn_norm: Option<Norm>,
    attention: Attention,
    attn_post_norm: Option<Norm>,
    ffn_norm: Option<Norm>,
    mlp: FeedForward,
    ffn_post_norm: Option<Norm>,
    residual_scale: f32,
    parallel: bool,
}

impl Transformer {
    /// Loads the weights by their Hugging Face names.
    ///
    /// # Errors
    /// As [`Loader::array`].
    pub fn load(loader: &Loader<'_>, style: &TransformerStyle) -> Result<Transformer, Error> {
        let config = loader.config;
        let embedding = Embedding::load(loader)?;
        let head = LmHead::load(loader, &embedding)?;
        let layer = |number| Layer::load(loader, number, style);
        Ok(Transformer {
            layers: (0..config.layers).map(layer).collect::<Result<_, _>>()?,
            mtp_head: LayerMtpHead::load(loader, &embedding, layer)?,
            norm: Norm::load(loader, style.norm, "model.norm", config.hidden_size)?,
            ropes: Ropes::new(config, loader.device),
            embedding,
            head,
        })
    }
}

impl Layer {
    fn load(loader: &Loader<'_>, number: usize, style: &TransformerStyle) -> Result<Layer, Error> {
        let layer = loader.config.layer_name(number);
        let name = |part: &str| format!("{layer}.{part}");
        let norm = |own: Option<TensorNames>| {
            own.map(|[own, _]| Norm::load(loader, style.norm, &name(own), loader.config.hidden_size))
                .transpose()
        };
        Ok(Layer {
            attn_norm: norm(style.attn_norm)?,
            attention: Attention::load(loader, &name("self_attn"), number, style.attention())?,
            attn_post_norm: norm(style.attn_post_norm)?,
            ffn_norm: norm(style.ffn_norm)?,
            mlp: FeedForward::load(loader, number, style.mlp)?,
            ffn_post_norm: norm(style.ffn_post_norm)?,
            residual_scale: loader.config.multipliers.residual,
            parallel: style.parallel,
        })
    }

    /// Scales what a block adds to the residual stream.
    fn scaled(&self, x: Array) -> Array {
        if self.residual_scale == 1.0 {
            x
        } else {
            x * self.residual_scale
        }
    }
}

impl HeadLayer for Layer {
    fn new_state(&self, types: CacheTypes, pages: Pages, sequences: usize) -> Result<LayerState, refrain::Error> {
        let slots = pages.positions() * sequences;
        Ok(LayerState::Attention(self.attention.new_cache(types, slots)?))
    }

    fn forward(&self, x: &Array, batch: &Batch, place: &Place<'_>, state: &mut LayerState, is_last: bool) -> Array {
        let rows = |x: &Array| batch.output_rows(x, is_last);
        let input = apply_norm(x, &self.attn_norm);
        let attn_out = self
            .attention
            .forward(&input, batch, &place.slots, place.ropes, state.cache());
        let x = rows(&(x + self.scaled(apply_norm(&attn_out, &self.attn_post_norm))));
        let input = if self.parallel {
            rows(&input)
        } else {
            apply_norm(&x, &self.ffn_norm)
        };
        let inner = self.mlp.forward(&input);
        &x + self.scaled(apply_norm(&inner, &self.ffn_post_norm))
    }
}

impl Decoder for Transformer {
    fn new_states(&self, types: CacheTypes, pages: Pages, sequences: usize) -> Result<Vec<LayerState>, refrain::Error> {
        let state = |layer: &Layer| layer.new_state(types, pages, sequences);
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

fn apply_norm(x: &Array, norm: &Option<Norm>) -> Array {
    match norm {
        Some(norm) => norm.forward(x),
        None => x.clone(),
    }
}

impl Family {
    /// Defaults of dense families, without a name and without a reader.
    pub const DENSE: Family = Family {
        name: "",
        aliases: &[],
        class: "",
        gguf: None,
        keys: Keys::COMMON,
        eps: EPS,
        partial_rotary: false,
        wrapper: None,
        mlx_keeps_head: false,
        read: |metadata| Err(metadata.unsupported("this family has no reader")),
        tensors: |config| TransformerStyle::DEFAULT.tensors(config),
        config_json: |_| Value::Null,
        legacy_keys: &[],
        gguf_metadata: |_| Vec::new(),
        gguf_to_hf: |_| (),
        mtp: MtpNames::AS_LAYER,
        build: |loader| TransformerStyle::DEFAULT.build(loader),
        presets: &[],
        description: "",
    };
}
