//! A response, whole or as events.

use std::convert::Infallible;

use axum::Json;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};
use refrain_engine::Finish;
use serde_json::{Value, json};
use tokio::sync::mpsc::Receiver;

use super::KeptHistory;
use super::output::Output;
use crate::answer::Ended;
use crate::error::Refusal;
use crate::events::AnswerEvent;
use crate::openai::object_id;

/// Replies with a response, streamed or whole.
///
/// # Errors
/// If the model cannot go on. A stream reports that as an event.
pub(super) async fn reply(
    mut reply: Reply,
    mut events: Receiver<AnswerEvent>,
    streams: bool,
) -> Result<Response, Refusal> {
    if streams {
        let begin = ["response.created", "response.in_progress"].map(|name| reply.state(name));
        let events = stream::unfold(events, |mut events| async { Some((events.recv().await?, events)) });
        let events = events.flat_map(move |event| stream::iter(reply.events(event)));
        let events = stream::iter(begin).chain(events).enumerate();
        let events = events.map(|(number, mut event)| {
            event["sequence_number"] = number.into();
            let name = event["type"].as_str().unwrap_or_default();
            Ok::<_, Infallible>(Event::default().event(name).data(event.to_string()))
        });
        return Ok(Sse::new(events).keep_alive(KeepAlive::default()).into_response());
    }
    while let Some(event) = events.recv().await {
        match event {
            AnswerEvent::Failed(why) => return Err(why),
            AnswerEvent::Ended(ended) => {
                reply.end(ended);
                return Ok(Json(reply.response).into_response());
            }
            AnswerEvent::Logprobs(entries) => reply.output.add_logprobs(entries),
            AnswerEvent::Piece(piece) => drop(reply.output.take(piece)),
        }
    }
    Err(Refusal::Silence)
}

/// A response so far.
pub(super) struct Reply {
    response: Value,
    output: Output,
    input_tokens: usize,
    kept: Option<KeptHistory>,
}

impl Reply {
    /// A response to a prompt of this many tokens, which repeats the fields of `echo`.
    pub fn new(echo: Value, input_tokens: usize, output: Output) -> Reply {
        let mut response = json!({
            "id": object_id("resp"),
            "object": "response",
            "status": "in_progress",
            "background": false,
            "error": null,
            "incomplete_details": null,
            "output": [],
            "reasoning": {"effort": null, "summary": null},
            "truncation": "disabled",
            "usage": null,
        });
        if let (Value::Object(response), Value::Object(echo)) = (&mut response, echo) {
            response.extend(echo);
        }
        Reply {
            response,
            output,
            input_tokens,
            kept: None,
        }
    }

    /// The same response, which is kept once it has ended.
    pub fn keeping(self, kept: Option<KeptHistory>) -> Reply {
        Reply { kept, ..self }
    }

    /// Returns an event with the state of the response.
    fn state(&self, name: &str) -> Value {
        json!({"type": name, "response": self.response})
    }

    fn events(&mut self, event: AnswerEvent) -> Vec<Value> {
        match event {
            AnswerEvent::Logprobs(entries) => {
                self.output.add_logprobs(entries);
                vec![]
            }
            AnswerEvent::Piece(piece) => self.output.take(piece),
            AnswerEvent::Ended(ended) => {
                let (mut events, name) = self.end(ended);
                events.push(self.state(name));
                events
            }
            AnswerEvent::Failed(why) => {
                self.response["status"] = "failed".into();
                self.response["error"] = json!({"code": "server_error", "message": why.to_string()});
                vec![self.state("response.failed")]
            }
        }
    }

    /// Notes the end. Returns the events of the last item, and the name of the response's last event.
    fn end(&mut self, ended: Ended) -> (Vec<Value>, &'static str) {
        let is_complete = !matches!(ended.finish, Finish::Length | Finish::Context);
        let events = if is_complete {
            self.output.close()
        } else {
            self.output.cut()
        };
        let output_tokens = ended.tokens;
        self.response["output"] = self.output.items().into();
        self.response["usage"] = json!({
            "input_tokens": self.input_tokens,
            "input_tokens_details": {"cached_tokens": ended.cached_tokens},
            "output_tokens": output_tokens,
            "output_tokens_details": {"reasoning_tokens": ended.reasoning_tokens},
            "total_tokens": self.input_tokens + output_tokens,
        });
        let (status, name) = if is_complete {
            ("completed", "response.completed")
        } else {
            ("incomplete", "response.incomplete")
        };
        self.response["status"] = status.into();
        if !is_complete {
            self.response["incomplete_details"] = json!({"reason": "max_output_tokens"});
        }
        if let Some(kept) = self.kept.take() {
            kept.keep(&self.response);
        }
        (events, name)
    }
}
