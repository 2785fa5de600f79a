//! A family of one's own: what each token predicts by itself, through one feed-forward network.

use refrain::{Array, DType};
use refrain_formats::Metadata;
use refrain_models::blocks::{BlockNorm, Embedding, Head, Mlp, MlpStyle};
use refrain_models::config::read::{self, Defaults};
use refrain_models::family::Keys;
use refrain_models::tensors::Table;
use refrain_models::{Batch, Decoder, Error, Family, LayerState, Loader, ModelConfig, Pages};
use serde_json::json;

pub static BIGRAM: Family = Family {
    name: "bigram",
    class: "BigramForCausalLM",
    gguf: Some("bigram"),
    about: "what each token predicts by itself",
    keys: Keys {
        followed: &["hidden_act", "embedding_multiplier"],
        ..Keys::COMMON
    },
    read: |metadata| Ok(scaled(read::decoder(metadata, &Defaults::of(&BIGRAM), None)?, metadata)),
    tensors: |config| {
        let mut table = Table::new(config);
        let layer = table.layer(0);
        layer.norm(["norm", "ffn_norm"], config.hidden_size);
        Mlp::tensors(layer, config, MlpStyle::Gated);
        table.rows()
    },
    build: |loader| Ok(Box::new(Bigram::load(loader)?)),
    config_json: |config| json!({ "embedding_multiplier": config.multipliers.embedding }),
    sizes: &[("tiny-bigram", || {
        let mut config = ModelConfig::of_sizes(&BIGRAM, [64, 96, 1, 2, 2], 32);
        config.vocab_size = 100;
        config.multipliers.embedding = 3.0;
        config.eos_ids = vec![2];
        config
    })],
    ..Family::DENSE
};

/// The embedding is always three times as large.
fn scaled(config: ModelConfig, _: &Metadata<'_>) -> ModelConfig {
    let mut config = config;
    config.multipliers.embedding = 3.0;
    config
}

struct Bigram {
    embedding: Embedding,
    norm: BlockNorm,
    mlp: Mlp,
    last: BlockNorm,
    head: Head,
}

impl Bigram {
    fn load(loader: &Loader<'_>) -> Result<Bigram, Error> {
        let (embedding, hidden) = (Embedding::load(loader)?, loader.config.hidden_size);
        Ok(Bigram {
            head: Head::load(loader, &embedding)?,
            embedding,
            norm: loader.norm("model.layers.0.norm", hidden)?,
            mlp: Mlp::load(loader, "model.layers.0.mlp", MlpStyle::Gated)?,
            last: loader.norm("model.norm", hidden)?,
        })
    }
}

impl Decoder for Bigram {
    fn new_states(&self, _: DType, _: Pages, _: usize) -> Result<Vec<LayerState>, refrain::Error> {
        Ok(Vec::new())
    }

    fn hidden(&self, batch: &Batch, _: &mut [LayerState]) -> Array {
        let x = self.embedding.forward(&batch.tokens);
        let x = &x + self.mlp.forward(&self.norm.forward(&x));
        self.last.forward(&batch.wanted_rows(&x))
    }

    fn logits(&self, hidden: &Array) -> Array {
        self.head.forward(hidden)
    }
}
