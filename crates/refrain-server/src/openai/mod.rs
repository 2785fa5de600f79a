//! OpenAI's interface.

pub(crate) mod chat;
pub(crate) mod completions;
pub(crate) mod messages;
pub(crate) mod models;
mod options;
mod reply;
mod tools;
