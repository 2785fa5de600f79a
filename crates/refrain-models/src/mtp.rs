//! Multi-token prediction heads: one more layer of a model, behind its own (DeepSeek-AI 2024, arXiv:2412.19437, section
//! 2.2).
//!
//! x = fc([norm(embedding of the next token), norm(hidden state)]) is the layer's input, where the hidden state is the
//! model's after its last norm. A last norm follows the layer. Embedding and output head are the model's.

use refrain::{Array, concatenate};

use crate::blocks::{Embedding, Linear, Norm, Ropes};
use crate::config::ModelConfig;
use crate::tensors::{TensorNames, TensorTable};
use crate::{Batch, CacheTypes, Error, LayerState, Loader, MtpHead, Pages};

/// Names of a head's tensors.
pub struct MtpNames {
    /// The name of all, in Hugging Face files; `None` if it is that of a layer behind the model's.
    pub name: Option<&'static str>,
    /// The projection of both inputs; as the following, within that name, and in GGUF behind `nextn.`.
    pub fc: TensorNames,
    /// The norm of the next token's embedding.
    pub embedding_norm: TensorNames,
    /// The norm of the hidden state.
    pub hidden_norm: TensorNames,
    /// The last norm.
    pub norm: TensorNames,
}

impl MtpNames {
    /// Names of DeepSeek-V3.
    pub const AS_LAYER: MtpNames = MtpNames {
        name: None,
        fc: ["eh_proj", "eh_proj"],
        embedding_norm: ["enorm", "enorm"],
        hidden_norm: ["hnorm", "hnorm"],
        norm: ["shared_head.norm", "shared_head_norm"],
    };

    /// Names of Qwen3.5.
    pub const AS_MTP: MtpNames = MtpNames {
        name: Some("mtp"),
        fc: ["fc", "eh_proj"],
        embedding_norm: ["pre_fc_norm_embedding", "enorm"],
        hidden_norm: ["pre_fc_norm_hidden", "hnorm"],
        norm: ["norm", "shared_head_norm"],
    };

    /// Returns the name of all tensors of a head behind `layers` layers, in Hugging Face files.
    fn of(&self, layers: usize) -> String {
        self.name
            .map_or_else(|| format!("model.layers.{layers}"), str::to_owned)
    }

    /// Returns the name of its layer.
    pub(crate) fn layer(&self, layers: usize) -> String {
        self.name
            .map_or_else(|| self.of(layers), |name| format!("{name}.layers.0"))
    }

    /// Returns the names of the matrix that every head has, in Hugging Face files and in GGUF.
    pub(crate) fn fc_weight(&self, layers: usize) -> [String; 2] {
        let [own, gguf] = self.fc;
        [
            format!("{}.{own}.weight", self.of(layers)),
            format!("blk.{layers}.nextn.{gguf}.weight"),
        ]
    }
}

/// A layer of a model that a head runs.
pub(crate) trait HeadLayer: Send + Sync {
    /// Allocates its zeroed state: `pages` of keys and values of `types` for each of `sequences` sequences.
    fn new_state(&self, types: CacheTypes, pages: Pages, sequences: usize) -> Result<LayerState, refrain::Error>;

    /// x `[T, hidden]` → `[T, hidden]`, or `[O, hidden]` of the tokens that the batch selects if no layer follows.
    fn forward(&self, x: &Array, batch: &Batch, place: &Place<'_>, state: &mut LayerState, is_last: bool) -> Array;
}

/// Where the tokens of a batch are.
pub(crate) struct Place<'r> {
    /// Their slots in KV caches, those of each part.
    pub slots: Vec<Array>,
    pub ropes: &'r Ropes,
}

/// A head with a layer of a model.
pub(crate) struct LayerMtpHead<L> {
    embedding: Embedding,
    embedding_norm: Norm,
    hidden_norm: Norm,
    fc: Linear,
    layer: L,
    norm: Norm,
    ropes: Ropes,
}

/// Lists the tensors of a head, without those of its layer.
pub(crate) fn tensors(table: &mut TensorTable, config: &ModelConfig) {
    let (names, layers, hidden) = (&config.family.mtp, config.layers, config.hidden_size);
    let own = table.under([format!("{}.", names.of(layers)), format!("blk.{layers}.nextn.")]);
    own.with_suffix(names.fc, ".weight", &[hidden, 2 * hidden]);
    for norm in [names.embedding_norm, names.hidden_norm, names.norm] {
        own.norm(norm, hidden);
    }
}

impl<L> LayerMtpHead<L> {
    /// Loads a head by its Hugging Face names, if the model has one. `layer` loads its layer.
    ///
    /// # Errors
    /// As [`Loader::array`].
    pub fn load(
        loader: &Loader<'_>,
        embedding: &Embedding,
        layer: impl FnOnce(usize) -> Result<L, Error>,
    ) -> Result<Option<LayerMtpHead<L>>, Error> {
        let config = loader.config;
        let (names, layers, hidden) = (&config.family.mtp, config.layers, config.hidden_size);
        if config.mtp_layers == 0 {
            return Ok(None);
        }
        let name = |[own, _]: TensorNames| format!("{}.{own}", names.of(layers));
        let norm = |own: TensorNames| loader.norm(&name(own), hidden);
        Ok(Some(LayerMtpHead {
            embedding: embedding.clone(),
            embedding_norm: norm(names.embedding_norm)?,
            hidden_norm: norm(names.hidden_norm)?,
            fc: loader.linear(&name(names.fc), hidden, 2 * hidden, false)?,
            layer: layer(layers)?,
            norm: norm(names.norm)?,
            ropes: Ropes::new(config, loader.device),
        }))
    }
}

impl<L: HeadLayer> MtpHead for LayerMtpHead<L> {
    fn new_state(&self, types: CacheTypes, pages: Pages, sequences: usize) -> Result<LayerState, refrain::Error> {
        self.layer.new_state(types, pages, sequences)
    }

    fn hidden(&self, batch: &Batch, hidden: &Array, state: &mut LayerState) -> Array {
        let place = Place {
            slots: batch.slots(),
            ropes: &self.ropes.for_context(batch.context),
        };
        let next = self.embedding_norm.forward(&self.embedding.forward(&batch.tokens));
        let x = self
            .fc
            .forward(&concatenate(&[&next, &self.hidden_norm.forward(hidden)], 1));
        self.norm.forward(&self.layer.forward(&x, batch, &place, state, true))
    }
}
