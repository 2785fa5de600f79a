//! Items, tools and other fields of requests to `/v1/responses`.

use schemars::JsonSchema;
use serde_json::{Map, Value};

use super::generation::{LogitBias, ResponseFormatField, StopStrings};
use super::messages::MessageContent;

/// A text, or items.
#[derive(JsonSchema)]
#[schemars(untagged)]
pub(crate) enum ItemsField {
    Text(String),
    Items(Vec<InputItem>),
}

/// An item of a conversation. Items of tools that run on OpenAI's servers are passed over.
#[derive(JsonSchema)]
#[schemars(untagged)]
pub(crate) enum InputItem {
    Message(MessageItem),
    FunctionCall(FunctionCallItem),
    CustomCall(CustomCallItem),
    ShellCall(ShellCallItem),
    Output(CallOutputItem),
    Reasoning(ReasoningItem),
    Reference(ItemReference),
    Hosted(HostedItem),
}

#[derive(JsonSchema)]
pub(crate) struct MessageItem {
    #[schemars(rename = "type", extend("const" = "message"))]
    kind: Option<String>,
    role: String,
    content: MessageContent,
}

#[derive(JsonSchema)]
pub(crate) struct FunctionCallItem {
    #[schemars(rename = "type", extend("const" = "function_call"))]
    kind: String,
    call_id: Option<String>,
    namespace: Option<String>,
    name: String,
    /// The JSON of an object.
    arguments: String,
}

#[derive(JsonSchema)]
pub(crate) struct CustomCallItem {
    #[schemars(rename = "type", extend("const" = "custom_tool_call"))]
    kind: String,
    call_id: Option<String>,
    namespace: Option<String>,
    name: String,
    input: String,
}

#[derive(JsonSchema)]
pub(crate) struct ShellCallItem {
    #[schemars(rename = "type", extend("const" = "local_shell_call"))]
    kind: String,
    call_id: Option<String>,
    action: Map<String, Value>,
}

/// The result of a call.
#[derive(JsonSchema)]
pub(crate) struct CallOutputItem {
    #[schemars(rename = "type")]
    kind: CallOutputKind,
    call_id: Option<String>,
    output: MessageContent,
}

#[derive(JsonSchema)]
enum CallOutputKind {
    #[schemars(rename = "function_call_output")]
    Function,
    #[schemars(rename = "custom_tool_call_output")]
    Custom,
    #[schemars(rename = "local_shell_call_output")]
    LocalShell,
}

#[derive(JsonSchema)]
pub(crate) struct ReasoningItem {
    #[schemars(rename = "type", extend("const" = "reasoning"))]
    kind: String,
    content: Option<Vec<Map<String, Value>>>,
    /// As this server wrote it; that of others is ignored.
    encrypted_content: Option<String>,
}

/// An item of a response or conversation that is kept.
#[derive(JsonSchema)]
pub(crate) struct ItemReference {
    #[schemars(rename = "type", extend("const" = "item_reference"))]
    kind: String,
    id: String,
}

#[derive(JsonSchema)]
pub(crate) struct HostedItem {
    #[schemars(rename = "type", extend("pattern" = "(_call|_call_output|_list_tools|_approval_request|_approval_response)$|^(compaction|ghost_snapshot|other)$"))]
    kind: String,
}

/// A tool: flat descriptions, and namespaces of such. Tools that run on OpenAI's servers are passed over.
#[derive(JsonSchema)]
#[schemars(untagged)]
pub(crate) enum ResponseTool {
    Named(NamedTool),
    Hosted(HostedResponseTool),
}

#[derive(JsonSchema)]
pub(crate) struct NamedTool {
    #[schemars(rename = "type")]
    kind: NamedToolKind,
    #[schemars(length(min = 1))]
    name: String,
    description: Option<String>,
    /// The JSON schema of a function's arguments.
    parameters: Option<Map<String, Value>>,
    strict: Option<bool>,
    /// The grammar of a custom tool's input.
    format: Option<Map<String, Value>>,
    /// The tools of a namespace.
    tools: Option<Vec<ResponseTool>>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
enum NamedToolKind {
    Function,
    Custom,
    Namespace,
}

#[derive(JsonSchema)]
pub(crate) struct HostedResponseTool {
    #[schemars(rename = "type", extend("not" = {"enum": ["function", "custom", "namespace"]}))]
    kind: String,
}

/// The form of the text.
#[derive(JsonSchema)]
pub(crate) struct TextField {
    format: Option<ResponseFormatField>,
}

/// The id of a conversation, or an object with it.
#[derive(JsonSchema)]
#[schemars(untagged)]
pub(crate) enum ConversationField {
    Id(String),
    Object(ConversationId),
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct ConversationId {
    id: String,
}

/// How the model reasons.
#[derive(JsonSchema)]
pub(crate) struct ReasoningField {
    enabled: Option<bool>,
    effort: Option<ResponseEffort>,
    /// Maximum number of tokens; 0 is none, -1 no limit.
    #[schemars(range(min = -1))]
    max_tokens: Option<i64>,
    summary: Option<String>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
enum ResponseEffort {
    None,
    Minimal,
    Low,
    Medium,
    High,
    Xhigh,
    Max,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
enum Truncation {
    Auto,
    Disabled,
}

/// What a response contains beside the text.
#[derive(JsonSchema)]
pub(crate) enum IncludedField {
    #[schemars(rename = "code_interpreter_call.outputs")]
    CodeOutputs,
    #[schemars(rename = "computer_call_output.output.image_url")]
    ComputerImage,
    #[schemars(rename = "file_search_call.results")]
    FileResults,
    #[schemars(rename = "message.input_image.image_url")]
    InputImage,
    #[schemars(rename = "message.output_text.logprobs")]
    Logprobs,
    #[schemars(rename = "reasoning.encrypted_content")]
    EncryptedReasoning,
    #[schemars(rename = "web_search_call.action.sources")]
    WebSources,
    #[schemars(rename = "web_search_call.results")]
    WebResults,
}

/// The other fields of a request: those of sampling, as in chats, and those that the response repeats.
#[derive(JsonSchema)]
pub(crate) struct OtherFields {
    model: Option<String>,
    #[schemars(range(min = 0))]
    temperature: Option<f32>,
    #[schemars(range(min = 0, max = 1))]
    top_p: Option<f32>,
    /// 0 and less consider all tokens.
    top_k: Option<i64>,
    #[schemars(range(min = 0, max = 1))]
    min_p: Option<f32>,
    seed: Option<f64>,
    stop: Option<StopStrings>,
    logit_bias: Option<LogitBias>,
    presence_penalty: Option<f32>,
    frequency_penalty: Option<f32>,
    #[schemars(extend("exclusiveMinimum" = 0))]
    repetition_penalty: Option<f32>,
    min_tokens: Option<u64>,
    ignore_eos: Option<bool>,
    #[schemars(range(min = -1))]
    truncate_prompt_tokens: Option<i64>,
    think: Option<bool>,
    enable_thinking: Option<bool>,
    reasoning_effort: Option<String>,
    #[schemars(range(min = -1))]
    thinking_budget: Option<i64>,
    #[schemars(range(min = -1))]
    thinking_token_budget: Option<i64>,
    #[schemars(range(min = -1))]
    reasoning_budget: Option<i64>,
    max_tool_calls: Option<u64>,
    /// No input is shortened, whatever the value is.
    truncation: Option<Truncation>,
    prompt_cache_key: Option<String>,
    safety_identifier: Option<String>,
    service_tier: Option<String>,
}
