//! Checkpoint files: Hugging Face safetensors directories (plain or quantised by MLX) and GGUF files, as tensors and
//! metadata.
//!
//! - [`CheckpointFiles`] maps the files into memory, and checks headers and byte ranges without reading the weights.
//! - [`Metadata`] reads configuration values from `config.json` and GGUF through one interface.
//! - [`Tensor`] copies any byte range of a tensor straight into the caller's memory, so that loading needs no second
//!   copy of the weights.
//! - [`Description`] lists configuration and tensors of any checkpoint, supported or not.
//!
//! This crate never interprets the model (`refrain-models` does), and never tokenizes (`refrain-text` does).

mod blocks;
mod checkpoint_files;
mod config;
mod dequantise;
mod description;
mod directory;
mod doubles;
mod encoding;
mod end_tokens;
mod error;
mod files;
mod gguf;
mod heads;
mod metadata;
mod microscaling;
pub mod mixed;
mod mlx;
mod mmap;
mod platform;
mod safetensors;
mod small_floats;
mod state;
mod storage;
pub mod synthetic;
mod tensor;
pub mod write;

pub use blocks::{RowOrder, TensorOrder, store_block};
pub use checkpoint_files::{CheckpointFiles, Format, NamedFiles, TextSource};
pub use config::{GenerationConfig, LayerFormat, Quantisation};
pub use dequantise::widen;
pub use description::Description;
pub use encoding::Encoding;
pub use end_tokens::EndTokens;
pub use error::Error;
pub use files::{FileSet, JsonObject, json_excerpt, json_kind};
pub use gguf::{
    ALIGNMENT, GgufKeys, GgufVocabulary, MetadataEntries, MetadataValue, TokenKind, gguf_in_directory,
    has_complete_header,
};
pub use metadata::{Key, Metadata};
pub use mixed::{QuantContext, QuantMix};
pub use platform::{
    exit_immediately, is_private, make_private_directory, private_file, raise_open_file_limit, report_truncated_files,
    return_free_memory, separate_process_group, terminate_process, tune_allocator_for_servers,
};
pub use refrain_quant::QuantRecord;
pub use small_floats::SmallFloats;
pub use state::{Plane, SnapshotKey, State};
pub use tensor::{Tensor, TensorInfo};
pub use write::{AtomicFile, WriteProgress};
