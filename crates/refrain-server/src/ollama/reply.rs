//! Answers as Ollama has them: whole, or a line of JSON for each piece.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;

use axum::Json;
use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use refrain_engine::{EngineRequest, Finish};
use serde_json::{Value, json};

use super::options::{ModelFields, OllamaFields};
use super::refusal::OllamaRefusal;
use crate::answer::{Answer, Ended, TextOptions};
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
    /// How likely its tokens were, if that was asked.
    pub likelihoods: Vec<Value>,
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
async fn answered(form: OllamaForm, answer: Answer, streamed: bool) -> Result<Response, OllamaRefusal> {
    let mut heard = hear(answer, form.calls);
    let mut first = None;
    if streamed {
        let lines = stream::unfold((form, heard, first), |(form, mut heard, mut first)| async move {
            let mut said = Said::default();
            let line = loop {
                let news = heard.recv().await?;
                let first_at = *first.get_or_insert_with(Instant::now);
                match news {
                    // Their text comes next.
                    News::Likelihoods(entries) => said.likelihoods.extend(entries),
                    News::Part(part) => {
                        said.add(part);
                        break form.line(&said);
                    }
                    News::Ended(ended) => break form.last(&said, ended, first_at),
                    News::Failed(why) => break OllamaRefusal(why).json(),
                }
            };
            Some((Ok::<String, Infallible>(format!("{line}\n")), (form, heard, first)))
        });
        return Ok(([(CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response());
    }
    let mut all = Said::default();
    while let Some(news) = heard.recv().await {
        let first_at = *first.get_or_insert_with(Instant::now);
        match news {
            News::Likelihoods(entries) => all.likelihoods.extend(entries),
            News::Part(part) => all.add(part),
            News::Ended(ended) => return Ok(Json(form.last(&all, ended, first_at)).into_response()),
            News::Failed(why) => return Err(why.into()),
        }
    }
    Err(Refusal::Silence.into())
}

impl OllamaForm {
    /// Has the model answer a request, as long to stay as the fields say.
    pub async fn reply(
        mut self,
        fields: &OllamaFields,
        asked: EngineRequest,
        text: TextOptions,
    ) -> Result<Response, OllamaRefusal> {
        self.prompt_tokens = asked.prompt.len();
        let engine = self.model.engine().await?;
        fields.named.keep(&self.model);
        let answer = self.model.ask(&engine, asked, text)?;
        answered(self, answer, fields.stream.unwrap_or(true)).await
    }

    fn line(&self, said: &Said) -> Value {
        let mut line = (self.put)(said);
        if !said.likelihoods.is_empty() {
            line["logprobs"] = said.likelihoods.clone().into();
        }
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

    /// What those hear that ask for nothing but that the model is there, or that it goes.
    pub async fn loaded(&self, named: &ModelFields) -> Result<Response, OllamaRefusal> {
        let goes = named.sends_away();
        let _held = if goes { None } else { Some(self.model.engine().await?) };
        named.keep(&self.model);
        let mut line = self.line(&Said::default());
        line["done"] = true.into();
        line["done_reason"] = if goes { "unload" } else { "load" }.into();
        Ok(Json(line).into_response())
    }
}
