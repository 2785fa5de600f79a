//! A server of language models over HTTP, with OpenAI's interface, Anthropic's and Ollama's.
//!
//! | path | what |
//! |---|---|
//! | `POST /v1/chat/completions` | answers to conversations, streamed or not (`openai/chat.rs`) |
//! | `POST /v1/completions` | texts that go on from prompts (`openai/completions.rs`) |
//! | `POST /v1/responses` | answers to conversations of items (`openai/responses/`) |
//! | `POST /v1/embeddings`, `/api/embed`, `/api/embeddings` | embeddings of texts (`embeddings.rs`) |
//! | `POST /v1/messages`, `/v1/messages/count_tokens` | the same, as Anthropic's clients ask (`anthropic/`) |
//! | `GET /v1/models` | the models, with the tokens that a request may have (`openai/models.rs`) |
//! | `POST /api/chat`, `/api/generate` | the same, as Ollama's clients ask (`ollama/`) |
//! | `GET /api/tags`, `/api/ps`, `/api/version`, `POST /api/show` | the models, for them (`ollama/models.rs`) |
//! | `POST /api/pull` | a model comes to this computer (`ollama/pull.rs`) |
//! | `POST /tokenize`, `/detokenize` | text to tokens and back (`tokens.rs`) |
//! | `GET /`, `/page/…`, `POST /render` | the web page, and the texts that it shows (`page/`) |
//! | `GET /health`, `/metrics` | whether it works (`health.rs`); figures for Prometheus (`metrics.rs`) |
//!
//! Texts of a model are computed together by one [`refrain_engine::Engine`] (`shelf.rs`: which models are loaded); a client
//! that leaves ends its text.

mod access;
mod answer;
mod anthropic;
mod connections;
mod cors;
mod downloads;
mod embeddings;
mod error;
mod figures;
mod health;
mod messages;
mod metrics;
mod ollama;
mod openai;
mod page;
mod parts;
mod platform;
mod record;
mod served;
mod shelf;
mod tls;
mod tokens;
mod tools;
mod visit;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::DefaultBodyLimit;
use axum::middleware;
use axum::routing::{delete, get, post};
use axum::{Extension, Router};

use connections::Connections;
pub use downloads::{DownloadFailure, DownloadNews, Downloader, Downloads, OneAtATime};
pub use platform::Entrance;
pub use record::Log;
use served::ServedModels;
pub use served::{EngineSource, ServedModel, ServedText};
pub use shelf::{EngineLoader, EngineShelf, LoadFailure, keep_alive};
pub use tls::{Certificate, CertificateError};
pub use visit::Visitor;

/// How a server is reached.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// Who gives one of these keys may ask; empty: everybody may.
    pub api_keys: Vec<String>,
    /// Bytes of a request's body at most.
    pub body_bytes: usize,
    /// Web pages of these origins may ask, beside the server's own; `*` is all.
    pub origins: Vec<String>,
    /// Hears a line of JSON of each request that is over.
    pub log: Option<Log>,
    /// Shown to those who connect, over TLS; without one it is plain HTTP.
    pub certificate: Option<Certificate>,
    /// Whether clients may have models brought to this computer.
    pub downloads: Downloads,
    /// How long a client may take to send a request, to say whether it has another, or to read what it was sent.
    pub patience: Duration,
}

impl Default for ServerOptions {
    fn default() -> Self {
        ServerOptions {
            api_keys: vec![],
            body_bytes: 16 << 20,
            origins: vec![],
            log: None,
            certificate: None,
            downloads: Downloads::Refused("this server downloads no models".to_owned()),
            patience: Duration::from_secs(60),
        }
    }
}

/// How often is looked whether to end.
const LOOK: Duration = Duration::from_millis(50);
/// How often is looked for models that nobody asked for in time.
const SWEEP: Duration = Duration::from_millis(250);

/// Serves models, one at least, until `is_over` says so; then no new requests are taken, and those under way come to their ends, if
/// that takes no longer than half a minute.
///
/// # Errors
/// If the system does not let it listen.
pub fn serve(
    entrance: Entrance,
    models: Vec<ServedModel>,
    options: &ServerOptions,
    is_over: impl Fn() -> bool + Send + 'static,
) -> std::io::Result<()> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build()?;
    let models: Vec<Arc<ServedModel>> = models.into_iter().map(Arc::new).collect();
    let shelf = models[0].shelf.clone();
    let connections = Connections {
        router: router(Arc::new(ServedModels(models)), options),
        certificate: options.certificate.clone(),
        patience: options.patience,
        body_bytes: options.body_bytes,
    };
    let over = async move {
        while !is_over() {
            tokio::time::sleep(LOOK).await;
        }
    };
    runtime.spawn(async move {
        loop {
            tokio::time::sleep(SWEEP).await;
            let shelf = shelf.clone();
            let _ = tokio::task::spawn_blocking(move || shelf.sweep()).await;
        }
    });
    let served = runtime.block_on(entrance.answer(&connections, over));
    runtime.shutdown_background();
    served
}

fn router(models: Arc<ServedModels>, options: &ServerOptions) -> Router {
    let keys: Arc<[String]> = options.api_keys.clone().into();
    let origins: Arc<[String]> = options.origins.clone().into();
    let guarded = Router::new()
        .route("/v1/chat/completions", post(openai::chat::chat))
        .route("/v1/completions", post(openai::completions::completions))
        .route("/v1/responses", post(openai::responses::responses))
        .route("/v1/embeddings", post(openai::embeddings::embeddings))
        .route("/v1/messages", post(anthropic::messages::messages))
        .route("/v1/messages/count_tokens", post(anthropic::messages::count_tokens))
        .route("/v1/models", get(openai::models::models))
        .route("/v1/models/{*name}", get(openai::models::model))
        .route("/api/chat", post(ollama::chat::chat))
        .route("/api/generate", post(ollama::generate::generate))
        .route("/api/embed", post(ollama::embed::embed))
        .route("/api/embeddings", post(ollama::embed::embeddings))
        .route("/api/tags", get(ollama::models::tags))
        .route("/api/ps", get(ollama::models::running))
        .route("/api/show", post(ollama::models::show))
        .route("/api/version", get(ollama::models::version))
        .route("/api/pull", post(ollama::pull::pull))
        .route("/api/delete", delete(ollama::pull::keeps_its_models))
        .route("/api/create", post(ollama::pull::keeps_its_models))
        .route("/api/copy", post(ollama::pull::keeps_its_models))
        .route("/api/push", post(ollama::pull::keeps_its_models))
        .route("/api/blobs/{digest}", post(ollama::pull::keeps_its_models))
        .layer(Extension(options.downloads.clone()))
        .route("/render", post(page::render))
        .route("/tokenize", post(tokens::tokenize))
        .route("/detokenize", post(tokens::detokenize))
        .route("/metrics", get(metrics::metrics))
        .layer(middleware::from_fn_with_state(keys, access::check))
        .layer(DefaultBodyLimit::disable());
    Router::new()
        .route("/", get(page::index))
        .route("/page/{name}", get(page::file))
        .route("/health", get(health::health))
        .merge(guarded)
        .fallback(error::no_such_path)
        .method_not_allowed_fallback(error::no_such_method)
        .layer(middleware::from_fn_with_state(origins, cors::allow))
        .layer(middleware::from_fn_with_state(options.log, record::note))
        .with_state(models)
}
