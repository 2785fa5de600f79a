//! Messages, options and replies of Ollama's interface.

use schemars::JsonSchema;
use serde_json::{Map, Value};

use super::chat::TokenLogprob;
use super::errors::OllamaError;
use super::messages::{MessageCall, MessageContent};

/// A message of a conversation.
#[derive(JsonSchema)]
pub(crate) struct OllamaMessage {
    /// `system`, `user`, `assistant`, `tool`, or a role that the chat template knows.
    role: String,
    content: Option<MessageContent>,
    /// The assistant's reasoning.
    thinking: Option<String>,
    tool_calls: Option<Vec<MessageCall>>,
    /// The tool whose result this is.
    tool_name: Option<String>,
    /// Images are refused.
    #[schemars(length(max = 0))]
    images: Option<Vec<String>>,
}

/// A time such as `5m` or `1h30m`, or seconds: 0 unloads the model at once, a negative time keeps it.
#[derive(JsonSchema)]
#[schemars(untagged)]
pub(crate) enum KeepAlive {
    Seconds(f64),
    Text(String),
}

/// Whether the model reasons, or how much.
#[derive(JsonSchema)]
#[schemars(untagged)]
pub(crate) enum OllamaThink {
    Switch(bool),
    Level(ThinkLevel),
}

#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
pub(crate) enum ThinkLevel {
    #[schemars(rename = "")]
    Default,
    Low,
    Medium,
    High,
    Max,
    True,
    False,
    None,
}

/// `json`, or a JSON schema.
#[derive(JsonSchema)]
#[schemars(untagged)]
pub(crate) enum OllamaFormat {
    Word(OllamaFormatWord),
    Schema(Map<String, Value>),
}

#[derive(JsonSchema)]
pub(crate) enum OllamaFormatWord {
    #[schemars(rename = "")]
    Default,
    #[schemars(rename = "json")]
    Json,
}

/// Options of sampling. Those of the runner, such as `num_ctx`, are ignored.
#[derive(JsonSchema)]
pub(crate) struct OllamaOptions {
    /// Maximum number of tokens; 0 and less is as many as there is room for.
    num_predict: Option<i64>,
    #[schemars(range(min = 0))]
    temperature: Option<f32>,
    top_k: Option<i64>,
    #[schemars(range(min = 0, max = 1))]
    top_p: Option<f32>,
    #[schemars(range(min = 0, max = 1))]
    min_p: Option<f32>,
    /// -1 is a random one.
    seed: Option<f64>,
    stop: Option<OllamaStop>,
    #[schemars(extend("exclusiveMinimum" = 0))]
    repeat_penalty: Option<f32>,
    presence_penalty: Option<f32>,
    frequency_penalty: Option<f32>,
    /// Number of last tokens that penalties count; -1 is all.
    #[schemars(range(min = -1))]
    repeat_last_n: Option<i64>,
}

#[derive(JsonSchema)]
#[schemars(untagged)]
enum OllamaStop {
    One(String),
    Several(#[schemars(length(max = 16))] Vec<String>),
}

/// A chat's answer, or a line of a streamed one. The last line has the counts and durations, in nanoseconds.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct OllamaChatLine {
    message: OllamaAnswer,
    #[schemars(skip_serializing_if = "Option::is_none")]
    logprobs: Option<Vec<TokenLogprob>>,
    model: String,
    created_at: String,
    done: bool,
    #[schemars(skip_serializing_if = "Option::is_none")]
    done_reason: Option<DoneReason>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    total_duration: Option<u64>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    load_duration: Option<u64>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    prompt_eval_count: Option<u64>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    prompt_eval_duration: Option<u64>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    eval_count: Option<u64>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    eval_duration: Option<u64>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
enum DoneReason {
    Stop,
    Length,
    Load,
    Unload,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct OllamaAnswer {
    #[schemars(extend("const" = "assistant"))]
    role: String,
    content: String,
    #[schemars(skip_serializing_if = "Option::is_none")]
    thinking: Option<String>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<Vec<OllamaCall>>,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct OllamaCall {
    id: String,
    function: OllamaFunction,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct OllamaFunction {
    index: usize,
    name: String,
    arguments: Map<String, Value>,
}

/// An answer to a prompt, or a line of a streamed one. The last line has the counts and durations, in nanoseconds.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct OllamaGenerateLine {
    response: String,
    #[schemars(skip_serializing_if = "Option::is_none")]
    thinking: Option<String>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    logprobs: Option<Vec<TokenLogprob>>,
    model: String,
    created_at: String,
    done: bool,
    #[schemars(skip_serializing_if = "Option::is_none")]
    done_reason: Option<DoneReason>,
    /// Tokens of the conversation so far, for the next request.
    #[schemars(skip_serializing_if = "Option::is_none")]
    context: Option<Vec<u32>>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    total_duration: Option<u64>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    load_duration: Option<u64>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    prompt_eval_count: Option<u64>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    prompt_eval_duration: Option<u64>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    eval_count: Option<u64>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    eval_duration: Option<u64>,
}

/// A line of a stream: a part of the reply, or an error that ends it.
#[derive(JsonSchema)]
#[schemars(untagged, rename = "{T}OrError")]
pub(crate) enum OrError<T> {
    Line(T),
    Error(OllamaError),
}

/// The models that are served.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct OllamaTags {
    models: Vec<TaggedModel>,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct TaggedModel {
    name: String,
    model: String,
    modified_at: String,
    /// Bytes of its weights.
    size: u64,
    digest: String,
    details: ModelDetails,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct ModelDetails {
    parent_model: String,
    format: String,
    family: String,
    families: Vec<String>,
    parameter_size: String,
    quantization_level: String,
}

/// The models that are loaded.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct OllamaRunning {
    models: Vec<RunningModel>,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct RunningModel {
    name: String,
    model: String,
    modified_at: String,
    /// Bytes of its weights and cache.
    size: u64,
    digest: String,
    details: ModelDetails,
    /// Those of them in GPU memory.
    size_vram: u64,
    context_length: usize,
    /// When it is unloaded if nobody uses it.
    expires_at: String,
}

/// A model.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct ShownModel {
    details: ModelDetails,
    model_info: Map<String, Value>,
    capabilities: Vec<Capability>,
    modified_at: String,
    #[schemars(skip_serializing_if = "Option::is_none")]
    template: Option<String>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
enum Capability {
    Completion,
    Tools,
    Thinking,
    Insert,
}

/// The version of Ollama whose interface the server has, and the server's own.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct OllamaVersion {
    version: String,
    refrain: String,
}

/// The state of a download, in bytes.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct PullLine {
    status: String,
    #[schemars(skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    total: Option<u64>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    completed: Option<u64>,
}
