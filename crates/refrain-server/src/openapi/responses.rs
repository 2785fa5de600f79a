//! Responses, their events, and conversations of `/v1/responses`.

use schemars::JsonSchema;
use serde_json::{Map, Value};

use super::chat::TokenLogprob;
use super::items::ConversationId;
use super::wire::EventData;

/// A response.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct Response {
    id: String,
    #[schemars(extend("const" = "response"))]
    object: String,
    status: ResponseStatus,
    background: bool,
    error: Option<ResponseError>,
    incomplete_details: Option<IncompleteDetails>,
    output: Vec<OutputItem>,
    reasoning: EchoedReasoning,
    truncation: String,
    usage: Option<ResponseUsage>,
    /// Seconds since 1970.
    created_at: u64,
    model: String,
    instructions: Option<String>,
    max_output_tokens: Option<f64>,
    metadata: Map<String, Value>,
    parallel_tool_calls: bool,
    previous_response_id: Option<String>,
    store: bool,
    text: Map<String, Value>,
    tool_choice: EchoedChoice,
    tools: Vec<Map<String, Value>>,
    top_logprobs: Option<f64>,
    max_tool_calls: Option<f64>,
    prompt_cache_key: Option<String>,
    safety_identifier: Option<String>,
    service_tier: Option<String>,
    temperature: Option<f64>,
    top_p: Option<f64>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    conversation: Option<ConversationId>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
enum ResponseStatus {
    InProgress,
    Completed,
    Incomplete,
    Failed,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct ResponseError {
    code: String,
    message: String,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct IncompleteDetails {
    reason: String,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct EchoedReasoning {
    effort: Option<String>,
    summary: Option<String>,
}

#[derive(JsonSchema)]
#[schemars(untagged)]
enum EchoedChoice {
    Word(String),
    Object(Map<String, Value>),
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct ResponseUsage {
    input_tokens: usize,
    input_tokens_details: InputTokensDetails,
    output_tokens: usize,
    output_tokens_details: OutputTokensDetails,
    total_tokens: usize,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct InputTokensDetails {
    cached_tokens: usize,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct OutputTokensDetails {
    reasoning_tokens: usize,
}

/// An item of a response.
#[derive(JsonSchema)]
#[schemars(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum OutputItem {
    Message {
        id: String,
        status: ResponseStatus,
        role: String,
        content: Vec<OutputPart>,
    },
    Reasoning {
        id: String,
        status: ResponseStatus,
        summary: Vec<Map<String, Value>>,
        content: Vec<OutputPart>,
        #[schemars(skip_serializing_if = "Option::is_none")]
        encrypted_content: Option<String>,
    },
    FunctionCall {
        id: String,
        status: ResponseStatus,
        call_id: String,
        name: String,
        arguments: String,
        #[schemars(skip_serializing_if = "Option::is_none")]
        namespace: Option<String>,
    },
    CustomToolCall {
        id: String,
        status: ResponseStatus,
        call_id: String,
        name: String,
        input: String,
        #[schemars(skip_serializing_if = "Option::is_none")]
        namespace: Option<String>,
    },
    LocalShellCall {
        id: String,
        status: ResponseStatus,
        call_id: String,
        action: Map<String, Value>,
        #[schemars(skip_serializing_if = "Option::is_none")]
        namespace: Option<String>,
    },
}

/// A part of a message or of reasoning.
#[derive(JsonSchema)]
#[schemars(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum OutputPart {
    OutputText {
        text: String,
        annotations: Vec<Map<String, Value>>,
        logprobs: Vec<TokenLogprob>,
    },
    ReasoningText {
        text: String,
    },
}

/// An event of a streamed response.
#[derive(JsonSchema)]
#[schemars(transparent)]
pub(crate) struct ResponseStreamEvent(EventData<ResponseEvent>);

#[derive(JsonSchema)]
#[schemars(untagged)]
enum ResponseEvent {
    State(Box<StateEvent>),
    Item(ItemEvent),
    Part(PartEvent),
    TextDelta(TextDeltaEvent),
    TextDone(TextDoneEvent),
    CallDelta(CallDeltaEvent),
    CallDone(CallDoneEvent),
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct StateEvent {
    #[schemars(rename = "type", extend("enum" = ["response.created", "response.in_progress", "response.completed", "response.incomplete", "response.failed"]))]
    kind: String,
    sequence_number: usize,
    response: Response,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct ItemEvent {
    #[schemars(rename = "type", extend("enum" = ["response.output_item.added", "response.output_item.done"]))]
    kind: String,
    sequence_number: usize,
    output_index: usize,
    item: OutputItem,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct PartEvent {
    #[schemars(rename = "type", extend("enum" = ["response.content_part.added", "response.content_part.done"]))]
    kind: String,
    sequence_number: usize,
    item_id: String,
    output_index: usize,
    content_index: usize,
    part: OutputPart,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct TextDeltaEvent {
    #[schemars(rename = "type", extend("enum" = ["response.output_text.delta", "response.reasoning_text.delta"]))]
    kind: String,
    sequence_number: usize,
    item_id: String,
    output_index: usize,
    content_index: usize,
    delta: String,
    #[schemars(skip_serializing_if = "Option::is_none")]
    logprobs: Option<Vec<TokenLogprob>>,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct TextDoneEvent {
    #[schemars(rename = "type", extend("enum" = ["response.output_text.done", "response.reasoning_text.done"]))]
    kind: String,
    sequence_number: usize,
    item_id: String,
    output_index: usize,
    content_index: usize,
    text: String,
    #[schemars(skip_serializing_if = "Option::is_none")]
    logprobs: Option<Vec<TokenLogprob>>,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct CallDeltaEvent {
    #[schemars(rename = "type", extend("enum" = ["response.function_call_arguments.delta", "response.custom_tool_call_input.delta"]))]
    kind: String,
    sequence_number: usize,
    item_id: String,
    output_index: usize,
    delta: String,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct CallDoneEvent {
    #[schemars(rename = "type", extend("enum" = ["response.function_call_arguments.done", "response.custom_tool_call_input.done"]))]
    kind: String,
    sequence_number: usize,
    item_id: String,
    output_index: usize,
    #[schemars(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    arguments: Option<String>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    input: Option<String>,
}

/// A conversation that is kept.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct Conversation {
    id: String,
    #[schemars(extend("const" = "conversation"))]
    object: String,
    created_at: u64,
    metadata: Map<String, Value>,
}

/// The length of a prompt.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct InputTokens {
    #[schemars(extend("const" = "response.input_tokens"))]
    object: String,
    input_tokens: usize,
}

/// An item as the client gave it, or as the response has it, with an id.
#[derive(JsonSchema)]
#[schemars(transparent)]
pub(crate) struct StoredItem(Map<String, Value>);

/// What was deleted.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct Deleted {
    id: String,
    #[schemars(extend("enum" = ["response", "conversation.deleted"]))]
    object: String,
    deleted: bool,
}

/// Items as the client gave them, or as the response has them.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct ItemList {
    #[schemars(extend("const" = "list"))]
    object: String,
    data: Vec<Map<String, Value>>,
    first_id: Option<String>,
    last_id: Option<String>,
    has_more: bool,
}
