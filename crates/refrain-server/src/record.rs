//! The record of each request: its id, its token counts, and its line in the log.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::http::HeaderValue;
use axum::middleware::Next;
use axum::response::Response;
use futures_util::StreamExt;
use serde_json::json;

use crate::body::BodyRoom;
use crate::openai;

/// Writes a line of the log. It has no line end.
pub type Log = fn(&str);

const ID: &str = "x-request-id";
/// Maximum number of bytes of a request id that a client gives.
const MAX_ID_BYTES: usize = 128;

tokio::task_local! {
    /// The request that this task serves.
    static CURRENT: Arc<RequestRecord>;
}

/// The record of one request.
#[derive(Debug, Default)]
pub(crate) struct RequestRecord {
    prompt_tokens: AtomicU64,
    tokens: AtomicU64,
    client: AtomicU64,
    body: Mutex<Option<BodyRoom>>,
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

    pub fn add_token(&self) {
        self.tokens.fetch_add(1, Ordering::Relaxed);
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

/// Keeps the request's `x-request-id` or creates one, returns it with the response, and logs the finished request.
pub(crate) async fn record(State(log): State<Option<Log>>, mut request: Request, next: Next) -> Response {
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
    let mut response = CURRENT.scope(record.clone(), next.run(request)).await;
    record.release_body();
    response.headers_mut().insert(ID, id);
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
