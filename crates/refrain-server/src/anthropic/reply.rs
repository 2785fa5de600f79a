//! Answers as Anthropic has them: a message of blocks, whole or as events.

use std::convert::Infallible;

use axum::Json;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};
use refrain_engine::Finish;
use serde_json::{Value, json};
use tokio::sync::mpsc::Receiver;

use super::AnthropicRefusal;
use crate::answer::Ended;
use crate::error::Refusal;
use crate::openai::new_id;
use crate::parts::{News, Part};

/// What is known of a message before it comes.
pub(super) struct MessageHead {
    pub model: String,
    pub input_tokens: usize,
    pub stops: Vec<String>,
}

/// A message, streamed or whole.
pub(super) async fn reply(
    head: MessageHead,
    mut heard: Receiver<News>,
    is_streamed: bool,
) -> Result<Response, AnthropicRefusal> {
    let mut message = Message::new(head);
    if is_streamed {
        let start = json!({"type": "message_start", "message": message.json(None)});
        let news = stream::unfold(heard, |mut heard| async { Some((heard.recv().await?, heard)) });
        let events = news.flat_map(move |news| stream::iter(message.events(news)));
        let events = stream::iter([start]).chain(events).map(|event| {
            let name = event["type"].as_str().unwrap_or_default();
            Ok::<_, Infallible>(Event::default().event(name).data(event.to_string()))
        });
        return Ok(Sse::new(events).keep_alive(KeepAlive::default()).into_response());
    }
    while let Some(news) = heard.recv().await {
        match news {
            News::Likelihoods(_) => {}
            News::Part(part) => drop(message.take(part)),
            News::Ended(ended) => return Ok(Json(message.json(Some(ended))).into_response()),
            News::Failed(why) => return Err(why.into()),
        }
    }
    Err(Refusal::Silence.into())
}

/// A message so far.
struct Message {
    head: MessageHead,
    id: String,
    blocks: Vec<Value>,
}

impl Message {
    fn new(head: MessageHead) -> Message {
        Message {
            head,
            id: new_id("msg"),
            blocks: vec![],
        }
    }

    /// What is said of it; once it has ended, how.
    fn json(&self, ended: Option<Ended>) -> Value {
        let usage = json!({
            "input_tokens": self.head.input_tokens,
            "output_tokens": ended.map_or(0, |ended| ended.tokens),
        });
        let mut json = json!({
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.head.model,
            "content": self.blocks,
            "stop_reason": null,
            "stop_sequence": null,
            "usage": usage,
        });
        if let Some(ended) = ended {
            json["stop_reason"] = self.stop_reason(ended).into();
            json["stop_sequence"] = self.stop_sequence(ended);
        }
        json
    }

    fn stop_reason(&self, ended: Ended) -> &'static str {
        let calls = self.blocks.iter().any(|block| block["type"] == "tool_use");
        match ended.finish {
            Finish::Length | Finish::Context => "max_tokens",
            _ if calls => "tool_use",
            Finish::StopString => "stop_sequence",
            Finish::Stop | Finish::Interrupted => "end_turn",
        }
    }

    /// The string that ended it; of several nobody knows which it was.
    fn stop_sequence(&self, ended: Ended) -> Value {
        match (&self.head.stops[..], ended.finish) {
            ([stop], Finish::StopString) => stop.clone().into(),
            _ => Value::Null,
        }
    }

    fn events(&mut self, news: News) -> Vec<Value> {
        match news {
            // Nobody can ask for them.
            News::Likelihoods(_) => vec![],
            News::Part(part) => self.take(part),
            News::Ended(ended) => {
                let delta = json!({"stop_reason": self.stop_reason(ended), "stop_sequence": self.stop_sequence(ended)});
                let usage = json!({"output_tokens": ended.tokens});
                let mut events = self.close();
                events.push(json!({"type": "message_delta", "delta": delta, "usage": usage}));
                events.push(json!({"type": "message_stop"}));
                events
            }
            News::Failed(why) => vec![AnthropicRefusal(why).json()],
        }
    }

    /// Takes a part; the events that say so.
    fn take(&mut self, part: Part) -> Vec<Value> {
        let (kind, field, delta, piece) = match part {
            Part::Thought(piece) => ("thinking", "thinking", "thinking_delta", piece),
            Part::Text(piece) => ("text", "text", "text_delta", piece),
            Part::Call { name, arguments } => return self.call(&name, &arguments),
        };
        let mut events = vec![];
        if self.blocks.last().is_none_or(|block| block["type"] != kind) {
            events = self.close();
            let mut block = json!({"type": kind, (field): ""});
            if kind == "thinking" {
                block["signature"] = "".into();
            }
            events.push(self.start(block));
        }
        let index = self.blocks.len() - 1;
        if let Value::String(text) = &mut self.blocks[index][field] {
            text.push_str(&piece);
        }
        let delta = json!({"type": delta, (field): piece});
        events.push(json!({"type": "content_block_delta", "index": index, "delta": delta}));
        events
    }

    fn call(&mut self, name: &str, arguments: &str) -> Vec<Value> {
        let mut events = self.close();
        events.push(self.start(json!({"type": "tool_use", "id": new_id("toolu"), "name": name, "input": {}})));
        let index = self.blocks.len() - 1;
        let delta = json!({"type": "input_json_delta", "partial_json": arguments});
        events.push(json!({"type": "content_block_delta", "index": index, "delta": delta}));
        self.blocks[index]["input"] = serde_json::from_str(arguments).unwrap_or_else(|_| json!({}));
        events
    }

    fn start(&mut self, block: Value) -> Value {
        let event = json!({"type": "content_block_start", "index": self.blocks.len(), "content_block": block});
        self.blocks.push(block);
        event
    }

    /// The end of the block before, if there is one.
    fn close(&self) -> Vec<Value> {
        let last = self.blocks.len().checked_sub(1);
        let stop = |index| json!({"type": "content_block_stop", "index": index});
        last.map(stop).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_become_blocks_whole_and_as_events() {
        let mut message = Message::new(MessageHead {
            model: "m".to_owned(),
            input_tokens: 3,
            stops: vec![],
        });
        let call = Part::Call {
            name: "f".to_owned(),
            arguments: "{\"x\":1}".to_owned(),
        };
        let texts = ["a", "b"].map(|text| Part::Text(text.to_owned()));
        let [a, b] = texts;
        let parts = [Part::Thought("hm".to_owned()), a, b, call].map(News::Part);
        let ended = Ended {
            finish: Finish::Stop,
            tokens: 9,
        };
        let events: Vec<Value> = parts
            .into_iter()
            .chain([News::Ended(ended)])
            .flat_map(|news| message.events(news))
            .collect();
        let kinds: Vec<String> = events
            .iter()
            .map(|event| format!("{} {}", event["type"].as_str().unwrap(), event["index"]))
            .collect();
        let expected = [
            "content_block_start 0",
            "content_block_delta 0",
            "content_block_stop 0",
            "content_block_start 1",
            "content_block_delta 1",
            "content_block_delta 1",
            "content_block_stop 1",
            "content_block_start 2",
            "content_block_delta 2",
            "content_block_stop 2",
            "message_delta null",
            "message_stop null",
        ];
        assert_eq!(kinds, expected);
        assert_eq!(events[8]["delta"]["partial_json"], "{\"x\":1}");
        let whole = message.json(Some(ended));
        assert_eq!(whole["content"][1], json!({"type": "text", "text": "ab"}));
        assert_eq!(whole["content"][2]["input"], json!({"x": 1}));
        assert_eq!(
            (&whole["stop_reason"], &whole["usage"]),
            (&json!("tool_use"), &json!({"input_tokens": 3, "output_tokens": 9}))
        );
    }
}
