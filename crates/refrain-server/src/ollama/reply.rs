//! Answers as Ollama has them: whole, or a line of JSON for each piece.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;

use axum::Json;
use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use refrain_engine::Finish;
use serde_json::{Value, json};

use super::refusal::OllamaRefusal;
use crate::answer::{Answer, Ended};
use crate::error::Refusal;
use crate::parts::{News, Part, hear};
use crate::served::ServedModel;

/// How answers of one kind are put.
pub(super) struct OllamaForm {
    pub model: Arc<ServedModel>,
    pub begin: Instant,
    pub prompt_tokens: usize,
    /// Whether the model may call functions.
    pub calls: bool,
    /// The part of a line that has the text.
    pub put: fn(&Said) -> Value,
}

/// What a model said.
#[derive(Default)]
pub(super) struct Said {
    pub text: String,
    pub thinking: String,
    /// Functions with their arguments.
    pub calls: Vec<Value>,
}

impl Said {
    fn add(&mut self, part: Part) {
        match part {
            Part::Thought(piece) => self.thinking.push_str(&piece),
            Part::Text(piece) => self.text.push_str(&piece),
            Part::Call { name, arguments } => {
                let arguments = serde_json::from_str(&arguments).unwrap_or(Value::String(arguments));
                self.calls
                    .push(json!({"function": {"name": name, "arguments": arguments}}));
            }
        }
    }
}

/// An answer, streamed or whole.
pub(super) async fn reply(form: OllamaForm, answer: Answer, streamed: bool) -> Result<Response, OllamaRefusal> {
    let mut heard = hear(answer, form.calls);
    let mut first = None;
    if streamed {
        let lines = stream::unfold((form, heard, first), |(form, mut heard, mut first)| async move {
            let news = heard.recv().await?;
            let first_at = *first.get_or_insert_with(Instant::now);
            let line = match news {
                News::Part(part) => {
                    let mut said = Said::default();
                    said.add(part);
                    form.line(&said)
                }
                News::Ended(ended) => form.last(&Said::default(), ended, first_at),
                News::Failed(why) => OllamaRefusal(why).json(),
            };
            Some((Ok::<String, Infallible>(format!("{line}\n")), (form, heard, first)))
        });
        return Ok(([(CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response());
    }
    let mut all = Said::default();
    while let Some(news) = heard.recv().await {
        let first_at = *first.get_or_insert_with(Instant::now);
        match news {
            News::Part(part) => all.add(part),
            News::Ended(ended) => return Ok(Json(form.last(&all, ended, first_at)).into_response()),
            News::Failed(why) => return Err(why.into()),
        }
    }
    Err(Refusal::Silence.into())
}

impl OllamaForm {
    fn line(&self, said: &Said) -> Value {
        let mut line = (self.put)(said);
        line["model"] = self.model.name.clone().into();
        line["created_at"] = jiff::Timestamp::now().to_string().into();
        line["done"] = false.into();
        line
    }

    /// The line that ends an answer, with what it took in nanoseconds.
    fn last(&self, said: &Said, ended: Ended, first: Instant) -> Value {
        let nanoseconds = |from: Instant, to: Instant| to.duration_since(from).as_nanos() as u64;
        let now = Instant::now();
        let mut line = self.line(said);
        line["done"] = true.into();
        line["done_reason"] = match ended.finish {
            Finish::Length | Finish::Context => "length",
            Finish::Stop | Finish::StopString | Finish::Interrupted => "stop",
        }
        .into();
        line["total_duration"] = nanoseconds(self.begin, now).into();
        line["load_duration"] = 0.into();
        line["prompt_eval_count"] = self.prompt_tokens.into();
        line["prompt_eval_duration"] = nanoseconds(self.begin, first).into();
        line["eval_count"] = ended.tokens.into();
        line["eval_duration"] = nanoseconds(first, now).into();
        line
    }

    /// What those hear that ask for nothing but that the model is there.
    pub fn loaded(&self) -> Response {
        let mut line = self.line(&Said::default());
        line["done"] = true.into();
        line["done_reason"] = "load".into();
        Json(line).into_response()
    }
}
