//! A response: items of output, whole or as events.

use std::convert::Infallible;

use axum::Json;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};
use refrain_engine::Finish;
use serde_json::{Value, json};
use tokio::sync::mpsc::Receiver;

use crate::answer::Ended;
use crate::error::Refusal;
use crate::openai::new_id;
use crate::parts::{News, Part};

/// A response, streamed or whole.
pub(super) async fn reply(mut reply: Reply, mut heard: Receiver<News>, streams: bool) -> Result<Response, Refusal> {
    if streams {
        let begin = ["response.created", "response.in_progress"].map(|name| reply.state(name));
        let news = stream::unfold(heard, |mut heard| async { Some((heard.recv().await?, heard)) });
        let events = news.flat_map(move |news| stream::iter(reply.events(news)));
        let events = stream::iter(begin).chain(events).enumerate();
        let events = events.map(|(number, mut event)| {
            event["sequence_number"] = number.into();
            let name = event["type"].as_str().unwrap_or_default();
            Ok::<_, Infallible>(Event::default().event(name).data(event.to_string()))
        });
        return Ok(Sse::new(events).keep_alive(KeepAlive::default()).into_response());
    }
    while let Some(news) = heard.recv().await {
        match news {
            News::Failed(why) => return Err(why),
            News::Ended(ended) => {
                reply.close();
                reply.end(ended);
                return Ok(Json(reply.response).into_response());
            }
            News::Likelihoods(entries) => reply.likelihoods.extend(entries),
            News::Part(part) => drop(reply.take(part)),
        }
    }
    Err(Refusal::Silence)
}

/// A response so far.
pub(super) struct Reply {
    response: Value,
    output: Vec<Value>,
    input_tokens: usize,
    /// How likely the tokens of the next part were, if that was asked.
    likelihoods: Vec<Value>,
    /// Whether more may come of the last item.
    is_open: bool,
}

/// Where an item has its text, and what events of it are called.
struct TextKind {
    item: &'static str,
    id: &'static str,
    part: &'static str,
}

const THOUGHTS: TextKind = TextKind {
    item: "reasoning",
    id: "rs",
    part: "reasoning_text",
};
const TEXT: TextKind = TextKind {
    item: "message",
    id: "msg",
    part: "output_text",
};

impl Reply {
    /// One that says what was asked, to a prompt of so many tokens.
    pub fn new(said: Value, input_tokens: usize) -> Reply {
        let mut response = json!({
            "id": new_id("resp"),
            "object": "response",
            "status": "in_progress",
            "error": null,
            "incomplete_details": null,
            "output": [],
            "previous_response_id": null,
            "reasoning": {"effort": null, "summary": null},
            "store": false,
            "truncation": "disabled",
            "usage": null,
        });
        if let (Value::Object(response), Value::Object(said)) = (&mut response, said) {
            response.extend(said);
        }
        Reply {
            response,
            output: vec![],
            input_tokens,
            likelihoods: vec![],
            is_open: false,
        }
    }

    /// An event that says how the whole stands.
    fn state(&self, name: &str) -> Value {
        json!({"type": name, "response": self.response})
    }

    fn events(&mut self, news: News) -> Vec<Value> {
        match news {
            News::Likelihoods(entries) => {
                self.likelihoods.extend(entries);
                vec![]
            }
            News::Part(part) => self.take(part),
            News::Ended(ended) => {
                let mut events = self.close();
                let name = self.end(ended);
                events.push(self.state(name));
                events
            }
            News::Failed(why) => {
                self.response["status"] = "failed".into();
                self.response["error"] = json!({"code": "server_error", "message": why.to_string()});
                vec![self.state("response.failed")]
            }
        }
    }

    /// Notes the end; the name of its event.
    fn end(&mut self, ended: Ended) -> &'static str {
        let output_tokens = ended.tokens;
        self.response["output"] = self.output.clone().into();
        self.response["usage"] = json!({
            "input_tokens": self.input_tokens,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": self.input_tokens + output_tokens,
        });
        let is_whole = !matches!(ended.finish, Finish::Length | Finish::Context);
        let (status, name) = if is_whole {
            ("completed", "response.completed")
        } else {
            ("incomplete", "response.incomplete")
        };
        self.response["status"] = status.into();
        if !is_whole {
            self.response["incomplete_details"] = json!({"reason": "max_output_tokens"});
        }
        name
    }

    /// Takes a part; the events that say so.
    fn take(&mut self, part: Part) -> Vec<Value> {
        match part {
            Part::Thought(piece) => self.text(&THOUGHTS, piece),
            Part::Text(piece) => self.text(&TEXT, piece),
            Part::Call { name, arguments } => self.call(&name, &arguments),
        }
    }

    fn text(&mut self, kind: &TextKind, piece: String) -> Vec<Value> {
        let mut events = vec![];
        if !self.is_open || self.output.last().is_none_or(|item| item["type"] != kind.item) {
            events = self.close();
            let mut item = json!({"id": new_id(kind.id), "type": kind.item, "status": "in_progress", "content": []});
            match kind.item {
                "message" => item["role"] = "assistant".into(),
                _ => item["summary"] = json!([]),
            }
            events.push(self.open(item.clone()));
            let part = match kind.part {
                "output_text" => json!({"type": kind.part, "text": "", "annotations": [], "logprobs": []}),
                _ => json!({"type": kind.part, "text": ""}),
            };
            events.push(self.of_part("response.content_part.added", "part", part.clone()));
            self.last()["content"] = json!([part]);
        }
        let entries = std::mem::take(&mut self.likelihoods);
        let part = &mut self.last()["content"][0];
        if let Value::String(text) = &mut part["text"] {
            text.push_str(&piece);
        }
        // Of thoughts it is not said.
        if let Some(Value::Array(all)) = part.get_mut("logprobs") {
            all.extend(entries.iter().cloned());
        }
        let mut event = self.of_part(&format!("response.{}.delta", kind.part), "delta", piece.into());
        if kind.part == "output_text" {
            event["logprobs"] = entries.into();
        }
        events.push(event);
        events
    }

    fn call(&mut self, name: &str, arguments: &str) -> Vec<Value> {
        self.likelihoods.clear();
        let mut events = self.close();
        let item = json!({
            "id": new_id("fc"),
            "type": "function_call",
            "status": "in_progress",
            "call_id": new_id("call"),
            "name": name,
            "arguments": "",
        });
        events.push(self.open(item));
        self.last()["arguments"] = arguments.into();
        let of_call = |kind: &str, reply: &Reply, field: &str| {
            let mut event = reply.of_item(&format!("response.function_call_arguments.{kind}"));
            event[field] = arguments.into();
            event
        };
        events.push(of_call("delta", self, "delta"));
        let mut done = of_call("done", self, "arguments");
        done["name"] = name.into();
        events.push(done);
        events.extend(self.close());
        events
    }

    /// The item that came last.
    fn last(&mut self) -> &mut Value {
        self.output.last_mut().expect("an item is open")
    }

    fn open(&mut self, item: Value) -> Value {
        let event = json!({"type": "response.output_item.added", "output_index": self.output.len(), "item": item});
        self.output.push(item);
        self.is_open = true;
        event
    }

    /// Ends the item that is open.
    fn close(&mut self) -> Vec<Value> {
        if !std::mem::take(&mut self.is_open) {
            return vec![];
        }
        let rest = std::mem::take(&mut self.likelihoods);
        let last = self.last();
        last["status"] = "completed".into();
        if let Some(Value::Array(all)) = last.pointer_mut("/content/0/logprobs") {
            all.extend(rest);
        }
        let mut events = vec![];
        let part = self.last()["content"][0].clone();
        if let Some(kind) = part["type"].as_str() {
            let mut done = self.of_part(&format!("response.{kind}.done"), "text", part["text"].clone());
            if kind == "output_text" {
                done["logprobs"] = part["logprobs"].clone();
            }
            events.push(done);
            events.push(self.of_part("response.content_part.done", "part", part.clone()));
        }
        let (index, item) = (self.output.len() - 1, self.last().clone());
        events.push(json!({"type": "response.output_item.done", "output_index": index, "item": item}));
        events
    }

    /// An event of the item that came last.
    fn of_item(&self, name: &str) -> Value {
        let index = self.output.len() - 1;
        json!({"type": name, "item_id": self.output[index]["id"], "output_index": index})
    }

    /// An event of its text.
    fn of_part(&self, name: &str, field: &str, value: Value) -> Value {
        let mut event = self.of_item(name);
        event["content_index"] = 0.into();
        event[field] = value;
        event
    }
}
