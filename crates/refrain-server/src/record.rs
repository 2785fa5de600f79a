//! What is noted of each request: its name, and what became of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::http::HeaderValue;
use axum::middleware::Next;
use axum::response::Response;
use futures_util::StreamExt;
use serde_json::json;

use crate::openai;

/// Takes lines of a log, without their ends.
pub type Log = fn(&str);

const ID: &str = "x-request-id";
/// Bytes of a client's name for a request at most.
const MOST: usize = 128;

tokio::task_local! {
    /// The request that is being answered.
    static CURRENT: Arc<RequestRecord>;
}

/// Of one request.
#[derive(Debug, Default)]
pub(crate) struct RequestRecord {
    prompt_tokens: AtomicU64,
    tokens: AtomicU64,
    client: AtomicU64,
}

impl RequestRecord {
    /// That of the request which is being answered by this task.
    pub fn current() -> Arc<RequestRecord> {
        CURRENT.try_with(Arc::clone).unwrap_or_default()
    }

    pub fn add_prompt(&self, tokens: usize) {
        self.prompt_tokens.fetch_add(tokens as u64, Ordering::Relaxed);
    }

    /// Who asks, by some number.
    pub fn client(&self) -> u64 {
        self.client.load(Ordering::Relaxed)
    }

    pub fn set_client(&self, client: u64) {
        self.client.store(client, Ordering::Relaxed);
    }

    pub fn add_token(&self) {
        self.tokens.fetch_add(1, Ordering::Relaxed);
    }
}

/// Keeps the request's `x-request-id`, or makes one, says it in the answer, and in the log when the answer is over.
pub(crate) async fn note(State(log): State<Option<Log>>, mut request: Request, next: Next) -> Response {
    let id = id(&request);
    request.headers_mut().insert(ID, id.clone());
    let record = Arc::new(RequestRecord::default());
    let mut line = LoggedRequest {
        begin: Instant::now(),
        id: id.clone(),
        method: request.method().to_string(),
        path: request.uri().path().to_owned(),
        status: 0,
        record: record.clone(),
        log,
    };
    let mut response = CURRENT.scope(record, next.run(request)).await;
    response.headers_mut().insert(ID, id);
    line.status = response.status().as_u16();
    // What is whole is over; of a stream the line is written where it ends, or is left.
    if log.is_none() || response.body().size_hint().exact().is_some() {
        return response;
    }
    response.map(|body| {
        let stream = body.into_data_stream();
        Body::from_stream(stream.map(move |data| {
            let _ends_with_the_stream = &line;
            data
        }))
    })
}

fn id(request: &Request) -> HeaderValue {
    let given = request.headers().get(ID);
    let is_fit = |id: &&HeaderValue| {
        let bytes = id.as_bytes();
        (1..=MOST).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic)
    };
    let made = || HeaderValue::try_from(openai::new_id("req")).expect("letters");
    given.filter(is_fit).cloned().unwrap_or_else(made)
}

/// A line of the log, written when it is dropped.
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
        let Some(log) = self.log else { return };
        let count = |tokens: &AtomicU64| tokens.load(Ordering::Relaxed);
        let line = json!({
            "time": jiff::Timestamp::now().to_string(),
            "id": self.id.to_str().unwrap_or_default(),
            "method": self.method,
            "path": self.path,
            "status": self.status,
            "seconds": self.begin.elapsed().as_secs_f64(),
            "prompt_tokens": count(&self.record.prompt_tokens),
            "tokens": count(&self.record.tokens),
        });
        log(&line.to_string());
    }
}
