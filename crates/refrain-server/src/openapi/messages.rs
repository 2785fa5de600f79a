//! Messages and tools in requests of OpenAI's interface.

use schemars::JsonSchema;
use serde_json::{Map, Value};

/// A message of a conversation. Further fields reach the chat template.
#[derive(JsonSchema)]
pub(crate) struct ChatMessage {
    /// `system`, `developer`, `user`, `assistant`, `tool`, `function`, or a role that the chat template knows.
    role: String,
    content: Option<MessageContent>,
    name: Option<String>,
    /// The call whose result this is.
    tool_call_id: Option<String>,
    tool_calls: Option<Vec<MessageCall>>,
    /// The older form of a single call.
    function_call: Option<CalledFunction>,
    /// The assistant's reasoning; `reasoning` and `thinking` mean the same.
    reasoning_content: Option<String>,
    refusal: Option<String>,
}

/// A text, or parts of text. Parts of other kinds, such as images, are refused.
#[derive(JsonSchema)]
#[schemars(untagged)]
pub(crate) enum MessageContent {
    Text(String),
    Parts(Vec<ContentPart>),
}

/// A part of a message.
#[derive(JsonSchema)]
#[schemars(untagged)]
pub(crate) enum ContentPart {
    Text(TextPart),
    Refusal(RefusalPart),
    Reasoning(ReasoningPart),
}

#[derive(JsonSchema)]
pub(crate) struct TextPart {
    #[schemars(rename = "type")]
    kind: TextPartKind,
    text: String,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
enum TextPartKind {
    Text,
    InputText,
    OutputText,
    SummaryText,
}

#[derive(JsonSchema)]
pub(crate) struct RefusalPart {
    #[schemars(rename = "type", extend("const" = "refusal"))]
    kind: String,
    refusal: String,
}

/// Reasoning, in the field `thinking`, `text` or `reasoning`.
#[derive(JsonSchema)]
pub(crate) struct ReasoningPart {
    #[schemars(rename = "type")]
    kind: ReasoningPartKind,
    thinking: Option<ReasoningText>,
    text: Option<ReasoningText>,
    reasoning: Option<ReasoningText>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
enum ReasoningPartKind {
    Thinking,
    Reasoning,
    ReasoningText,
}

#[derive(JsonSchema)]
#[schemars(untagged)]
enum ReasoningText {
    Text(String),
    Parts(Vec<Map<String, Value>>),
}

/// A call of an earlier answer.
#[derive(JsonSchema)]
#[schemars(untagged)]
pub(crate) enum MessageCall {
    Function(FunctionCall),
    Custom(CustomCall),
}

#[derive(JsonSchema)]
pub(crate) struct FunctionCall {
    id: Option<String>,
    function: CalledFunction,
}

#[derive(JsonSchema)]
pub(crate) struct CustomCall {
    id: Option<String>,
    #[schemars(rename = "type", extend("const" = "custom"))]
    kind: String,
    custom: CustomInput,
}

/// What a custom tool takes.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct CustomInput {
    name: String,
    input: String,
}

#[derive(JsonSchema)]
pub(crate) struct CalledFunction {
    name: String,
    arguments: Option<CallArguments>,
}

/// The JSON of an object, or the object.
#[derive(JsonSchema)]
#[schemars(untagged)]
enum CallArguments {
    Text(String),
    Object(Map<String, Value>),
}

/// A tool that the model may call. Tools of other kinds are passed over.
#[derive(JsonSchema)]
#[schemars(untagged)]
pub(crate) enum ChatTool {
    Function(FunctionTool),
    Custom(CustomTool),
    /// A description without the object around it.
    Flat(FlatFunction),
    Hosted(HostedTool),
}

#[derive(JsonSchema)]
pub(crate) struct FunctionTool {
    #[schemars(rename = "type", extend("const" = "function"))]
    kind: Option<String>,
    function: FunctionDescription,
}

#[derive(JsonSchema)]
pub(crate) struct FunctionDescription {
    #[schemars(length(min = 1))]
    name: String,
    description: Option<String>,
    /// A JSON schema.
    parameters: Option<Map<String, Value>>,
    strict: Option<bool>,
}

#[derive(JsonSchema)]
pub(crate) struct FlatFunction {
    #[schemars(rename = "type", extend("const" = "function"))]
    kind: Option<String>,
    #[schemars(length(min = 1))]
    name: String,
    description: Option<String>,
    /// A JSON schema.
    parameters: Option<Map<String, Value>>,
    strict: Option<bool>,
}

/// A tool that takes text.
#[derive(JsonSchema)]
pub(crate) struct CustomTool {
    #[schemars(rename = "type", extend("const" = "custom"))]
    kind: String,
    custom: CustomDescription,
}

#[derive(JsonSchema)]
struct CustomDescription {
    #[schemars(length(min = 1))]
    name: String,
    description: Option<String>,
    format: Option<Map<String, Value>>,
}

/// A tool that runs on the servers of its maker.
#[derive(JsonSchema)]
pub(crate) struct HostedTool {
    #[schemars(rename = "type", extend("not" = {"enum": ["function", "custom", "namespace"]}))]
    kind: String,
}

/// Whether and which tools are called: a word, a function, or several of them.
#[derive(JsonSchema)]
#[schemars(untagged)]
pub(crate) enum ToolChoiceField {
    Word(ToolChoiceWord),
    Object(ToolChoiceObject),
}

#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
pub(crate) enum ToolChoiceWord {
    Auto,
    None,
    Required,
    Any,
}

/// A function as `{"type": "function", "function": {"name": …}}` or with the name beside the type, or
/// `{"type": "allowed_tools", "mode": …, "tools": […]}`.
#[derive(JsonSchema)]
pub(crate) struct ToolChoiceObject {
    #[schemars(rename = "type")]
    kind: Option<String>,
    name: Option<String>,
    namespace: Option<String>,
    function: Option<NamedFunction>,
    custom: Option<NamedFunction>,
    mode: Option<ToolChoiceWord>,
    tools: Option<Vec<Map<String, Value>>>,
    allowed_tools: Option<AllowedTools>,
}

#[derive(JsonSchema)]
struct AllowedTools {
    mode: Option<ToolChoiceWord>,
    tools: Vec<Map<String, Value>>,
}

#[derive(JsonSchema)]
struct NamedFunction {
    name: String,
}
