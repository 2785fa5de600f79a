//! An HTTP server for language models, with OpenAI's, Anthropic's and Ollama's interfaces.
//!
//! | path | what it does |
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
//! | `/completion`, `/infill`, `/props`, `/slots`, `/apply-template` | llama-server's routes (`openai/llama_server.rs`) |
//! | `/version`, `/ping`, `/load`, `/tokenizer_info` | vLLM's routes (`openai/vllm.rs`) |
//! | `GET /`, `/page/…`, `POST /render` | the web page, and the texts that it shows (`page/`) |
//! | `GET /openapi.json` | a description of all routes (`openapi/`) |
//! | `GET /health`, `/metrics` | whether it works (`health.rs`); metrics for Prometheus (`metrics.rs`) |
//!
//! Requests for a model are batched by one [`refrain_engine::Engine`]; `registry.rs` decides which models are loaded. A
//! client that leaves cancels its request. Long texts are parsed, rendered and tokenized on blocking threads
//! (`blocking.rs`), never on those that serve connections. Names from clients never reach the file system.

mod access;
mod admission;
mod answer;
mod answer_constraint;
mod anthropic;
mod blocking;
mod body;
mod client_stream;
mod connections;
mod cors;
mod digest;
mod downloads;
mod effort;
mod embeddings;
mod error;
mod events;
mod exact_list;
mod fill;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod health;
mod histogram;
mod http_client;
mod keep_alive;
mod lease;
mod memory;
mod messages;
mod metrics;
mod model_list;
mod model_names;
mod ollama;
mod openai;
mod openapi;
mod page;
mod platform;
mod prefill;
mod query;
mod record;
mod registry;
mod served;
mod tls;
mod tokenize;
mod tokens;
mod web_origin;
mod workers;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::DefaultBodyLimit;
use axum::middleware;
use axum::routing::{delete, get, post};
use axum::{Extension, Router};

use access::ApiKeys;
use connections::Connections;
pub use downloads::{DownloadFailure, DownloadNews, Downloader, Downloads, OneAtATime};
pub use http_client::HttpClient;
use model_list::ModelList;
pub use openai::ResponseStore;
pub use platform::ServerListener;
pub use record::Log;
pub use registry::{EngineLoader, LoadFailure, ModelRegistry, ModelStay, keep_alive};
pub use served::{EngineSource, ServedModel, ServedText};
pub use tls::{Certificate, CertificateError};
use web_origin::WebPolicy;
use workers::Workers;

/// Number of threads that serve connections.
const CONNECTION_THREADS: usize = 2;

/// Time that a blocking thread waits for more work before it ends. With it ends what it remembers, such as the words that
/// it tokenized, before [`memory::return_freed`] returns free memory.
const IDLE_THREAD_LIFE: Duration = Duration::from_secs(1);

/// Settings of a server.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// Clients need one of these keys; if there are none, everybody is allowed.
    pub api_keys: Vec<String>,
    /// Maximum number of bytes of a request's body.
    pub max_body_bytes: usize,
    /// Origins of web pages that may use the server, beside its own; `*` is any.
    pub origins: Vec<String>,
    /// Host names that the server is reached by, beside those of the loopback; `*` is any.
    ///
    /// They are checked where the server has no keys, and listens at a loopback address or has such names.
    pub hosts: Vec<String>,
    /// Writes a line of JSON for each finished request.
    pub log: Option<Log>,
    /// The certificate for HTTPS; `None` for plain HTTP.
    pub certificate: Option<Certificate>,
    /// Whether clients may download models to this computer.
    pub downloads: Downloads,
    /// Where responses and conversations are kept for later requests.
    pub responses: ResponseStore,
    /// Time that a client has to send a request, to send the next one, or to read what was sent.
    pub timeout: Duration,
}

impl Default for ServerOptions {
    fn default() -> Self {
        ServerOptions {
            api_keys: vec![],
            max_body_bytes: 16 << 20,
            origins: vec![],
            hosts: vec![],
            log: None,
            certificate: None,
            downloads: Downloads::Refused("this server downloads no models".to_owned()),
            responses: ResponseStore::default(),
            timeout: Duration::from_secs(60),
        }
    }
}

/// Serves models, at least one, until `wait_for_stop` returns, which is called on a thread of its own. Then new
/// connections are refused, and running requests have half a minute to finish.
///
/// # Errors
/// If the system does not allow it to listen, or to start threads.
pub fn serve(
    listener: ServerListener,
    models: Vec<ServedModel>,
    options: &ServerOptions,
    wait_for_stop: impl FnOnce() + Send + 'static,
) -> std::io::Result<()> {
    refrain_formats::tune_allocator_for_servers();
    let threads = |name, count| {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        runtime.thread_keep_alive(IDLE_THREAD_LIFE);
        runtime.thread_name(name).worker_threads(count).enable_all().build()
    };
    let runtime = threads("connections", CONNECTION_THREADS)?;
    let workers = threads("requests", workers::thread_count())?;
    let registry = models[0].registry.clone();
    workers.spawn(registry.clone().unload_expired());
    workers.spawn(memory::return_freed());
    let policy = WebPolicy {
        has_keys: !options.api_keys.is_empty(),
        is_loopback: listener.is_loopback(),
        hosts: options.hosts.clone(),
        origins: options.origins.clone(),
    };
    let connections = Connections {
        router: router(ModelList::new(models), options, policy).layer(Extension(Workers(workers.handle().clone()))),
        certificate: options.certificate.clone(),
        timeout: options.timeout,
        max_body_bytes: options.max_body_bytes,
    };
    let (stop, stopped) = tokio::sync::oneshot::channel();
    std::thread::Builder::new().name("stop".to_owned()).spawn(move || {
        wait_for_stop();
        let _ = stop.send(());
    })?;
    let stopped = async move { drop(stopped.await) };
    let served = runtime.block_on(listener.serve(&connections, stopped));
    workers.shutdown_background();
    runtime.shutdown_background();
    registry.close();
    served
}

fn router(models: ModelList, options: &ServerOptions, policy: WebPolicy) -> Router {
    let keys = ApiKeys(options.api_keys.clone().into());
    let origins: Arc<[String]> = options.origins.clone().into();
    let guarded = Router::new()
        .route("/v1/chat/completions", post(openai::chat::chat))
        .route("/v1/completions", post(openai::completions::completions))
        .route("/v1/embeddings", post(openai::embeddings::embeddings))
        .route("/v1/messages", post(anthropic::messages::messages))
        .route("/v1/messages/count_tokens", post(anthropic::messages::count_tokens))
        .route("/v1/models", get(openai::models::models))
        .route("/models", get(openai::models::models))
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
        .route("/api/delete", delete(ollama::pull::change_models))
        .route("/api/create", post(ollama::pull::change_models))
        .route("/api/copy", post(ollama::pull::change_models))
        .route("/api/push", post(ollama::pull::change_models))
        .route(
            "/api/blobs/{digest}",
            post(ollama::pull::change_models).head(ollama::pull::no_blob),
        )
        .layer(Extension(options.downloads.clone()))
        .route("/render", post(page::render))
        .route("/tokenize", post(tokens::tokenize))
        .route("/detokenize", post(tokens::detokenize))
        .route("/metrics", get(metrics::metrics))
        .route("/openapi.json", get(openapi::openapi))
        .merge(openai::routes(options.responses.clone()))
        .layer(middleware::from_fn(workers::run))
        .layer(middleware::from_fn(access::check))
        .layer(DefaultBodyLimit::disable());
    Router::new()
        .route("/", get(page::index))
        .route("/page/{name}", get(page::file))
        .route("/health", get(health::health))
        .route("/v1/health", get(health::health))
        .merge(guarded)
        .fallback(error::no_such_path)
        .method_not_allowed_fallback(error::no_such_method)
        .layer(Extension(keys))
        .layer(middleware::from_fn_with_state(origins, cors::allow))
        .layer(middleware::from_fn_with_state(Arc::new(policy), web_origin::check))
        .layer(middleware::from_fn_with_state(options.log, record::record))
        .with_state(models)
}
