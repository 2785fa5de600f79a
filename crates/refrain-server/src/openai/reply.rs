//! Answers of one or several choices, whole or as events.

use std::convert::Infallible;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Json;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use refrain_engine::{Finish, PickedToken};
use refrain_text::Parted;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::answer::{Answer, Ended};
use crate::error::Refusal;

/// Events of a stream that may wait for a slow reader; then its text waits too.
const EVENTS: usize = 64;

/// How a kind of reply puts choices.
pub(super) trait ReplyForm: Clone + Send + Sync + 'static {
    /// Of one choice, what has come so far.
    type Choice: Default + Send;

    /// Takes a piece, and the tokens that came with it if it is to be said how likely they were; what an event says of
    /// it, if anything (the choice's own part, without its index).
    fn push(&self, choice: &mut Self::Choice, piece: Parted, told: Vec<PickedToken>) -> Vec<Value>;

    /// The end of a choice: what is said of what was held back.
    fn finish(&self, choice: &mut Self::Choice, told: Vec<PickedToken>) -> Vec<Value>;

    /// The event that ends a choice.
    fn last(&self, choice: &Self::Choice, finish: Finish) -> Value;

    /// A whole choice.
    fn whole(&self, choice: Self::Choice, finish: Finish) -> Value;

    /// What events begin with, before any text, if anything.
    fn first(&self) -> Option<Value>;

    /// What events, and whole replies, call themselves.
    fn objects(&self) -> [&'static str; 2];
}

/// What all parts of a reply say.
#[derive(Clone)]
pub(super) struct ReplyHead {
    pub id: String,
    pub created: u64,
    pub model: String,
    pub prompt_tokens: usize,
}

impl ReplyHead {
    fn json(&self, object: &str, choices: Value) -> Value {
        json!({
            "id": self.id,
            "object": object,
            "created": self.created,
            "model": self.model,
            "choices": choices,
        })
    }

    fn usage(&self, completion_tokens: usize) -> Value {
        json!({
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": self.prompt_tokens + completion_tokens,
        })
    }
}

/// A name that no other reply of this process has.
pub(crate) fn new_id(kind: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let random = RandomState::new().hash_one(NEXT.fetch_add(1, Ordering::Relaxed));
    format!("{kind}-{random:016x}")
}

/// OpenAI's word for an end.
pub(super) fn finish_reason(finish: Finish) -> &'static str {
    match finish {
        Finish::Length | Finish::Context => "length",
        Finish::Stop | Finish::StopString | Finish::Interrupted => "stop",
    }
}

/// All choices, whole.
pub(super) async fn whole<F: ReplyForm>(head: ReplyHead, form: F, answers: Vec<Answer>) -> Result<Response, Refusal> {
    let (mut choices, mut tokens) = (vec![], 0);
    // They are computed together; this one waits for each in turn.
    for (index, mut answer) in answers.into_iter().enumerate() {
        let (mut choice, mut pieces) = (F::Choice::default(), answer.pieces());
        while let Some(piece) = pieces.next().await? {
            form.push(&mut choice, piece, pieces.told());
        }
        form.finish(&mut choice, pieces.told());
        let Ended { finish, tokens: its } = pieces.ended();
        tokens += its;
        choices.push(with_index(form.whole(choice, finish), index));
    }
    let mut reply = head.json(form.objects()[1], choices.into());
    reply["usage"] = head.usage(tokens);
    Ok(Json(reply).into_response())
}

/// All choices as events, as their pieces come.
pub(super) fn streamed<F: ReplyForm>(head: ReplyHead, form: F, answers: Vec<Answer>, tells_usage: bool) -> Response {
    let (events, heard) = mpsc::channel(EVENTS);
    let sender = EventSender { head, events };
    tokio::spawn(async move {
        let choices = answers.into_iter().enumerate().map(|(index, answer)| {
            let (sender, form) = (sender.clone(), form.clone());
            tokio::spawn(async move { sender.choice(&form, index, answer).await })
        });
        let mut tokens = 0;
        for choice in choices.collect::<Vec<_>>() {
            tokens += choice.await.ok().flatten().unwrap_or(0);
        }
        if tells_usage {
            let mut usage = sender.head.json(form.objects()[0], json!([]));
            usage["usage"] = sender.head.usage(tokens);
            sender.send(&usage).await;
        }
        let _ = sender.events.send(Event::default().data("[DONE]")).await;
    });
    let events = stream::unfold(heard, |mut heard| async {
        let event = heard.recv().await?;
        Some((Ok::<Event, Infallible>(event), heard))
    });
    Sse::new(events).keep_alive(KeepAlive::default()).into_response()
}

#[derive(Clone)]
struct EventSender {
    head: ReplyHead,
    events: mpsc::Sender<Event>,
}

impl EventSender {
    /// Sends what comes of a choice; its tokens, or nothing if nobody listens or it failed.
    async fn choice<F: ReplyForm>(&self, form: &F, index: usize, mut answer: Answer) -> Option<usize> {
        let object = form.objects()[0];
        let said = |choice: Value| self.head.json(object, json!([with_index(choice, index)]));
        if let Some(first) = form.first() {
            self.send(&said(first)).await.then_some(())?;
        }
        let (mut choice, mut pieces) = (F::Choice::default(), answer.pieces());
        loop {
            let (news, is_over) = match pieces.next().await {
                Ok(Some(piece)) => (form.push(&mut choice, piece, pieces.told()), false),
                Ok(None) => (form.finish(&mut choice, pieces.told()), true),
                Err(refusal) => {
                    self.send(&refusal.json()).await;
                    return None;
                }
            };
            for piece in news {
                self.send(&said(piece)).await.then_some(())?;
            }
            if is_over {
                break;
            }
        }
        let ended = pieces.ended();
        self.send(&said(form.last(&choice, ended.finish)))
            .await
            .then_some(ended.tokens)
    }

    /// Whether somebody still listens.
    async fn send(&self, value: &Value) -> bool {
        self.events.send(Event::default().data(value.to_string())).await.is_ok()
    }
}

fn with_index(mut choice: Value, index: usize) -> Value {
    choice["index"] = index.into();
    choice
}
