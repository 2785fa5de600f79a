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
use refrain_text::Parted;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::refusal::OllamaRefusal;
use crate::answer::{Answer, Ended};
use crate::error::Refusal;
use crate::served::ServedModel;
use crate::tools::{CallSplitter, CallsAndText};

/// Lines of a stream that may wait for a slow reader; then its text waits too.
const LINES: usize = 64;

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

/// What comes of an answer.
enum News {
    Said(Said),
    Ended { ended: Ended, first: Instant },
    Failed(Refusal),
}

/// An answer, streamed or whole.
pub(super) async fn reply(form: OllamaForm, answer: Answer, streamed: bool) -> Result<Response, OllamaRefusal> {
    let (news, mut heard) = mpsc::channel(LINES);
    tokio::spawn(tell(answer, form.calls, news));
    if streamed {
        let lines = stream::unfold((form, heard), |(form, mut heard)| async {
            let line = match heard.recv().await? {
                News::Said(said) => form.line(&said),
                News::Ended { ended, first } => form.last(&Said::default(), ended, first),
                News::Failed(why) => OllamaRefusal(why).json(),
            };
            Some((Ok::<String, Infallible>(format!("{line}\n")), (form, heard)))
        });
        return Ok(([(CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response());
    }
    let mut all = Said::default();
    while let Some(news) = heard.recv().await {
        match news {
            News::Said(said) => {
                all.text.push_str(&said.text);
                all.thinking.push_str(&said.thinking);
                all.calls.extend(said.calls);
            }
            News::Ended { ended, first } => return Ok(Json(form.last(&all, ended, first)).into_response()),
            News::Failed(why) => return Err(why.into()),
        }
    }
    Err(Refusal::Silence.into())
}

/// Tells what comes of an answer until it ends, or nobody listens.
async fn tell(mut answer: Answer, calls: bool, news: mpsc::Sender<News>) {
    let (mut pieces, mut splitter, mut first) = (answer.pieces(), CallSplitter::default(), None);
    loop {
        let (said, is_over) = match pieces.next().await {
            Ok(Some(Parted { reasoning, answer })) => {
                let found = match calls {
                    true => splitter.push(&answer),
                    false => CallsAndText {
                        text: answer,
                        calls: vec![],
                    },
                };
                (said(reasoning, found), false)
            }
            Ok(None) => (said(String::new(), splitter.finish()), true),
            Err(why) => return drop(news.send(News::Failed(why)).await),
        };
        let first = *first.get_or_insert_with(Instant::now);
        let is_silent = said.text.is_empty() && said.thinking.is_empty() && said.calls.is_empty();
        if !is_silent && news.send(News::Said(said)).await.is_err() {
            return;
        }
        if is_over {
            let ended = pieces.ended();
            return drop(news.send(News::Ended { ended, first }).await);
        }
    }
}

fn said(thinking: String, found: CallsAndText) -> Said {
    let call = |(name, arguments): (String, String)| {
        let arguments = serde_json::from_str(&arguments).unwrap_or(Value::String(arguments));
        json!({"function": {"name": name, "arguments": arguments}})
    };
    Said {
        text: found.text,
        thinking,
        calls: found.calls.into_iter().map(call).collect(),
    }
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
