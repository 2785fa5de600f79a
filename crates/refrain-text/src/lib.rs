//! Tokenizers and chat templates of Hugging Face directories and GGUF files.
//!
//! - [`Tokenizer`] encodes text to token ids and decodes them; [`DecodeStream`] decodes token by token.
//! - [`ChatTemplate`] renders a [`Conversation`] to text, as transformers' `apply_chat_template` does.
//! - [`exact`] parses JSON and keeps numbers that do not fit 64 bits.
//! - [`dialects`]: how models write reasoning and tool calls; an [`AnswerReader`](dialects::AnswerReader) reads them.
//!
//! Files are opened by [`refrain_formats`]. This crate knows nothing about models or their architectures.

pub mod dialects;
pub mod exact;
mod files;
mod gguf;
mod guard;
pub mod template;
pub mod tokenizer;

pub use files::{TokenizerFiles, special_tokens};
pub use gguf::pre_tokenizer_name;
pub use refrain_formats::Error;
pub use template::{ChatTemplate, Conversation, ReasoningOptions};
pub use tokenizer::{DecodeStream, TokenBytes, Tokenizer};
