//! Bodies of errors, one per interface.

use schemars::JsonSchema;

/// An error of OpenAI's interface and of routes that belong to none.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct OpenAiError {
    error: OpenAiErrorDetails,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct OpenAiErrorDetails {
    message: String,
    #[schemars(rename = "type")]
    kind: OpenAiErrorKind,
    /// The field of the request that is wrong.
    param: Option<String>,
    code: Option<OpenAiErrorCode>,
}

#[derive(JsonSchema)]
enum OpenAiErrorKind {
    #[schemars(rename = "authentication_error")]
    Authentication,
    #[schemars(rename = "invalid_request_error")]
    InvalidRequest,
    #[schemars(rename = "not_found_error")]
    NotFound,
    #[schemars(rename = "server_error")]
    Server,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
enum OpenAiErrorCode {
    ContextLengthExceeded,
    ModelNotFound,
    InvalidApiKey,
    Overloaded,
}

/// An error of Anthropic's interface.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct AnthropicError {
    #[schemars(rename = "type", extend("const" = "error"))]
    kind: String,
    error: AnthropicErrorDetails,
    #[schemars(skip_serializing_if = "Option::is_none")]
    request_id: Option<String>,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct AnthropicErrorDetails {
    #[schemars(rename = "type")]
    kind: AnthropicErrorKind,
    message: String,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
enum AnthropicErrorKind {
    AuthenticationError,
    PermissionError,
    NotFoundError,
    TimeoutError,
    RequestTooLarge,
    RateLimitError,
    OverloadedError,
    InvalidRequestError,
    ApiError,
}

/// An error of Ollama's interface.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct OllamaError {
    error: String,
}
