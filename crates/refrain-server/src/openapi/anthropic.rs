//! Messages, tools and events of Anthropic's interface.

use schemars::JsonSchema;
use serde_json::{Map, Value};

use super::errors::AnthropicError;
use super::wire::EventData;
use crate::anthropic::{Block, MessageJson, Usage};

/// A message of a conversation.
#[derive(JsonSchema)]
pub(crate) struct AnthropicMessage {
    role: AnthropicRole,
    content: AnthropicContent,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
enum AnthropicRole {
    User,
    Assistant,
    System,
    Developer,
}

/// A text, or blocks.
#[derive(JsonSchema)]
#[schemars(untagged)]
pub(crate) enum AnthropicContent {
    Text(String),
    Blocks(Vec<AnthropicBlock>),
}

/// A block of a message. Images are refused.
#[derive(JsonSchema)]
#[schemars(untagged)]
pub(crate) enum AnthropicBlock {
    Read(AnthropicReadBlock),
    Server(AnthropicServerBlock),
}

/// A block of a tool that Anthropic's servers run. It is passed over.
#[derive(JsonSchema)]
pub(crate) struct AnthropicServerBlock {
    #[schemars(rename = "type", extend("pattern" = "^(server_tool_use|mcp_tool_use|.+_tool_result)$"))]
    kind: String,
}

#[derive(JsonSchema)]
#[schemars(tag = "type", rename_all = "snake_case")]
pub(crate) enum AnthropicReadBlock {
    Text {
        text: String,
    },
    Thinking {
        thinking: String,
        signature: Option<String>,
    },
    RedactedThinking {
        data: Option<String>,
    },
    ToolUse {
        id: String,
        name: String,
        input: Option<Map<String, Value>>,
    },
    ToolResult {
        tool_use_id: String,
        content: Option<ToolResultContent>,
        is_error: Option<bool>,
    },
    Document {
        source: DocumentSource,
    },
    SearchResult {
        content: TextContent,
    },
    ToolReference {
        tool_name: String,
    },
    Compaction {
        content: String,
    },
}

/// A document of text.
#[derive(JsonSchema)]
#[schemars(tag = "type", rename_all = "snake_case")]
pub(crate) enum DocumentSource {
    Text { data: String },
    Content { content: TextContent },
}

/// A text, or blocks of text.
#[derive(JsonSchema)]
#[schemars(untagged)]
pub(crate) enum TextContent {
    Text(String),
    Blocks(Vec<AnthropicTextBlock>),
}

#[derive(JsonSchema)]
pub(crate) struct AnthropicTextBlock {
    #[schemars(rename = "type", extend("const" = "text"))]
    kind: String,
    text: String,
}

/// What a tool returned: a text, or blocks that are text.
#[derive(JsonSchema)]
#[schemars(untagged)]
pub(crate) enum ToolResultContent {
    Text(String),
    Blocks(Vec<ToolResultBlock>),
}

#[derive(JsonSchema)]
#[schemars(tag = "type", rename_all = "snake_case")]
pub(crate) enum ToolResultBlock {
    Text { text: String },
    Document { source: DocumentSource },
    SearchResult { content: TextContent },
    ToolReference { tool_name: String },
}

/// A tool. Those that Anthropic's servers run, or that only its models know, are left out.
#[derive(JsonSchema)]
#[schemars(untagged)]
pub(crate) enum AnthropicTool {
    Custom(AnthropicCustomTool),
    Hosted(AnthropicHostedTool),
}

#[derive(JsonSchema)]
pub(crate) struct AnthropicCustomTool {
    #[schemars(rename = "type", extend("enum" = ["custom", null]))]
    kind: Option<String>,
    #[schemars(length(min = 1))]
    name: String,
    description: Option<String>,
    /// A JSON schema.
    input_schema: Map<String, Value>,
}

#[derive(JsonSchema)]
pub(crate) struct AnthropicHostedTool {
    #[schemars(rename = "type", extend("not" = {"const": "custom"}))]
    kind: String,
}

/// Whether and which tools are called.
#[derive(JsonSchema)]
#[schemars(tag = "type", rename_all = "snake_case")]
pub(crate) enum AnthropicToolChoice {
    Auto {
        disable_parallel_tool_use: Option<bool>,
    },
    Any {
        disable_parallel_tool_use: Option<bool>,
    },
    Tool {
        name: String,
        disable_parallel_tool_use: Option<bool>,
    },
    None,
}

/// Whether the model reasons before it answers, and for how long.
#[derive(JsonSchema)]
pub(crate) struct AnthropicThinking {
    #[schemars(rename = "type")]
    kind: Option<ThinkingKind>,
    budget_tokens: Option<u64>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
enum ThinkingKind {
    Enabled,
    Adaptive,
    Disabled,
}

/// The form of the answer, and how much the model reasons.
#[derive(JsonSchema)]
pub(crate) struct OutputConfig {
    effort: Option<AnthropicEffort>,
    format: Option<super::generation::ResponseFormatField>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
enum AnthropicEffort {
    Low,
    Medium,
    High,
    Xhigh,
    Max,
}

/// The number of a prompt's tokens.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct TokenCount {
    input_tokens: usize,
}

/// An event of a streamed message.
#[derive(JsonSchema)]
#[schemars(transparent)]
pub(crate) struct MessageStreamEvent(EventData<MessageEvent>);

#[derive(JsonSchema)]
#[schemars(untagged)]
enum MessageEvent {
    Known(MessageEventKind),
    Error(AnthropicError),
}

#[derive(JsonSchema)]
#[schemars(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum MessageEventKind {
    MessageStart { message: MessageJson<'static> },
    ContentBlockStart { index: usize, content_block: Block },
    ContentBlockDelta { index: usize, delta: BlockDelta },
    ContentBlockStop { index: usize },
    MessageDelta { delta: MessageEnd, usage: Usage },
    MessageStop,
}

#[derive(JsonSchema)]
#[schemars(tag = "type", deny_unknown_fields)]
enum BlockDelta {
    #[schemars(rename = "thinking_delta")]
    Thinking { thinking: String },
    #[schemars(rename = "signature_delta")]
    Signature { signature: String },
    #[schemars(rename = "text_delta")]
    Text { text: String },
    #[schemars(rename = "input_json_delta")]
    InputJson { partial_json: String },
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct MessageEnd {
    stop_reason: Option<String>,
    stop_sequence: Option<String>,
}
