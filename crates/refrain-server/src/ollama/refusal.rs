//! What Ollama's clients are told that asked for what cannot be.

use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::error::Refusal;

/// A [`Refusal`] as Ollama's clients understand it.
pub(crate) struct OllamaRefusal(pub Refusal);

impl OllamaRefusal {
    pub fn json(&self) -> Value {
        json!({"error": self.0.to_string()})
    }
}

impl<T: Into<Refusal>> From<T> for OllamaRefusal {
    fn from(why: T) -> OllamaRefusal {
        OllamaRefusal(why.into())
    }
}

impl IntoResponse for OllamaRefusal {
    fn into_response(self) -> Response {
        let said = self.json();
        self.0.into_response_of(said)
    }
}
