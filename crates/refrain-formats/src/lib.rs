//! Checkpoints on disk: Hugging Face safetensors directories (plain or quantised by MLX), GGUF
//! files, their tokenizers and their chat templates.
//!
//! [`Checkpoint::open`] maps the files into memory and checks all that can be checked without
//! reading the weights: headers, byte ranges, shapes and the configuration. Tensors are then read
//! through [`Tensor`], which copies any byte range of a plane straight into memory of the caller,
//! so that loading needs no second copy of the weights on the host.
//!
//! ```no_run
//! # fn main() -> Result<(), refrain_formats::Error> {
//! use refrain_formats::Checkpoint;
//!
//! let checkpoint = Checkpoint::open("Qwen3-0.6B".as_ref())?;
//! let config = checkpoint.config();
//! let embedding = checkpoint.expect(
//!     "model.embed_tokens.weight",
//!     &[config.vocab_size, config.hidden_size],
//! )?;
//! println!("{} {:?}", embedding.info.encoding, embedding.info.shape);
//! let tokenizer = checkpoint.tokenizer()?;
//! println!("{:?}", tokenizer.encode("Once upon a time", true)?);
//! # Ok(()) }
//! ```

mod blocks;
mod checkpoint;
pub mod config;
pub mod convert;
mod dequantise;
mod description;
mod encoding;
mod error;
mod files;
mod gguf;
mod guard;
mod mlx;
mod mmap;
mod platform;
mod quantise;
mod safetensors;
mod state;
pub mod synthetic;
pub mod template;
mod tensor;
pub mod tokenizer;
mod write;

pub use checkpoint::{Checkpoint, Format};
pub use config::{
    Activation, Architecture, DeltaNets, GenerationConfig, LayerAttention, LayerRope, MixtureConfig, ModelConfig,
    Quantisation, RopeScaling,
};
pub use description::Description;
pub use encoding::Encoding;
pub use error::Error;
pub use gguf::holds_whole_header;
pub use platform::{end_at_once, say_when_files_are_cut_short};
pub use state::{Basis, Plane, State};
pub use template::{ChatTemplate, Conversation, Parted, ThoughtMarks, ThoughtSplitter};
pub use tensor::{Tensor, TensorInfo};
pub use tokenizer::{DecodeStream, Tokenizer, TokenizerFiles};
pub use write::{WholeFile, WriteProgress};
