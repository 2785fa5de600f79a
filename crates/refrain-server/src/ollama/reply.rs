//! Replies to Ollama's clients: whole, or a line of JSON for each piece.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use refrain_engine::{EngineRequest, Finish};
use refrain_text::exact;
use serde_json::Value;
use tokio::sync::mpsc::Receiver;

use super::options::{ModelFields, OllamaFields};
use super::partial::Partial;
use super::refusal::OllamaRefusal;
use crate::answer::{AnswerFormat, Ended, TokenIds};
use crate::error::Refusal;
use crate::events::{self, AnswerEvent};
use crate::served::ServedModel;

/// A reply that is being written.
pub(super) struct OllamaReply {
    model: Arc<ServedModel>,
    begin: Instant,
    prompt_tokens: usize,
    /// Writes the part of a line that has the text.
    write: fn(&Partial) -> Value,
    /// The prompt's tokens and the answer's, if the last line has them as `context`.
    context: Option<(Vec<u32>, TokenIds)>,
}

impl OllamaReply {
    pub fn new(model: Arc<ServedModel>, begin: Instant, write: fn(&Partial) -> Value) -> OllamaReply {
        OllamaReply {
            model,
            begin,
            prompt_tokens: 0,
            write,
            context: None,
        }
    }

    /// The same, where the last line has the tokens of the conversation so far.
    pub fn with_context(self) -> OllamaReply {
        OllamaReply {
            context: Some((vec![], TokenIds::default())),
            ..self
        }
    }

    /// Submits the request and replies with the answer, streamed or whole.
    ///
    /// # Errors
    /// If the engine refuses the request, or the answer fails before it is sent.
    pub async fn send(
        mut self,
        fields: &OllamaFields,
        request: EngineRequest,
        format: AnswerFormat,
    ) -> Result<Response, OllamaRefusal> {
        self.prompt_tokens = request.prompt.len();
        let prompt = self.context.as_ref().map(|_| request.prompt.clone());
        let engine = self.model.engine().await?;
        fields.model.keep(&self.model);
        let mut answer = self.model.ask(&engine, request, format)?;
        self.context = prompt.map(|prompt| (prompt, answer.collect_ids()));
        let events = events::stream(answer);
        if fields.is_streamed() {
            Ok(self.stream(events))
        } else {
            self.whole(events).await
        }
    }

    /// Replies with a line for each piece.
    fn stream(self, events: Receiver<AnswerEvent>) -> Response {
        let state = (self, events, None, Partial::default());
        let lines = stream::unfold(state, |(reply, mut events, mut first, mut pending)| async move {
            let line = loop {
                let event = events.recv().await?;
                let first = *first.get_or_insert_with(Instant::now);
                match event {
                    // Their text comes next.
                    AnswerEvent::Logprobs(entries) => pending.logprobs.extend(entries),
                    AnswerEvent::Piece(piece) => {
                        if let Some(ready) = pending.push(piece) {
                            break reply.line(&ready);
                        }
                    }
                    AnswerEvent::Ended(ended) => break reply.last(&std::mem::take(&mut pending), ended, first),
                    AnswerEvent::Failed(refusal) => break OllamaRefusal(refusal).json(),
                }
            };
            let line = Ok::<String, Infallible>(format!("{}\n", exact::to_string(&line)));
            Some((line, (reply, events, first, pending)))
        });
        ([(CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response()
    }

    /// Replies once the answer has ended.
    async fn whole(self, mut events: Receiver<AnswerEvent>) -> Result<Response, OllamaRefusal> {
        let (mut first, mut answer) = (None, Partial::default());
        while let Some(event) = events.recv().await {
            let first = *first.get_or_insert_with(Instant::now);
            match event {
                AnswerEvent::Logprobs(entries) => answer.logprobs.extend(entries),
                AnswerEvent::Piece(piece) => answer.add(piece),
                AnswerEvent::Ended(ended) => return Ok(json(&self.last(&answer, ended, first))),
                AnswerEvent::Failed(refusal) => return Err(refusal.into()),
            }
        }
        Err(Refusal::Silence.into())
    }

    fn line(&self, part: &Partial) -> Value {
        let mut line = (self.write)(part);
        if !part.logprobs.is_empty() {
            line["logprobs"] = part.logprobs.clone().into();
        }
        line["model"] = self.model.name.clone().into();
        line["created_at"] = jiff::Timestamp::now().to_string().into();
        line["done"] = false.into();
        line
    }

    /// The line that ends an answer, with durations in nanoseconds.
    fn last(&self, part: &Partial, ended: Ended, first: Instant) -> Value {
        let nanoseconds = |from: Instant, to: Instant| to.duration_since(from).as_nanos() as u64;
        let now = Instant::now();
        let mut line = self.line(part);
        line["done"] = true.into();
        line["done_reason"] = match ended.finish {
            Finish::Length | Finish::Context => "length",
            Finish::Stop | Finish::StopString | Finish::Interrupted => "stop",
        }
        .into();
        if let Some((prompt, answer)) = &self.context {
            let answer = answer.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            line["context"] = prompt.iter().chain(answer.iter()).copied().collect();
        }
        line["total_duration"] = nanoseconds(self.begin, now).into();
        line["load_duration"] = 0.into();
        line["prompt_eval_count"] = self.prompt_tokens.into();
        line["prompt_eval_duration"] = nanoseconds(self.begin, first).into();
        line["eval_count"] = ended.tokens.into();
        line["eval_duration"] = nanoseconds(first, now).into();
        line
    }

    /// Replies to a request without text: it loads the model, or unloads it.
    ///
    /// # Errors
    /// If the model cannot be loaded.
    pub async fn loaded(&self, fields: &ModelFields) -> Result<Response, OllamaRefusal> {
        let unloads = fields.unloads();
        let _engine = if unloads {
            None
        } else {
            Some(self.model.engine().await?)
        };
        fields.keep(&self.model);
        let mut line = self.line(&Partial::default());
        line["done"] = true.into();
        line["done_reason"] = if unloads { "unload" } else { "load" }.into();
        Ok(json(&line))
    }
}

/// A reply of one JSON value, whose numbers keep their digits.
fn json(value: &Value) -> Response {
    ([(CONTENT_TYPE, "application/json")], exact::to_string(value)).into_response()
}
