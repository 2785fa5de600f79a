//! Answers to chats and completions of OpenAI's interface, whole and as events.

use std::collections::BTreeMap;

use schemars::JsonSchema;

use super::errors::OpenAiError;
use super::messages::CustomInput;
use super::wire::{EventData, StreamEnd};

/// An answer, or several.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct ChatCompletion {
    id: String,
    #[schemars(extend("const" = "chat.completion"))]
    object: String,
    /// Seconds since 1970.
    created: u64,
    model: String,
    choices: Vec<ChatChoice>,
    usage: Usage,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct ChatChoice {
    index: usize,
    message: AssistantMessage,
    logprobs: Option<ChatLogprobs>,
    finish_reason: FinishReason,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct AssistantMessage {
    #[schemars(extend("const" = "assistant"))]
    role: String,
    content: Option<String>,
    /// What OpenAI's models may answer instead. Refusals of other models are texts.
    refusal: (),
    #[schemars(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<String>,
    /// For clients that sent `functions`.
    #[schemars(skip_serializing_if = "Option::is_none")]
    function_call: Option<AnswerFunction>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<Vec<AnswerCall>>,
}

#[derive(JsonSchema)]
#[schemars(untagged)]
enum AnswerCall {
    Function(AnswerFunctionCall),
    Custom(AnswerCustomCall),
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct AnswerFunctionCall {
    id: String,
    #[schemars(rename = "type", extend("const" = "function"))]
    kind: String,
    function: AnswerFunction,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct AnswerCustomCall {
    id: String,
    #[schemars(rename = "type", extend("const" = "custom"))]
    kind: String,
    custom: CustomInput,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct AnswerFunction {
    name: String,
    /// JSON as the model wrote it; an answer that was cut off may have a part of it.
    arguments: String,
}

/// How an answer ended.
#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
enum FinishReason {
    Stop,
    Length,
    ToolCalls,
    FunctionCall,
}

/// Log-probabilities of an answer's tokens.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct ChatLogprobs {
    content: Vec<TokenLogprob>,
    refusal: (),
}

/// A token, its log-probability, and the most likely tokens at its place.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct TokenLogprob {
    token: String,
    logprob: f32,
    bytes: Vec<u8>,
    top_logprobs: Vec<LikelyToken>,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct LikelyToken {
    token: String,
    logprob: f32,
    bytes: Vec<u8>,
}

/// Tokens of a request.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Usage {
    prompt_tokens: usize,
    completion_tokens: usize,
    total_tokens: usize,
    prompt_tokens_details: PromptTokensDetails,
    completion_tokens_details: CompletionTokensDetails,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct PromptTokensDetails {
    /// Tokens that were found in the prefix cache.
    cached_tokens: usize,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct CompletionTokensDetails {
    reasoning_tokens: usize,
}

/// An event of a streamed chat: a chunk, an error, or the end.
#[derive(JsonSchema)]
#[schemars(untagged)]
pub(crate) enum ChatEvent {
    End(StreamEnd),
    Chunk(EventData<ChatChunk>),
    Error(EventData<OpenAiError>),
}

/// A piece of an answer. The last chunk has the usage and no choices, if the request has `stream_options`; in the
/// others it is null then.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct ChatChunk {
    id: String,
    #[schemars(extend("const" = "chat.completion.chunk"))]
    object: String,
    created: u64,
    model: String,
    choices: Vec<ChunkChoice>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct ChunkChoice {
    index: usize,
    delta: ChatDelta,
    #[schemars(skip_serializing_if = "Option::is_none")]
    logprobs: Option<ChatLogprobs>,
    finish_reason: Option<FinishReason>,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct ChatDelta {
    #[schemars(skip_serializing_if = "Option::is_none", extend("const" = "assistant"))]
    role: Option<String>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    content: Option<String>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<String>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    function_call: Option<FunctionDelta>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<Vec<CallDelta>>,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct CallDelta {
    index: usize,
    #[schemars(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[schemars(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    function: Option<FunctionDelta>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    custom: Option<CustomDelta>,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct FunctionDelta {
    #[schemars(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    arguments: Option<String>,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct CustomDelta {
    #[schemars(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    input: Option<String>,
}

/// Texts that continue prompts.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct Completion {
    id: String,
    #[schemars(extend("const" = "text_completion"))]
    object: String,
    created: u64,
    model: String,
    choices: Vec<CompletionChoice>,
    /// Absent in events, unless the request has `stream_options`: then the last event has it, and it is null in others.
    #[schemars(skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct CompletionChoice {
    index: usize,
    text: String,
    logprobs: Option<CompletionLogprobs>,
    finish_reason: Option<FinishReason>,
}

/// Log-probabilities of a text's tokens, in lists of the same length.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct CompletionLogprobs {
    tokens: Vec<String>,
    token_logprobs: Vec<Option<f32>>,
    top_logprobs: Vec<Option<BTreeMap<String, f32>>>,
    /// Where each token begins, in characters.
    text_offset: Vec<usize>,
}

/// An event of a streamed completion.
#[derive(JsonSchema)]
#[schemars(untagged)]
pub(crate) enum CompletionEvent {
    End(StreamEnd),
    Chunk(EventData<Completion>),
    Error(EventData<OpenAiError>),
}
