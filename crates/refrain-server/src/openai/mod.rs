//! OpenAI's interface.

pub(crate) mod chat;
pub(crate) mod completions;
mod likelihood;
pub(crate) mod models;
pub(crate) mod options;
mod reply;
pub(crate) mod responses;
pub(crate) mod structure;

pub(crate) use reply::new_id;
