//! Bodies of the routes for models, tokens and monitoring, of llama-server's and vLLM's routes, and of the page.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde_json::{Map, Value};

use super::chat::TokenLogprob;
use super::errors::OpenAiError;
use super::wire::EventData;

/// The models that are served, in the form of OpenAI's API or, with a header `anthropic-version`, of Anthropic's.
#[derive(JsonSchema)]
#[schemars(untagged)]
pub(crate) enum ModelList {
    OpenAi(OpenAiModelList),
    Anthropic(AnthropicModelList),
}

/// A model in one of these forms.
#[derive(JsonSchema)]
#[schemars(untagged)]
pub(crate) enum Model {
    OpenAi(OpenAiModel),
    Anthropic(AnthropicModel),
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct AnthropicModelList {
    data: Vec<AnthropicModel>,
    first_id: Option<String>,
    last_id: Option<String>,
    has_more: bool,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct AnthropicModel {
    id: String,
    #[schemars(rename = "type", extend("const" = "model"))]
    kind: String,
    display_name: String,
    /// A time as in RFC 3339.
    created_at: String,
    #[schemars(extend("const" = "active"))]
    lifecycle: String,
    /// Maximum number of tokens of a request, prompt and answer together.
    max_input_tokens: usize,
    max_tokens: usize,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct OpenAiModelList {
    #[schemars(extend("const" = "list"))]
    object: String,
    data: Vec<OpenAiModel>,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct OpenAiModel {
    id: String,
    #[schemars(extend("const" = "model"))]
    object: String,
    created: u64,
    owned_by: String,
    /// Maximum number of tokens of a request, prompt and answer together.
    max_model_len: usize,
}

/// Whether the server works. The models are for clients with a key.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct Health {
    status: String,
    #[schemars(skip_serializing_if = "Option::is_none")]
    models: Option<BTreeMap<String, String>>,
}

/// A text to tokenize as `prompt` or `content`, or a chat as `messages` with the fields of a chat.
#[derive(JsonSchema)]
pub(crate) struct TokenizeRequest {
    model: Option<String>,
    prompt: Option<String>,
    /// llama-server's name of `prompt`.
    content: Option<String>,
    /// A conversation instead of a text.
    #[schemars(length(min = 1))]
    messages: Option<Vec<super::messages::ChatMessage>>,
    /// Whether the tokenizer's own tokens are added, and those in the text are read; true if absent.
    add_special_tokens: Option<bool>,
    /// llama-server's name of `add_special_tokens`.
    add_special: Option<bool>,
    /// Special tokens in a text are always read.
    #[schemars(extend("const" = true))]
    parse_special: Option<bool>,
    with_pieces: Option<bool>,
    return_token_strs: Option<bool>,
}

/// Tokens of a text.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct Tokens {
    count: usize,
    max_model_len: usize,
    #[schemars(skip_serializing_if = "Option::is_none")]
    token_strs: Option<Vec<Option<String>>>,
    tokens: Vec<TokenEntry>,
}

#[derive(JsonSchema)]
#[schemars(untagged)]
enum TokenEntry {
    Id(u32),
    Piece(TokenPiece),
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct TokenPiece {
    id: u32,
    piece: PieceText,
}

/// The text of a token; its bytes if they are no text alone.
#[derive(JsonSchema)]
#[schemars(untagged)]
enum PieceText {
    Text(String),
    Bytes(Vec<u8>),
}

/// The text of tokens, under vLLM's and llama-server's names.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct Detokenized {
    prompt: String,
    content: String,
}

/// HTML of a text.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct Rendered {
    html: String,
}

/// The first model and its settings.
#[derive(JsonSchema)]
pub(crate) struct Props {
    default_generation_settings: DefaultSettings,
    total_slots: usize,
    model_alias: String,
    model_path: String,
    chat_template: Option<String>,
    bos_token: Option<String>,
    eos_token: Option<String>,
    modalities: BTreeMap<String, bool>,
    build_info: String,
    is_sleeping: bool,
    /// Types of keys and of values in the KV cache, such as `f16`.
    cache_type_k: String,
    cache_type_v: String,
}

#[derive(JsonSchema)]
struct DefaultSettings {
    n_ctx: usize,
    params: BTreeMap<String, f64>,
}

/// A place in the batch of the first model.
#[derive(JsonSchema)]
pub(crate) struct Slot {
    id: usize,
    n_ctx: usize,
    is_processing: bool,
}

/// A rendered prompt.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct AppliedTemplate {
    prompt: String,
}

/// llama-server's fields of a completion.
#[derive(JsonSchema)]
pub(crate) struct LlamaRequestFields {
    /// Maximum number of tokens; -1 is no limit.
    #[schemars(range(min = -1))]
    n_predict: Option<i64>,
    /// Number of alternatives of each token.
    #[schemars(range(min = 0, max = 5))]
    n_probs: Option<u64>,
    /// Ignored.
    id_slot: Option<i64>,
    #[schemars(flatten)]
    shared: super::generation::SharedFields,
}

/// A completion of llama-server, or an event of a streamed one.
#[derive(JsonSchema)]
pub(crate) struct LlamaAnswer {
    content: String,
    /// Whether this is the end.
    stop: bool,
    #[schemars(skip_serializing_if = "Option::is_none")]
    stop_type: Option<String>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    stopping_word: Option<String>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    tokens_predicted: Option<usize>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    tokens_evaluated: Option<usize>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    tokens_cached: Option<usize>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    truncated: Option<bool>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    timings: Option<BTreeMap<String, f64>>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    completion_probabilities: Option<Vec<TokenLogprob>>,
}

/// An event of a streamed completion of llama-server.
#[derive(JsonSchema)]
#[schemars(untagged)]
pub(crate) enum LlamaEvent {
    Part(EventData<LlamaAnswer>),
    Error(EventData<OpenAiError>),
}

/// The server's version.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct Version {
    version: String,
}

/// Nothing.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct Pong {}

/// Requests that are computed or wait.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct ServerLoad {
    server_load: usize,
}

/// The first model's special tokens and chat template.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct TokenizerInfo {
    tokenizer_class: String,
    vocab_size: usize,
    model_max_length: usize,
    bos_token: Option<String>,
    eos_token: Option<String>,
    pad_token: Option<String>,
    add_bos_token: bool,
    add_eos_token: bool,
    chat_template: Option<String>,
}

/// This document.
#[derive(JsonSchema)]
pub(crate) struct OpenApi {
    openapi: String,
    info: Map<String, Value>,
    servers: Vec<Map<String, Value>>,
    paths: BTreeMap<String, Map<String, Value>>,
    components: Map<String, Value>,
}

/// A body of a request that is refused, whatever it is.
#[derive(JsonSchema)]
pub(crate) struct AnyObject {
    #[schemars(flatten)]
    fields: Map<String, Value>,
}
