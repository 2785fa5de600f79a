//! GGUF files: metadata, tensors and tokenizer in one file.

mod config;
mod describe;
mod layers;
pub(crate) mod mixture;
mod names;
mod parts;
mod reader;
mod rope;
mod tensors;
mod tokenizer;
mod value;

use std::collections::{BTreeMap, HashSet};

use crate::tensor::{TensorInfo, TensorStorage};
use crate::tokenizer::BROKEN_TOKENIZER;
use crate::{ChatTemplate, Error, ModelConfig, Tokenizer, guard};

pub(crate) use describe::describe;
pub(crate) use names::gguf as name;
pub(crate) use parts::{GgufFiles, in_directory};
pub use reader::holds_whole_header;
pub(crate) use rope::{LONG_FACTORS, ROPE_FACTORS, SHORT_FACTORS};
pub(crate) use tensors::row_order;
pub(crate) use tokenizer::pre_tokenizer_name;

use reader::TensorEntry;
use value::GgufMetadata;

/// The header of a GGUF file. Long arrays stay in the file, so the functions that read them take
/// its bytes again.
#[derive(Debug)]
pub(crate) struct Gguf {
    /// The file's name for messages.
    file: String,
    metadata: GgufMetadata,
    tensors: Vec<TensorEntry>,
}

impl Gguf {
    /// A model of these tensors, whose names must differ.
    fn new(metadata: GgufMetadata, tensors: Vec<TensorEntry>) -> Result<Self, Error> {
        let mut names = HashSet::new();
        if let Some(twice) = tensors.iter().find(|tensor| !names.insert(&tensor.name)) {
            return Err(Error::tensor(&metadata.file, &twice.name, "is there twice"));
        }
        Ok(Gguf {
            file: metadata.file.clone(),
            metadata,
            tensors,
        })
    }

    /// The model's hyperparameters.
    pub(crate) fn config(&self, bytes: &[u8]) -> Result<ModelConfig, Error> {
        config::read(self, bytes)
    }

    /// The tensors under Hugging Face's names, sorted.
    pub(crate) fn tensors(&self, config: &ModelConfig) -> Result<Vec<(TensorInfo, TensorStorage)>, Error> {
        tensors::assemble(self, config)
    }

    /// The tokenizer in the file.
    pub(crate) fn tokenizer(&self, bytes: &[u8]) -> Result<Tokenizer, Error> {
        guard::run(|| tokenizer::build(self, bytes)).unwrap_or_else(|| Err(self.error(BROKEN_TOKENIZER)))
    }

    /// The chat template in the file, if it has one.
    pub(crate) fn chat_template(&self, bytes: &[u8]) -> Result<Option<ChatTemplate>, Error> {
        tokenizer::chat_template(self, bytes)
    }

    /// The special tokens that templates see.
    pub(crate) fn special_tokens(&self, bytes: &[u8]) -> Result<BTreeMap<String, String>, Error> {
        tokenizer::special_tokens(self, bytes)
    }

    /// What the file calls the model.
    pub(crate) fn model_name(&self) -> Option<&str> {
        self.metadata.string("general.name").ok().flatten()
    }

    /// Whether the file holds tokens.
    pub(crate) fn has_tokenizer(&self) -> bool {
        self.metadata.values.contains_key("tokenizer.ggml.tokens")
    }

    /// All metadata of the tokenizer, as they lie in the file with the contents `bytes`.
    pub(crate) fn tokenizer_metadata<'a>(&'a self, bytes: &'a [u8]) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        let ranges = self
            .metadata
            .ranges
            .iter()
            .filter(|(key, _)| key.starts_with("tokenizer."));
        ranges.map(|(key, range)| (key.as_str(), &bytes[range.clone()]))
    }

    fn error(&self, reason: impl Into<String>) -> Error {
        Error::file(&self.file, reason)
    }

    /// Something that a model may have, and that cannot be computed here.
    fn unsupported(&self, reason: impl Into<String>) -> Error {
        Error::Unsupported {
            file: self.file.clone(),
            reason: reason.into(),
        }
    }
}
