//! Ollama's interface.

pub(crate) mod chat;
pub(crate) mod generate;
pub(crate) mod models;
mod options;
mod refusal;
mod reply;
