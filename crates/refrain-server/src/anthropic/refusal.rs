//! Errors as Anthropic's clients understand them.

use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::error::Refusal;
use crate::record::RequestRecord;

/// A [`Refusal`] in the form of Anthropic's API.
pub(crate) struct AnthropicRefusal(pub Refusal);

impl AnthropicRefusal {
    /// The body of the response, or the data of an event in a stream.
    pub fn json(&self) -> Value {
        let kind = match self.0.status().as_u16() {
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            408 | 504 => "timeout_error",
            413 => "request_too_large",
            429 => "rate_limit_error",
            503 => "overloaded_error",
            400..500 => "invalid_request_error",
            _ => "api_error",
        };
        let mut error = json!({"type": "error", "error": {"type": kind, "message": self.message()}});
        // Events of a stream are written after the request was handled, and have none.
        let record = RequestRecord::current();
        if !record.id().is_empty() {
            error["request_id"] = record.id().into();
        }
        error
    }

    fn message(&self) -> String {
        match &self.0 {
            // Clients look for these words, to compact the conversation.
            Refusal::Engine(refrain_engine::Error::ContextFull { tokens, context }) => {
                format!("prompt is too long: {tokens} tokens > {context} maximum")
            }
            other => other.to_string(),
        }
    }
}

impl<T: Into<Refusal>> From<T> for AnthropicRefusal {
    fn from(refusal: T) -> AnthropicRefusal {
        AnthropicRefusal(refusal.into())
    }
}

impl IntoResponse for AnthropicRefusal {
    fn into_response(self) -> Response {
        let body = self.json();
        self.0.into_response_of(body)
    }
}
