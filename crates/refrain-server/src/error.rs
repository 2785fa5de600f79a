//! Errors of requests, in OpenAI's format. The other interfaces convert them to theirs.

use std::borrow::Cow;
use std::time::Duration;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::anthropic::AnthropicRefusal;
use crate::ollama::OllamaRefusal;
use crate::registry::LoadFailure;

pub(crate) use crate::body::Body;

/// Why a request fails.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// A request that is not valid HTTP or JSON.
    #[error("{0}")]
    Malformed(String),
    /// A body whose fields do not have the right types.
    #[error("{message}")]
    Invalid { field: Option<String>, message: String },
    #[error("the body exceeds this server's limit of {0} bytes")]
    TooLarge(usize),
    #[error("the body has too many values; send fewer in one request")]
    TooManyValues,
    #[error("the server is receiving too many large requests; try again later")]
    NoRoom,
    #[error("the body was not received within {} seconds", .0.as_secs())]
    TooSlow(Duration),
    /// A field with a value that is not supported.
    #[error("{field}: {why}")]
    Field { field: Cow<'static, str>, why: String },
    #[error("{asked:?} is not served here; this server has {}", .served.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", "))]
    NoSuchModel { asked: String, served: Vec<String> },
    #[error("the model cannot be loaded: {0}")]
    Load(#[from] LoadFailure),
    #[error("this model has no chat template; use /v1/completions")]
    NoTemplate,
    #[error("this server needs an API key, as `Authorization: Bearer KEY`")]
    Unauthorized,
    #[error("not found: {0}")]
    NoSuchPath(String),
    /// An object of an interface, such as a stored response, that does not exist or belongs to another key.
    #[error("{0} not found")]
    NoSuchObject(String),
    #[error("{0} does not support {1}")]
    NoSuchMethod(String, String),
    /// An error of the engine.
    #[error(transparent)]
    Engine(#[from] refrain_engine::Error),
    /// An error of the tokenizer or the chat template.
    #[error(transparent)]
    Text(#[from] refrain_formats::Error),
    /// What the server's operator does not allow.
    #[error("{0}")]
    Forbidden(String),
    /// Too many grammars are compiled, or take up memory.
    #[error("{0}")]
    GrammarsBusy(String),
    #[error("another model is being downloaded; try again later")]
    Downloading,
    /// A download that failed.
    #[error("{0}")]
    Download(String),
    /// The engine or a thread ended without a result.
    #[error("the model produced no output")]
    Silence,
}

impl Refusal {
    pub fn field(field: impl Into<Cow<'static, str>>, why: impl Into<String>) -> Refusal {
        Refusal::Field {
            field: field.into(),
            why: why.into(),
        }
    }

    pub fn status(&self) -> StatusCode {
        use refrain_engine::Error as Engine;
        match self {
            Refusal::Malformed(_)
            | Refusal::Invalid { .. }
            | Refusal::Field { .. }
            | Refusal::NoTemplate
            | Refusal::Text(_) => StatusCode::BAD_REQUEST,
            Refusal::TooLarge(_) | Refusal::TooManyValues => StatusCode::PAYLOAD_TOO_LARGE,
            Refusal::TooSlow(_) => StatusCode::REQUEST_TIMEOUT,
            Refusal::NoSuchModel { .. } | Refusal::NoSuchPath(_) | Refusal::NoSuchObject(_) => StatusCode::NOT_FOUND,
            Refusal::NoSuchMethod(..) => StatusCode::METHOD_NOT_ALLOWED,
            Refusal::Unauthorized => StatusCode::UNAUTHORIZED,
            Refusal::Forbidden(_) => StatusCode::FORBIDDEN,
            Refusal::Download(_) => StatusCode::BAD_GATEWAY,
            Refusal::NoRoom
            | Refusal::GrammarsBusy(_)
            | Refusal::Downloading
            | Refusal::Load(LoadFailure::NoRoom(_))
            | Refusal::Engine(Engine::Busy { .. } | Engine::EngineFailed | Engine::NoMemory(_)) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Refusal::Engine(
                Engine::ContextFull { .. }
                | Engine::TokenRange { .. }
                | Engine::EmptyPrompt
                | Engine::Sampler(_)
                | Engine::Constraint(_)
                | Engine::Setting(_),
            ) => StatusCode::BAD_REQUEST,
            Refusal::Engine(_) | Refusal::Load(_) | Refusal::Silence => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn code(&self) -> Option<&'static str> {
        match self {
            Refusal::Engine(refrain_engine::Error::ContextFull { .. }) => Some("context_length_exceeded"),
            Refusal::NoSuchModel { .. } => Some("model_not_found"),
            Refusal::Unauthorized => Some("invalid_api_key"),
            Refusal::Engine(refrain_engine::Error::Busy { .. } | refrain_engine::Error::NoMemory(_)) => {
                Some("overloaded")
            }
            _ => None,
        }
    }

    /// Returns the body of the response, or of an event in a stream.
    pub fn json(&self) -> Value {
        let status = self.status();
        let kind = match status {
            StatusCode::UNAUTHORIZED => "authentication_error",
            StatusCode::NOT_FOUND => "not_found_error",
            status if status.is_client_error() => "invalid_request_error",
            _ => "server_error",
        };
        let param = match self {
            Refusal::Field { field, .. } => Some(field.as_ref()),
            Refusal::Invalid { field, .. } => field.as_deref(),
            _ => None,
        };
        // Clients look for these words, and then shorten the conversation.
        let message = match self {
            Refusal::Engine(refrain_engine::Error::ContextFull { tokens, context }) => format!(
                "This model's maximum context length is {context} tokens, but the prompt needs {tokens} tokens; \
                 shorten the messages, or serve the model with a larger context"
            ),
            other => other.to_string(),
        };
        json!({"error": {"message": message, "type": kind, "param": param, "code": self.code()}})
    }
}

impl Refusal {
    /// Returns the response with a body in an interface's own format.
    pub fn into_response_of(self, body: Value) -> Response {
        let mut response = (self.status(), Json(body)).into_response();
        let headers = response.headers_mut();
        match self.status() {
            StatusCode::SERVICE_UNAVAILABLE => drop(headers.insert(RETRY_AFTER, 1.into())),
            StatusCode::UNAUTHORIZED => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            _ => {}
        }
        response
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let body = self.json();
        self.into_response_of(body)
    }
}

impl From<PathRejection> for Refusal {
    fn from(why: PathRejection) -> Refusal {
        Refusal::Malformed(why.body_text())
    }
}

/// Returns an error in the format of the interface that a path belongs to.
pub(crate) fn refused(path: &str, why: Refusal) -> Response {
    if path.starts_with("/v1/messages") {
        AnthropicRefusal(why).into_response()
    } else if path.starts_with("/api/") {
        OllamaRefusal(why).into_response()
    } else {
        why.into_response()
    }
}

pub(crate) async fn no_such_path(uri: Uri) -> Response {
    refused(uri.path(), Refusal::NoSuchPath(uri.path().to_owned()))
}

pub(crate) async fn no_such_method(method: Method, uri: Uri) -> Response {
    let why = Refusal::NoSuchMethod(uri.path().to_owned(), method.to_string());
    refused(uri.path(), why)
}
