//! Replies of one or several choices, whole or as events.

use std::convert::Infallible;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Json;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::future::Either;
use futures_util::{StreamExt, TryStreamExt, stream};
use refrain_engine::{Finish, PickedToken};
use refrain_text::dialects::AnswerPiece;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc};

use super::pending::{self, PendingAnswer};
use crate::answer::{Answer, Ended};
use crate::error::Refusal;
use crate::record::RequestRecord;

/// Limit of the events that wait for a slow reader; then the answers wait, too.
const MAX_PENDING_EVENTS: usize = 64;

/// How one route writes the choices of its replies.
pub(super) trait ReplyForm: Clone + Send + Sync + 'static {
    /// A choice so far.
    type Choice: Send;

    /// Begins a choice.
    fn begin(&self, index: usize) -> Self::Choice;

    /// Takes pieces, and the tokens with log-probabilities that arrived with them. Returns the events that follow:
    /// choices without their index.
    fn push(&self, choice: &mut Self::Choice, pieces: Vec<AnswerPiece>, tokens: Vec<PickedToken>) -> Vec<Value>;

    /// Ends a choice. Returns the events that were held back.
    fn finish(&self, choice: &mut Self::Choice, tokens: Vec<PickedToken>) -> Vec<Value>;

    /// Returns the last event of a choice.
    fn last(&self, choice: &Self::Choice, finish: Finish) -> Value;

    /// Returns a whole choice.
    fn whole(&self, choice: Self::Choice, finish: Finish) -> Value;

    /// Returns the first event of a choice, before any text, if there is one.
    fn first(&self, choice: &mut Self::Choice) -> Option<Value>;

    /// The values of `object` in events and in whole replies.
    fn objects(&self) -> [&'static str; 2];
}

/// What all events of a reply contain.
#[derive(Clone)]
pub(super) struct ReplyHead {
    pub id: String,
    pub created: u64,
    pub model: String,
    pub prompt_tokens: usize,
    /// Tokens of prompts that were generated again for their log-probabilities.
    pub echoed_tokens: usize,
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

    fn usage(&self, spent: Spent) -> Value {
        let spent_tokens = spent.tokens.saturating_sub(self.echoed_tokens);
        json!({
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": spent_tokens,
            "total_tokens": self.prompt_tokens + spent_tokens,
            "prompt_tokens_details": {"cached_tokens": spent.cached_tokens.min(self.prompt_tokens)},
            "completion_tokens_details": {"reasoning_tokens": spent.reasoning_tokens},
        })
    }
}

/// The tokens of all choices.
#[derive(Debug, Clone, Copy, Default)]
struct Spent {
    tokens: usize,
    reasoning_tokens: usize,
    cached_tokens: usize,
}

impl Spent {
    fn add(&mut self, ended: Ended) {
        self.tokens += ended.tokens;
        self.reasoning_tokens += ended.reasoning_tokens;
        self.cached_tokens += ended.cached_tokens;
    }
}

/// Returns an id of a tool call: nine letters and digits, which every model's template takes.
pub(crate) fn new_call_id() -> String {
    const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
    let random = random();
    (0..9)
        .map(|at| char::from(LETTERS[(random >> (5 * at)) as usize % LETTERS.len()]))
        .collect()
}

fn random() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    RandomState::new().hash_one(NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Returns an id that no other reply of this process has.
pub(crate) fn new_id(kind: &str) -> String {
    format!("{kind}-{:016x}", random())
}

/// Returns such an id as it is written in the Responses API and in Anthropic's.
pub(crate) fn object_id(kind: &str) -> String {
    format!("{kind}_{:016x}", random())
}

/// Returns OpenAI's word for how an answer ended.
pub(super) fn finish_reason(finish: Finish) -> &'static str {
    match finish {
        Finish::Length | Finish::Context => "length",
        Finish::Stop | Finish::StopString | Finish::Interrupted => "stop",
    }
}

/// Replies with all choices, whole.
pub(super) async fn whole<F: ReplyForm>(
    head: ReplyHead,
    form: F,
    answers: Vec<PendingAnswer>,
) -> Result<Response, Refusal> {
    // Answers under way are read at once: each ends at its own stop strings, however long the others take.
    let limit = pending::limit(&answers);
    let choices = stream::iter(answers).enumerate().map(|(index, answer)| {
        let form = form.clone();
        async move {
            let mut answer = if index == 0 {
                answer.submit()?
            } else {
                answer.submit_when_possible().await?
            };
            let (mut choice, mut pieces) = (form.begin(index), answer.pieces());
            while let Some(found) = pieces.next().await? {
                let tokens = pieces.take_logprobs();
                form.push(&mut choice, found, tokens);
            }
            form.finish(&mut choice, pieces.take_logprobs());
            let ended = pieces.ended();
            Ok::<_, Refusal>((with_index(form.whole(choice, ended.finish), index), ended))
        }
    });
    let mut spent = Spent::default();
    let mut all = vec![];
    for (choice, ended) in choices.buffered(limit).try_collect::<Vec<_>>().await? {
        spent.add(ended);
        all.push(choice);
    }
    let mut reply = head.json(form.objects()[1], all.into());
    reply["usage"] = head.usage(spent);
    Ok(Json(reply).into_response())
}

/// Replies with all choices as events, as their pieces arrive.
///
/// # Errors
/// If the first of the answers cannot be submitted.
pub(super) fn streamed<F: ReplyForm>(
    head: ReplyHead,
    form: F,
    answers: Vec<PendingAnswer>,
    includes_usage: bool,
) -> Result<Response, Refusal> {
    let (events, received) = mpsc::channel(MAX_PENDING_EVENTS);
    let sender = EventSender {
        head,
        includes_usage,
        events,
    };
    let limit = pending::limit(&answers);
    let permits = Arc::new(Semaphore::new(limit));
    let record = RequestRecord::current();
    let mut choices = vec![];
    for (index, pending) in answers.into_iter().enumerate() {
        let (sender, form, record) = (sender.clone(), form.clone(), record.clone());
        // The first one tells whether the engine is busy; the others wait for room.
        let started = match permits.clone().try_acquire_owned() {
            Ok(permit) if index == 0 => Either::Left((permit, pending.submit()?)),
            _ => Either::Right((permits.clone(), pending)),
        };
        choices.push(async move {
            let choice = async {
                let (_permit, answer) = match started {
                    Either::Left((permit, answer)) => (permit, Ok(answer)),
                    Either::Right((permits, pending)) => {
                        let permit = permits.acquire_owned().await.ok()?;
                        (permit, pending.submit_when_possible().await)
                    }
                };
                match answer {
                    Ok(answer) => sender.choice(&form, index, answer).await,
                    Err(refusal) => {
                        sender.send(&refusal.json()).await;
                        None
                    }
                }
            };
            record.within(choice).await
        });
    }
    tokio::spawn(async move {
        let choices: Vec<_> = choices.into_iter().map(tokio::spawn).collect();
        let mut spent = Spent::default();
        for choice in choices {
            if let Some(ended) = choice.await.ok().flatten() {
                spent.add(ended);
            }
        }
        if sender.includes_usage {
            let mut usage = sender.head.json(form.objects()[0], json!([]));
            usage["usage"] = sender.head.usage(spent);
            sender.send(&usage).await;
        }
        let _ = sender.events.send(Event::default().data("[DONE]")).await;
    });
    let events = stream::unfold(received, |mut received| async {
        let event = received.recv().await?;
        Some((Ok::<Event, Infallible>(event), received))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()).into_response())
}

#[derive(Clone)]
struct EventSender {
    head: ReplyHead,
    /// Whether the last event has the usage. The others then say that they have none, as OpenAI's do.
    includes_usage: bool,
    events: mpsc::Sender<Event>,
}

impl EventSender {
    /// Sends a choice as it is generated. Returns how it ended; `None` if the client left, or it failed.
    async fn choice<F: ReplyForm>(&self, form: &F, index: usize, mut answer: Answer) -> Option<Ended> {
        let object = form.objects()[0];
        let event = |choice: Value| {
            let mut event = self.head.json(object, json!([with_index(choice, index)]));
            if self.includes_usage {
                event["usage"] = Value::Null;
            }
            event
        };
        let (mut choice, mut pieces) = (form.begin(index), answer.pieces());
        if let Some(first) = form.first(&mut choice) {
            self.send(&event(first)).await.then_some(())?;
        }
        loop {
            let next = tokio::select! {
                next = pieces.next() => next,
                () = self.events.closed() => return None,
            };
            let (found, is_over) = match next {
                Ok(Some(found)) => (form.push(&mut choice, found, pieces.take_logprobs()), false),
                Ok(None) => (form.finish(&mut choice, pieces.take_logprobs()), true),
                Err(refusal) => {
                    self.send(&refusal.json()).await;
                    return None;
                }
            };
            for piece in found {
                self.send(&event(piece)).await.then_some(())?;
            }
            if is_over {
                break;
            }
        }
        let ended = pieces.ended();
        let is_sent = self.send(&event(form.last(&choice, ended.finish))).await;
        is_sent.then_some(ended)
    }

    /// Sends an event. Returns whether the client is still there.
    async fn send(&self, value: &Value) -> bool {
        self.events.send(Event::default().data(value.to_string())).await.is_ok()
    }
}

fn with_index(mut choice: Value, index: usize) -> Value {
    choice["index"] = index.into();
    choice
}
