//! The draft model of `--draft`: checks that it suits a model, and loads it beside that.

use anyhow::anyhow;
use refrain::Device;
use refrain_engine::fit::weight_bytes;
use refrain_engine::{Model, draft_memory, draft_obstacle};
use refrain_models::Checkpoint;
use refrain_text::Tokenizer;

use crate::cache_args::CacheArguments;
use crate::{Global, load, model};

/// A smaller model that guesses tokens of others.
pub(crate) struct DraftModel {
    pub name: String,
    checkpoint: Checkpoint,
    tokenizer: Tokenizer,
    cache: CacheArguments,
}

impl DraftModel {
    /// Opens the model, downloading it if needed. Its weights are loaded with each other model.
    ///
    /// # Errors
    /// If it cannot be opened, or has no tokenizer.
    pub fn open(global: &Global, name: &str, cache: CacheArguments) -> anyhow::Result<DraftModel> {
        let open = || {
            let checkpoint = model::open_or_pull(global, name)?;
            let tokenizer = checkpoint.tokenizer()?;
            anyhow::Ok((checkpoint, tokenizer))
        };
        let (checkpoint, tokenizer) = open().map_err(|why| anyhow!("--draft: {why}"))?;
        Ok(DraftModel {
            name: name.to_owned(),
            checkpoint,
            tokenizer,
            cache,
        })
    }

    /// Returns why it cannot guess tokens of another model; `None` if it can.
    ///
    /// # Errors
    /// If the other model has no tokenizer.
    pub fn obstacle(&self, target: &Checkpoint) -> anyhow::Result<Option<String>> {
        if let Some(why) = draft_obstacle(self.checkpoint.config(), target.config()) {
            return Ok(Some(why));
        }
        let other = target.tokenizer()?;
        // Ids that only one of them names are padding, or were added for what the other does not know.
        let named = (0..target.config().vocab_size as u32)
            .filter_map(|id| Some((id, self.tokenizer.token(id)?, other.token(id)?)));
        let mut different = named.filter(|(_, own, other)| own != other);
        Ok(different
            .next()
            .map(|(id, own, other)| format!("its token {id} is {own:?}, that of the other model {other:?}")))
    }

    /// Returns the bytes that it needs beside an engine with a context of `context` tokens.
    pub fn memory_needed(&self, device: &Device, context: usize, streams: usize) -> u64 {
        let cache = self.cache.types(device);
        weight_bytes(&self.checkpoint) + draft_memory(self.checkpoint.config(), cache, context, streams)
    }

    /// Loads the weights for an engine with a context of `context` tokens.
    ///
    /// # Errors
    /// If a tensor is missing or damaged, or the device fails or has too little memory.
    pub fn load(&self, global: &Global, device: &Device, context: usize) -> anyhow::Result<Model> {
        let context = context.min(self.checkpoint.config().max_position);
        Ok(load::load(global, &self.checkpoint, device, self.cache.types(device), context)?.model)
    }
}
