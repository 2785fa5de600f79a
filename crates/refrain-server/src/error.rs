//! What a client is told that asked for what cannot be, as OpenAI's clients understand it.

use std::time::Duration;

use axum::Json;
use axum::extract::FromRequest;
use axum::extract::rejection::PathRejection;
use axum::http::header::RETRY_AFTER;
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use serde_json::{Value, json};

use crate::anthropic::AnthropicRefusal;
use crate::connections::Connection;
use crate::ollama::OllamaRefusal;
use crate::shelf::LoadFailure;

/// Why a request is not answered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// A body that is no JSON, or not of the form that is asked for.
    #[error("{0}")]
    Malformed(String),
    #[error("the body is larger than this server takes")]
    TooLarge,
    #[error("too many bytes are on their way to this server; try again later")]
    NoRoom,
    #[error("the body did not come within {} seconds", .0.as_secs())]
    TooSlow(Duration),
    /// A field with a value that cannot be followed.
    #[error("{field}: {why}")]
    Field { field: &'static str, why: String },
    #[error("{asked:?} is not served here; this server has {}", .served.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", "))]
    NoSuchModel { asked: String, served: Vec<String> },
    #[error("the model cannot be loaded: {0}")]
    Load(#[from] LoadFailure),
    #[error("this model has no chat template, so it has no conversations; ask /v1/completions")]
    NoTemplate,
    #[error("an API key of this server is needed, as `Authorization: Bearer KEY`")]
    Unauthorized,
    #[error("{0} is not here")]
    NoSuchPath(String),
    #[error("{0} does not take {1}")]
    NoSuchMethod(String, String),
    /// What the engine says.
    #[error(transparent)]
    Engine(#[from] refrain_engine::Error),
    /// What the tokenizer or the template says.
    #[error(transparent)]
    Text(#[from] refrain_formats::Error),
    /// What whoever runs the server does not let clients do.
    #[error("{0}")]
    Forbidden(String),
    #[error("another model is being downloaded; try again later")]
    Downloading,
    /// A download that failed.
    #[error("{0}")]
    Download(String),
    /// What only a bug or a dying server does.
    #[error("the text ended without a word")]
    Silence,
}

impl Refusal {
    pub fn field(field: &'static str, why: impl Into<String>) -> Refusal {
        Refusal::Field { field, why: why.into() }
    }

    pub fn status(&self) -> StatusCode {
        use refrain_engine::Error as Engine;
        match self {
            Refusal::Malformed(_) | Refusal::Field { .. } | Refusal::NoTemplate | Refusal::Text(_) => {
                StatusCode::BAD_REQUEST
            }
            Refusal::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Refusal::TooSlow(_) => StatusCode::REQUEST_TIMEOUT,
            Refusal::NoSuchModel { .. } | Refusal::NoSuchPath(_) => StatusCode::NOT_FOUND,
            Refusal::NoSuchMethod(..) => StatusCode::METHOD_NOT_ALLOWED,
            Refusal::Unauthorized => StatusCode::UNAUTHORIZED,
            Refusal::Forbidden(_) => StatusCode::FORBIDDEN,
            Refusal::Download(_) => StatusCode::BAD_GATEWAY,
            Refusal::NoRoom
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

    /// The body of an answer, or of an event in a stream.
    pub fn json(&self) -> Value {
        let status = self.status();
        let kind = match status {
            StatusCode::UNAUTHORIZED => "authentication_error",
            StatusCode::NOT_FOUND => "not_found_error",
            status if status.is_client_error() => "invalid_request_error",
            _ => "server_error",
        };
        let param = match self {
            Refusal::Field { field, .. } => Some(field),
            _ => None,
        };
        json!({"error": {"message": self.to_string(), "type": kind, "param": param, "code": self.code()}})
    }
}

impl Refusal {
    /// An answer that says this in an interface's own form.
    pub fn into_response_of(self, said: Value) -> Response {
        let mut response = (self.status(), Json(said)).into_response();
        if self.status() == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(RETRY_AFTER, 1.into());
        }
        response
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let said = self.json();
        self.into_response_of(said)
    }
}

/// A body of JSON, whatever its content type says; what is wrong with it is said as [`Refusal`]s are.
pub(crate) struct Body<T>(pub T);

impl<S: Send + Sync, T: serde::de::DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Refusal;

    async fn from_request(mut request: axum::extract::Request, state: &S) -> Result<Self, Refusal> {
        let kind = axum::http::HeaderValue::from_static("application/json");
        request.headers_mut().insert(axum::http::header::CONTENT_TYPE, kind);
        if let Some(connection) = request.extensions().get::<Connection>().cloned() {
            let whole = tokio::time::timeout(connection.patience, within(request, &connection)).await;
            request = whole.map_err(|_| Refusal::TooSlow(connection.patience))??;
        }
        match Json::from_request(request, state).await {
            Ok(Json(body)) => Ok(Body(body)),
            Err(rejection) => Err(Refusal::Malformed(rejection.body_text())),
        }
    }
}

/// The request with all of its body, if there is room for that beside the bodies of others.
async fn within(request: axum::extract::Request, connection: &Connection) -> Result<axum::extract::Request, Refusal> {
    let (head, body) = request.into_parts();
    let (mut stream, mut bytes, mut taken) = (body.into_data_stream(), vec![], vec![]);
    while let Some(piece) = stream.next().await {
        let piece = piece.map_err(|why| Refusal::Malformed(why.to_string()))?;
        if bytes.len() + piece.len() > connection.body_bytes {
            return Err(Refusal::TooLarge);
        }
        let held = connection.room.try_acquire_many(piece.len() as u32);
        taken.push(held.map_err(|_| Refusal::NoRoom)?);
        bytes.extend_from_slice(&piece);
    }
    Ok(axum::extract::Request::from_parts(head, bytes.into()))
}

impl From<PathRejection> for Refusal {
    fn from(why: PathRejection) -> Refusal {
        Refusal::Malformed(why.body_text())
    }
}

/// What is refused before the interface that a path belongs to is asked, in that interface's form.
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
