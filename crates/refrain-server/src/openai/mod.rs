//! OpenAI's interface.

pub(crate) mod chat;
pub(crate) mod completions;
pub(crate) mod embeddings;
pub(crate) mod likelihood;
pub(crate) mod models;
pub(crate) mod options;
mod reply;
pub(crate) mod responses;
pub(crate) mod structure;

pub(crate) use reply::new_id;
