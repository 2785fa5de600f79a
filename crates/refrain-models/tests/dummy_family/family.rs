//! An example family outside this crate: each token predicts the next one through one MLP.

use refrain::Array;
use refrain_formats::Metadata;
use refrain_models::blocks::{Embedding, LmHead, Mlp, MlpStyle, Norm};
use refrain_models::config::read::{self, Defaults};
use refrain_models::family::Keys;
use refrain_models::tensors::TensorTable;
use refrain_models::{Batch, CacheTypes, Decoder, Error, Family, LayerState, Loader, ModelConfig, Pages};
use serde_json::json;

pub static BIGRAM: Family = Family {
    name: "bigram",
    class: "BigramForCausalLM",
    gguf: Some("bigram"),
    description: "a bigram model",
    keys: Keys {
        supported: &["hidden_act", "embedding_multiplier"],
        ..Keys::COMMON
    },
    read: |metadata| {
        Ok(scaled(
            read::decoder(metadata, &Defaults::new(&BIGRAM), None)?,
            metadata,
        ))
    },
    tensors: |config| {
        let mut table = TensorTable::new(config);
        let layer = table.layer(config, 0);
        layer.norm(["norm", "ffn_norm"], config.hidden_size);
        Mlp::tensors(layer, config, MlpStyle::Gated);
        table.rows()
    },
    build: |loader| Ok(Box::new(Bigram::load(loader)?)),
    config_json: |config| json!({ "embedding_multiplier": config.multipliers.embedding }),
    presets: &[("tiny-bigram", || {
        let mut config = ModelConfig::from_sizes(&BIGRAM, [64, 96, 1, 2, 2], 32);
        config.vocab_size = 100;
        config.multipliers.embedding = 3.0;
        config.eos_ids = vec![2];
        config
    })],
    ..Family::DENSE
};

/// Sets the embedding factor, which is always 3.
fn scaled(config: ModelConfig, _: &Metadata<'_>) -> ModelConfig {
    let mut config = config;
    config.multipliers.embedding = 3.0;
    config
}

struct Bigram {
    embedding: Embedding,
    norm: Norm,
    mlp: Mlp,
    last: Norm,
    head: LmHead,
}

impl Bigram {
    fn load(loader: &Loader<'_>) -> Result<Bigram, Error> {
        let (embedding, hidden) = (Embedding::load(loader)?, loader.config.hidden_size);
        Ok(Bigram {
            head: LmHead::load(loader, &embedding)?,
            embedding,
            norm: loader.norm("model.layers.0.norm", hidden)?,
            mlp: Mlp::load(loader, "model.layers.0.mlp", MlpStyle::Gated)?,
            last: loader.norm("model.norm", hidden)?,
        })
    }
}

impl Decoder for Bigram {
    fn new_states(&self, _: CacheTypes, _: Pages, _: usize) -> Result<Vec<LayerState>, refrain::Error> {
        Ok(Vec::new())
    }

    fn hidden(&self, batch: &Batch, _: &mut [LayerState]) -> Array {
        let x = self.embedding.forward(&batch.tokens);
        let x = &x + self.mlp.forward(&self.norm.forward(&x));
        self.last.forward(&batch.logits_rows(&x))
    }

    fn logits(&self, hidden: &Array) -> Array {
        self.head.forward(hidden)
    }
}
