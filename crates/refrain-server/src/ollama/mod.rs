//! Ollama's API.

pub(crate) mod chat;
pub(crate) mod embed;
pub(crate) mod generate;
pub(crate) mod models;
pub(crate) mod options;
mod partial;
pub(crate) mod pull;
mod refusal;
mod reply;

pub(crate) use refusal::OllamaRefusal;
