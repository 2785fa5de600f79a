//! Messages of the assistant, as chats write them.

use std::sync::Arc;

use refrain_engine::{Finish, PickedToken};
use refrain_text::dialects::AnswerPiece;
use serde_json::{Value, json};

use super::logprob;
use super::reply::{self, ReplyForm, finish_reason};
use super::tools::{OfferedTool, ToolKind, ToolSet, custom_input};
use crate::served::ServedModel;

/// Writes messages of the assistant.
#[derive(Clone)]
pub(super) struct ChatForm {
    pub model: Arc<ServedModel>,
    pub tools: Arc<ToolSet>,
    /// Whether an answer may have several calls.
    pub several: bool,
    /// Whether the call is written as `function_call`, for clients that sent `functions`.
    pub is_legacy: bool,
}

/// A message so far.
#[derive(Default)]
pub(super) struct Message {
    content: String,
    reasoning: String,
    calls: Vec<ToolCall>,
    /// Whether further calls are dropped, because only one is allowed.
    is_full: bool,
    /// Log-probabilities of its tokens, and how many of them were streamed.
    logprobs: Vec<Value>,
    streamed: usize,
}

/// A tool call so far.
struct ToolCall {
    id: String,
    tool: OfferedTool,
    arguments: String,
    /// Whether the call was written as a whole, or will be by its deltas.
    is_closed: bool,
}

impl ToolCall {
    /// Returns the call with the arguments so far.
    fn json(&self) -> Value {
        let name = &self.tool.name;
        if self.tool.kind == ToolKind::Custom {
            let custom = json!({"name": name, "input": custom_input(&self.arguments)});
            return json!({"id": self.id, "type": "custom", "custom": custom});
        }
        let function = json!({"name": name, "arguments": self.arguments});
        json!({"id": self.id, "type": "function", "function": function})
    }
}

impl Message {
    /// Returns the log-probabilities that were not streamed yet.
    fn new_logprobs(&mut self) -> Value {
        let entries = &self.logprobs[self.streamed..];
        self.streamed = self.logprobs.len();
        if entries.is_empty() {
            Value::Null
        } else {
            json!({"content": entries, "refusal": null})
        }
    }

    /// Returns the delta of a custom tool's call that has ended: its input is known at its end only.
    fn close_call(&mut self) -> Option<Value> {
        let index = self.calls.len().checked_sub(1)?;
        let call = &mut self.calls[index];
        if std::mem::replace(&mut call.is_closed, true) || call.tool.kind != ToolKind::Custom {
            return None;
        }
        let custom = json!({"input": custom_input(&call.arguments)});
        Some(json!({"tool_calls": [{"index": index, "custom": custom}]}))
    }
}

impl ChatForm {
    /// Takes a piece. Returns the deltas that follow.
    fn take(&self, message: &mut Message, piece: AnswerPiece) -> Vec<Value> {
        match piece {
            AnswerPiece::Reasoning(text) => {
                message.reasoning.push_str(&text);
                vec![json!({"reasoning_content": text})]
            }
            AnswerPiece::Text(text) => {
                message.content.push_str(&text);
                vec![json!({"content": text})]
            }
            AnswerPiece::Call { name, .. } => {
                let mut deltas = Vec::from_iter(message.close_call());
                if !self.several && !message.calls.is_empty() {
                    message.is_full = true;
                    return deltas;
                }
                let call = ToolCall {
                    id: reply::new_call_id(),
                    tool: self
                        .tools
                        .tool(&name)
                        .cloned()
                        .unwrap_or_else(|| OfferedTool::function(&name)),
                    arguments: String::new(),
                    is_closed: false,
                };
                let mut begun = call.json();
                begun["index"] = message.calls.len().into();
                deltas.push(if self.is_legacy {
                    json!({"function_call": begun["function"]})
                } else {
                    json!({"tool_calls": [begun]})
                });
                message.calls.push(call);
                deltas
            }
            AnswerPiece::Arguments(text) => self.arguments(message, text).into_iter().collect(),
        }
    }

    fn arguments(&self, message: &mut Message, text: String) -> Option<Value> {
        let index = message.calls.len().checked_sub(1).filter(|_| !message.is_full)?;
        let call = &mut message.calls[index];
        call.arguments.push_str(&text);
        if call.tool.kind == ToolKind::Custom {
            return None;
        }
        let function = json!({"arguments": text});
        Some(if self.is_legacy {
            json!({"function_call": function})
        } else {
            json!({"tool_calls": [{"index": index, "function": function}]})
        })
    }

    /// Adds log-probabilities to the first of some events.
    fn with_logprobs(&self, message: &mut Message, tokens: &[PickedToken], mut events: Vec<Value>) -> Vec<Value> {
        let entries = tokens.iter().map(|token| logprob::of_chat(&self.model, token));
        message.logprobs.extend(entries);
        if let Some(first) = events.first_mut().filter(|_| message.streamed < message.logprobs.len()) {
            first["logprobs"] = message.new_logprobs();
        }
        events
    }

    fn reason(&self, message: &Message, finish: Finish) -> &'static str {
        match finish_reason(finish) {
            "stop" if message.calls.is_empty() => "stop",
            "stop" if self.is_legacy => "function_call",
            "stop" => "tool_calls",
            reason => reason,
        }
    }
}

impl ReplyForm for ChatForm {
    type Choice = Message;

    fn begin(&self, _: usize) -> Message {
        Message::default()
    }

    fn push(&self, message: &mut Message, pieces: Vec<AnswerPiece>, tokens: Vec<PickedToken>) -> Vec<Value> {
        let deltas = pieces.into_iter().flat_map(|piece| self.take(message, piece));
        let events = deltas.map(delta).collect();
        self.with_logprobs(message, &tokens, events)
    }

    fn finish(&self, message: &mut Message, tokens: Vec<PickedToken>) -> Vec<Value> {
        let mut events: Vec<Value> = message.close_call().map(delta).into_iter().collect();
        let has_logprobs = message.streamed < message.logprobs.len() + tokens.len();
        if has_logprobs && events.is_empty() {
            events.push(delta(json!({})));
        }
        self.with_logprobs(message, &tokens, events)
    }

    fn last(&self, message: &Message, finish: Finish) -> Value {
        json!({"delta": {}, "finish_reason": self.reason(message, finish)})
    }

    fn whole(&self, mut message: Message, finish: Finish) -> Value {
        message.streamed = 0;
        let logprobs = message.new_logprobs();
        let reason = self.reason(&message, finish);
        let has_text = !message.content.is_empty() || message.calls.is_empty();
        let content = has_text.then_some(&message.content);
        let mut json = json!({"role": "assistant", "content": content, "refusal": null});
        if !message.reasoning.is_empty() {
            json["reasoning_content"] = message.reasoning.into();
        }
        match message.calls.first() {
            None => {}
            Some(call) if self.is_legacy => json["function_call"] = call.json()["function"].take(),
            Some(_) => json["tool_calls"] = message.calls.iter().map(ToolCall::json).collect(),
        }
        json!({"message": json, "logprobs": logprobs, "finish_reason": reason})
    }

    fn first(&self, _: &mut Message) -> Option<Value> {
        Some(delta(json!({"role": "assistant", "content": ""})))
    }

    fn objects(&self) -> [&'static str; 2] {
        ["chat.completion.chunk", "chat.completion"]
    }
}

fn delta(delta: Value) -> Value {
    json!({"delta": delta, "finish_reason": null})
}
