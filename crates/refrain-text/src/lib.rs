//! Text and token ids: the tokenizers of Hugging Face directories and of GGUF files, and their chat templates.
//!
//! The files are those that [`refrain_formats`] opens; whether they belong to a model, and of which family, is nothing to
//! this crate.

mod files;
mod gguf;
mod guard;
pub mod template;
pub mod tokenizer;

pub use files::{TokenizerFiles, special_tokens};
pub use gguf::pre_tokenizer_name;
pub use refrain_formats::Error;
pub use template::{ChatTemplate, Conversation, Parted, ReasoningMarks, ReasoningSplitter};
pub use tokenizer::{DecodeStream, TokenBytes, Tokenizer};
