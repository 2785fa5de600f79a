//! GGUF files: metadata, tensors and tokenizer in one file.

mod describe;
mod entries;
mod parts;
mod reader;
mod tokenizer;
mod value;

use std::collections::{BTreeMap, HashSet};

use crate::blocks::RowOrder;
use crate::tensor::{Span, TensorInfo, TensorStorage};
use crate::tokenizer::BROKEN_TOKENIZER;
use crate::{ChatTemplate, Error, Tokenizer, guard};

pub(crate) use describe::describe;
pub use entries::{ALIGNMENT, MetadataEntries, MetadataValue};
pub(crate) use parts::{GgufFiles, in_directory};
pub use reader::holds_whole_header;
pub use tokenizer::pre_tokenizer_name;
pub(crate) use value::GgufValue;

use reader::TensorEntry;
use value::GgufMetadata;

/// The header of a GGUF file. Long arrays stay in the file, so the functions that read them take
/// its bytes again.
#[derive(Debug)]
pub(crate) struct Gguf {
    /// The file's name for messages.
    file: String,
    pub(crate) metadata: GgufMetadata,
    pub(crate) tensors: Vec<TensorEntry>,
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

    /// The file's name for messages.
    pub(crate) fn file(&self) -> &str {
        &self.file
    }

    /// The tensors under the file's own names.
    pub(crate) fn tensors(&self) -> Vec<(TensorInfo, TensorStorage)> {
        let tensor = |entry: &TensorEntry| {
            let info = TensorInfo {
                name: entry.name.clone(),
                shape: entry.shape.clone(),
                encoding: entry.encoding,
                bytes: entry.range.len() as u64,
            };
            let data = Span {
                file: entry.file,
                range: entry.range.clone(),
            };
            let rows = RowOrder::AsStored;
            let storage = match entry.encoding.block_bytes() {
                Some(_) => TensorStorage::Blocks { data, rows },
                None => TensorStorage::Plain { data, rows },
            };
            (info, storage)
        };
        self.tensors.iter().map(tensor).collect()
    }

    /// The tokens that end a text.
    pub(crate) fn eos_ids(&self, bytes: &[u8]) -> Result<Vec<u32>, Error> {
        tokenizer::eos_ids(self, bytes)
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
}
