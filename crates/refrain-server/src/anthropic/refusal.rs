//! What Anthropic's clients are told that asked for what cannot be.

use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::error::Refusal;

/// A [`Refusal`] as Anthropic's clients understand it.
pub(crate) struct AnthropicRefusal(pub Refusal);

impl AnthropicRefusal {
    pub fn json(&self) -> Value {
        let kind = match self.0.status().as_u16() {
            401 => "authentication_error",
            404 => "not_found_error",
            413 => "request_too_large",
            503 => "overloaded_error",
            400..500 => "invalid_request_error",
            _ => "api_error",
        };
        json!({"type": "error", "error": {"type": kind, "message": self.0.to_string()}})
    }
}

impl<T: Into<Refusal>> From<T> for AnthropicRefusal {
    fn from(why: T) -> AnthropicRefusal {
        AnthropicRefusal(why.into())
    }
}

impl IntoResponse for AnthropicRefusal {
    fn into_response(self) -> Response {
        let said = self.json();
        self.0.into_response_of(said)
    }
}
