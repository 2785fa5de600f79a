//! Checkpoints on disk: Hugging Face safetensors directories (plain or quantised by MLX) and GGUF files, as bytes,
//! tensors, keys and values.
//!
//! [`CheckpointFiles`] maps the files into memory and checks all that can be checked without reading the weights or
//! knowing the model: headers and byte ranges. Settings are read through [`Metadata`], alike from `config.json` and from
//! GGUF. Tensors are read through [`Tensor`], which copies any byte range of a plane straight into memory of the
//! caller, so that loading needs no second copy of the weights on the host. What a family of models makes of them
//! stands in the crate that has its code, and what tokenizers and templates make of their keys and files in the crate of texts.

mod blocks;
mod checkpoint_files;
mod config;
mod dequantise;
mod description;
mod directory;
mod encoding;
mod error;
mod files;
mod gguf;
mod metadata;
mod microscaling;
pub mod mixed;
mod mlx;
mod mmap;
mod platform;
mod safetensors;
mod state;
pub mod synthetic;
mod tensor;
pub mod write;

pub use blocks::{RowOrder, TensorOrder, store_block};
pub use checkpoint_files::{CheckpointFiles, Format, NamedFiles, TextSource};
pub use config::{GenerationConfig, Quantisation};
pub use dequantise::widen;
pub use description::Description;
pub use encoding::Encoding;
pub use error::Error;
pub use files::{FileSet, JsonObject, json_kind};
pub use gguf::{
    ALIGNMENT, GgufKeys, GgufVocabulary, MetadataEntries, MetadataValue, TokenKind, gguf_in_directory,
    holds_whole_header,
};
pub use metadata::{Key, Metadata};
pub use mixed::{MatrixPlace, MixedFile};
pub use platform::{allow_open_files, ask_to_end, end_at_once, say_when_files_are_cut_short};
pub use refrain_quant::QuantRecord;
pub use state::{Basis, Plane, State};
pub use tensor::{Tensor, TensorInfo};
pub use write::{WholeFile, WriteProgress};
