//! Anthropic's Messages API.

mod blocks;
mod conversation;
mod message;
pub(crate) mod messages;
mod reasoning;
mod refusal;
mod reply;

pub(crate) use refusal::AnthropicRefusal;
