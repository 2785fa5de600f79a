//! GGUF files: metadata and tensors in one file. Reads headers, metadata and tensor lists; writers are elsewhere.

mod describe;
mod entries;
mod keys;
mod parts;
mod reader;
mod value;
mod vocabulary;

use std::collections::HashSet;

use crate::Error;
use crate::blocks::RowOrder;
use crate::doubles;
use crate::storage::{Span, TensorStorage};
use crate::tensor::TensorInfo;

pub(crate) use describe::describe;
pub use entries::{ALIGNMENT, MetadataEntries, MetadataValue};
pub use keys::GgufKeys;
pub(crate) use parts::GgufFiles;
pub use parts::in_directory as gguf_in_directory;
pub use reader::has_complete_header;
pub(crate) use value::GgufValue;
pub use vocabulary::{GgufVocabulary, TokenKind};

use reader::TensorEntry;
use value::GgufMetadata;

/// The header of a GGUF file. Arrays stay in the file, so functions that read them take its bytes.
#[derive(Debug)]
pub(crate) struct Gguf {
    /// The file's name for messages.
    file: String,
    pub(crate) metadata: GgufMetadata,
    pub(crate) tensors: Vec<TensorEntry>,
}

impl Gguf {
    /// Combines metadata and tensors. Tensor names must be unique.
    fn new(metadata: GgufMetadata, tensors: Vec<TensorEntry>) -> Result<Self, Error> {
        let mut names = HashSet::new();
        if let Some(twice) = tensors.iter().find(|tensor| !names.insert(&tensor.name)) {
            return Err(Error::tensor(&metadata.file, &twice.name, "is duplicated"));
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
            match entry.encoding.block_bytes() {
                Some(_) => (info, TensorStorage::Blocks { data, rows }),
                None => doubles::unquantised(info, data),
            }
        };
        self.tensors.iter().map(tensor).collect()
    }

    /// The model's name in the file.
    pub(crate) fn model_name(&self) -> Option<&str> {
        self.metadata.string("general.name").ok().flatten()
    }

    /// Whether the file has a vocabulary.
    pub(crate) fn has_tokenizer(&self) -> bool {
        self.metadata.values.contains_key("tokenizer.ggml.tokens")
    }

    /// Raw metadata of the tokenizer from the file's `bytes`.
    pub(crate) fn tokenizer_metadata<'a>(&'a self, bytes: &'a [u8]) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        let ranges = self
            .metadata
            .ranges
            .iter()
            .filter(|(key, _)| key.starts_with("tokenizer."));
        ranges.map(|(key, range)| (key.as_str(), &bytes[range.clone()]))
    }
}
