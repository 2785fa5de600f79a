//! Errors as Ollama's clients understand them.

use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::error::Refusal;

/// A [`Refusal`] in the form of Ollama's API.
pub(crate) struct OllamaRefusal(pub Refusal);

impl OllamaRefusal {
    /// The body of the response, or a line of a stream.
    pub fn json(&self) -> Value {
        json!({"error": self.0.to_string()})
    }
}

impl<T: Into<Refusal>> From<T> for OllamaRefusal {
    fn from(refusal: T) -> OllamaRefusal {
        OllamaRefusal(refusal.into())
    }
}

impl IntoResponse for OllamaRefusal {
    fn into_response(self) -> Response {
        let body = self.json();
        self.0.into_response_of(body)
    }
}
