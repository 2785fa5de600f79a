//! The record of each request: its id, its token counts, and its line in the log.
//!
//! The log names its fields as OpenTelemetry's conventions for HTTP and for generative AI do. Prompts and answers are
//! never logged.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::http::HeaderValue;
use axum::middleware::Next;
use axum::response::Response;
use futures_util::StreamExt;
use refrain_engine::Finish;
use serde_json::{Value, json};

use crate::admission::QueueTicket;
use crate::anthropic;
use crate::body::BodyRoom;
use crate::memory;
use crate::openai;

/// Writes a line of the log. It has no line end.
pub type Log = fn(&str);

const ID: &str = "x-request-id";
/// The name of the same header in Anthropic's API.
const ANTHROPIC_ID: &str = "request-id";
/// Names the keywords of schemas that an answer need not obey.
const NOT_ENFORCED: &str = "x-refrain-not-enforced";
/// Maximum number of bytes of that header.
const MAX_NOT_ENFORCED_BYTES: usize = 1024;
/// The name of this server in OpenTelemetry's attributes.
const PROVIDER: &str = "refrain";
/// Maximum number of bytes of a request id that a client gives.
const MAX_ID_BYTES: usize = 128;

tokio::task_local! {
    /// The request that this task serves.
    static CURRENT: Arc<RequestRecord>;
}

/// The record of one request.
#[derive(Debug, Default)]
pub(crate) struct RequestRecord {
    id: String,
    prompt_tokens: AtomicU64,
    cached_tokens: AtomicU64,
    tokens: AtomicU64,
    /// When the first token came.
    first_token: OnceLock<Instant>,
    /// The model that the client asks for, if it names one, and the one that answers.
    models: OnceLock<[Option<String>; 2]>,
    /// How each answer ended.
    finishes: Mutex<Vec<Finish>>,
    client: AtomicU64,
    /// Bytes of the texts that were worked on.
    work: AtomicUsize,
    /// Keywords of the request's schemas that are not enforced, and where they are.
    not_enforced: OnceLock<Vec<String>>,
    body: Mutex<Option<BodyRoom>>,
    ticket: Mutex<Option<QueueTicket>>,
}

impl RequestRecord {
    /// Returns the record of the request that this task serves.
    pub fn current() -> Arc<RequestRecord> {
        CURRENT.try_with(Arc::clone).unwrap_or_default()
    }

    /// Runs `work` as part of this request, in whatever task that is.
    pub async fn within<F: Future>(self: Arc<Self>, work: F) -> F::Output {
        CURRENT.scope(self, work).await
    }

    /// The id of the request; empty outside of one.
    pub fn id(&self) -> &str {
        &self.id
    }

    pub fn add_prompt(&self, tokens: usize) {
        self.prompt_tokens.fetch_add(tokens as u64, Ordering::Relaxed);
    }

    /// A number that identifies the client.
    pub fn client(&self) -> u64 {
        self.client.load(Ordering::Relaxed)
    }

    pub fn set_client(&self, client: u64) {
        self.client.store(client, Ordering::Relaxed);
    }

    /// Notes the model that is asked for and the one that answers.
    pub fn set_models(&self, asked: Option<&str>, found: &str) {
        let models = [asked, Some(found)].map(|name| name.map(str::to_owned));
        let _ = self.models.set(models);
    }

    /// Notes the end of an answer, and how many tokens of its prompt were found in the prefix cache.
    pub fn add_end(&self, finish: Finish, cached_tokens: usize) {
        self.cached_tokens.fetch_add(cached_tokens as u64, Ordering::Relaxed);
        self.finishes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(finish);
    }

    /// Notes keywords of the request's schemas that are not enforced, and where they are.
    pub fn set_not_enforced(&self, keywords: Vec<String>) {
        let _ = self.not_enforced.set(keywords);
    }

    pub fn add_token(&self) {
        self.first_token.get_or_init(Instant::now);
        self.tokens.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes work on this many bytes, whose memory is free once the request is over.
    pub fn add_work(&self, bytes: usize) {
        self.work.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Holds the request's place in the queue while it is prepared.
    pub fn hold_ticket(&self, ticket: QueueTicket) {
        *self.ticket.lock().unwrap_or_else(PoisonError::into_inner) = Some(ticket);
    }

    /// Gives up the place: the engine counts the request now, or it is not submitted.
    pub fn release_ticket(&self) {
        self.ticket.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Holds the room of the request's body.
    pub fn hold_body(&self, room: BodyRoom) {
        *self.body.lock().unwrap_or_else(PoisonError::into_inner) = Some(room);
    }

    /// Frees the room of the request's body: its tokens are there, or it is not needed any more.
    pub fn release_body(&self) {
        self.body.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

impl Drop for RequestRecord {
    fn drop(&mut self) {
        memory::freed(*self.work.get_mut());
    }
}

/// Keeps the request's `x-request-id` or creates one, returns it with the response, and logs the finished request.
pub(crate) async fn record(State(log): State<Option<Log>>, mut request: Request, next: Next) -> Response {
    let id = id(&request);
    request.headers_mut().insert(ID, id.clone());
    let mut record = RequestRecord::default();
    record.id = id.to_str().unwrap_or_default().to_owned();
    let record = Arc::new(record);
    let is_anthropic = anthropic::is_asked(request.uri().path(), request.headers());
    let mut line = LoggedRequest {
        begin: Instant::now(),
        id: id.clone(),
        method: request.method().to_string(),
        path: request.uri().path().to_owned(),
        status: 0,
        record: record.clone(),
        log,
    };
    let mut response = CURRENT.scope(record.clone(), next.run(request)).await;
    record.release_body();
    record.release_ticket();
    if is_anthropic {
        response.headers_mut().insert(ANTHROPIC_ID, id.clone());
    }
    response.headers_mut().insert(ID, id);
    if let Some(keywords) = record.not_enforced.get().filter(|keywords| !keywords.is_empty()) {
        response.headers_mut().insert(NOT_ENFORCED, header_of(keywords));
    }
    line.status = response.status().as_u16();
    // A whole response is finished. For a stream, the line is written when it ends or the client leaves.
    if log.is_none() || response.body().size_hint().exact().is_some() {
        return response;
    }
    response.map(|body| {
        let stream = body.into_data_stream();
        Body::from_stream(stream.map(move |data| {
            let _until_the_end = &line;
            data
        }))
    })
}

fn id(request: &Request) -> HeaderValue {
    let given = request.headers().get(ID);
    let is_valid = |id: &&HeaderValue| {
        let bytes = id.as_bytes();
        (1..=MAX_ID_BYTES).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic)
    };
    let new = || HeaderValue::try_from(openai::new_id("req")).expect("an ASCII id");
    given.filter(is_valid).cloned().unwrap_or_else(new)
}

/// Returns texts as a header: in ASCII, and not too long.
fn header_of(texts: &[String]) -> HeaderValue {
    let is_plain = |c: &char| c.is_ascii_graphic() || *c == ' ';
    let joined = texts.join(", ");
    let letters = joined.chars().map(|c| if is_plain(&c) { c } else { '?' });
    let text: String = letters.take(MAX_NOT_ENFORCED_BYTES).collect();
    HeaderValue::try_from(text).expect("plain ASCII")
}

/// A request's line in the log; dropping it writes the line.
struct LoggedRequest {
    begin: Instant,
    id: HeaderValue,
    method: String,
    path: String,
    status: u16,
    record: Arc<RequestRecord>,
    log: Option<Log>,
}

impl Drop for LoggedRequest {
    fn drop(&mut self) {
        if let Some(log) = self.log {
            log(&self.line().to_string());
        }
    }
}

impl LoggedRequest {
    fn line(&self) -> Value {
        let count = |tokens: &AtomicU64| tokens.load(Ordering::Relaxed);
        let record = &self.record;
        let (prompt_tokens, tokens) = (count(&record.prompt_tokens), count(&record.tokens));
        let mut line = json!({
            "time": jiff::Timestamp::now().to_string(),
            "id": self.id.to_str().unwrap_or_default(),
            "method": self.method,
            "path": self.path,
            "status": self.status,
            "seconds": self.begin.elapsed().as_secs_f64(),
            "prompt_tokens": prompt_tokens,
            "tokens": tokens,
            "http.request.method": self.method,
            "url.path": self.path,
            "http.response.status_code": self.status,
        });
        if self.status >= 500 {
            line["error.type"] = self.status.to_string().into();
        }
        if let Some(keywords) = record.not_enforced.get().filter(|keywords| !keywords.is_empty()) {
            line["refrain.not_enforced"] = keywords.clone().into();
        }
        let Some((operation, [asked, found])) = operation(&self.path).zip(record.models.get()) else {
            return line;
        };
        line["gen_ai.operation.name"] = operation.into();
        line["gen_ai.provider.name"] = PROVIDER.into();
        if let Some(asked) = asked {
            line["gen_ai.request.model"] = asked.as_str().into();
        }
        line["gen_ai.response.model"] = found.as_deref().into();
        line["gen_ai.usage.input_tokens"] = prompt_tokens.into();
        line["gen_ai.usage.output_tokens"] = tokens.into();
        line["gen_ai.usage.cache_read.input_tokens"] = count(&record.cached_tokens).into();
        let finishes = record.finishes.lock().unwrap_or_else(PoisonError::into_inner);
        if !finishes.is_empty() {
            line["gen_ai.response.finish_reasons"] = finishes.iter().map(|finish| finish_reason(*finish)).collect();
        }
        if let Some(first) = record.first_token.get() {
            line["gen_ai.server.time_to_first_token"] = first.duration_since(self.begin).as_secs_f64().into();
        }
        line
    }
}

/// Returns OpenTelemetry's name of what a route does with a model; `None` for other routes.
fn operation(path: &str) -> Option<&'static str> {
    match path {
        "/v1/chat/completions" | "/v1/messages" | "/v1/responses" | "/api/chat" => Some("chat"),
        "/v1/completions" | "/api/generate" | "/completion" | "/completions" | "/infill" => Some("text_completion"),
        "/v1/embeddings" | "/api/embed" | "/api/embeddings" => Some("embeddings"),
        _ => None,
    }
}

fn finish_reason(finish: Finish) -> &'static str {
    match finish {
        Finish::Length | Finish::Context => "length",
        Finish::Stop | Finish::StopString => "stop",
        Finish::Interrupted => "error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keywords_become_a_header_of_plain_ascii() {
        let keywords = ["uniqueItems".to_owned(), "not at /properties/ü\n".to_owned()];
        assert_eq!(header_of(&keywords), "uniqueItems, not at /properties/??");
        let many = vec!["x".repeat(100); 100];
        assert_eq!(header_of(&many).len(), MAX_NOT_ENFORCED_BYTES);
    }
}
