//! Anthropic's Messages API.

mod blocks;
mod conversation;
mod message;
pub(crate) mod messages;
mod reasoning;
mod refusal;
mod reply;

pub(crate) use message::{Block, MessageJson, Usage};
pub(crate) use messages::MessagesRequest;
pub(crate) use refusal::AnthropicRefusal;
