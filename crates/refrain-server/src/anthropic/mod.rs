//! Anthropic's Messages API.

mod blocks;
mod conversation;
mod message;
pub(crate) mod messages;
pub(crate) mod models;
mod reasoning;
mod refusal;
mod reply;

use axum::http::HeaderMap;

pub(crate) use message::{Block, MessageJson, Usage};
pub(crate) use messages::MessagesRequest;
pub(crate) use refusal::AnthropicRefusal;

/// Whether a request comes from a client of Anthropic's API: by its path, or by the version that these clients send.
pub(crate) fn is_asked(path: &str, headers: &HeaderMap) -> bool {
    path.starts_with("/v1/messages") || headers.contains_key("anthropic-version")
}
