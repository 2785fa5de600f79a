//! Anthropic's interface.

mod conversation;
pub(crate) mod messages;
mod refusal;
mod reply;

pub(crate) use refusal::AnthropicRefusal;
