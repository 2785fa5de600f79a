//! The operations of all routes.

use serde_json::json;

use super::operation::{Operation, QueryParameter, Tag};
use super::{anthropic, chat, ollama, responses, servers};
use crate::anthropic::{MessageJson, MessagesRequest};
use crate::ollama::{chat as ollama_chat, embed, generate, options, pull};
use crate::openai::chat::ChatRequest;
use crate::openai::completions::CompletionRequest;
use crate::openai::embeddings::{EmbeddingList, EmbeddingsRequest};
use crate::openai::llama_server::{InfillRequest, LlamaCompletion};
use crate::openai::responses::{ConversationChange, ConversationRequest, ResponsesRequest};
use crate::page::RenderRequest;
use crate::tokens::DetokenizeRequest;

/// Statuses of requests that name a model.
const MODEL: &[u16] = &[404];
/// Statuses of requests that read what is stored.
const STORED: &[u16] = &[404];

/// The parameters of lists of items.
const PAGE: &[QueryParameter] = &[
    (
        "limit",
        || json!({"type": "integer", "minimum": 1, "maximum": 100, "default": 20}),
    ),
    ("order", || json!({"enum": ["asc", "desc"], "default": "desc"})),
    ("after", || json!({"type": "string"})),
];

fn operation(tag: Tag, method: &'static str, path: &'static str, id: &'static str, summary: &'static str) -> Operation {
    Operation::new(tag, method, path, id, summary)
}

/// Returns the operations of all routes.
pub(super) fn operations() -> Vec<Operation> {
    let all = [
        openai(),
        stored(),
        conversations(),
        anthropic(),
        ollama(),
        models(),
        llama_server(),
        vllm(),
        monitoring(),
        page(),
    ];
    all.into_iter().flatten().collect()
}

fn openai() -> Vec<Operation> {
    let post = |path, id, summary| operation(Tag::OpenAi, "post", path, id, summary).errors(MODEL);
    vec![
        post(
            "/v1/chat/completions",
            "createChatCompletion",
            "Answers a conversation.",
        )
        .body::<ChatRequest>()
        .json::<chat::ChatCompletion>()
        .events::<chat::ChatEvent>(),
        post("/v1/completions", "createCompletion", "Continues texts.")
            .body::<CompletionRequest>()
            .json::<chat::Completion>()
            .events::<chat::CompletionEvent>(),
        post(
            "/v1/embeddings",
            "createEmbeddings",
            "Returns embeddings of texts, normalised to length 1.",
        )
        .body::<EmbeddingsRequest>()
        .json::<EmbeddingList<'static>>(),
        post("/v1/responses", "createResponse", "Answers a conversation of items.")
            .body::<ResponsesRequest>()
            .json::<responses::Response>()
            .events::<responses::ResponseStreamEvent>(),
        post(
            "/v1/responses/input_tokens",
            "countInputTokens",
            "Counts the tokens of a conversation of items.",
        )
        .body::<ResponsesRequest>()
        .json::<responses::InputTokens>(),
        operation(
            Tag::OpenAi,
            "post",
            "/v1/responses/compact",
            "compactResponse",
            "Refused: no model here compresses conversations.",
        ),
        operation(Tag::OpenAi, "get", "/v1/models", "listModels", "Lists the models.").json::<servers::ModelList>(),
        operation(Tag::LlamaServer, "get", "/models", "llamaModels", "Lists the models.").json::<servers::ModelList>(),
        operation(
            Tag::OpenAi,
            "get",
            "/v1/models/{name}",
            "getModel",
            "Describes a model.",
        )
        .json::<servers::Model>()
        .errors(MODEL),
    ]
}

fn stored() -> Vec<Operation> {
    let of = |method, path, id, summary| operation(Tag::OpenAi, method, path, id, summary).errors(STORED);
    vec![
        of(
            "get",
            "/v1/responses/{id}",
            "getResponse",
            "Returns a response that was kept. Its events are not.",
        )
        .query(&[("stream", || json!({"type": "boolean"}))])
        .json::<responses::Response>(),
        of("delete", "/v1/responses/{id}", "deleteResponse", "Deletes a response.").json::<responses::Deleted>(),
        of(
            "get",
            "/v1/responses/{id}/input_items",
            "listInputItems",
            "Lists the items that a response answered.",
        )
        .query(PAGE)
        .json::<responses::ItemList>(),
        of(
            "post",
            "/v1/responses/{id}/cancel",
            "cancelResponse",
            "Refused: no response runs in the background.",
        ),
    ]
}

fn conversations() -> Vec<Operation> {
    let of = |method, path, id, summary| operation(Tag::OpenAi, method, path, id, summary).errors(STORED);
    vec![
        operation(
            Tag::OpenAi,
            "post",
            "/v1/conversations",
            "createConversation",
            "Creates a conversation.",
        )
        .body::<ConversationRequest>()
        .json::<responses::Conversation>(),
        of(
            "get",
            "/v1/conversations/{id}",
            "getConversation",
            "Returns a conversation.",
        )
        .json::<responses::Conversation>(),
        of(
            "post",
            "/v1/conversations/{id}",
            "changeConversation",
            "Changes the metadata of a conversation.",
        )
        .body::<ConversationChange>()
        .json::<responses::Conversation>(),
        of(
            "delete",
            "/v1/conversations/{id}",
            "deleteConversation",
            "Deletes a conversation.",
        )
        .json::<responses::Deleted>(),
        of(
            "get",
            "/v1/conversations/{id}/items",
            "listConversationItems",
            "Lists the items of a conversation.",
        )
        .query(PAGE)
        .json::<responses::ItemList>(),
        of(
            "post",
            "/v1/conversations/{id}/items",
            "addConversationItems",
            "Adds items to a conversation.",
        )
        .body::<ConversationRequest>()
        .json::<responses::ItemList>(),
        of(
            "get",
            "/v1/conversations/{id}/items/{item}",
            "getConversationItem",
            "Returns an item of a conversation.",
        )
        .json::<responses::StoredItem>(),
        of(
            "delete",
            "/v1/conversations/{id}/items/{item}",
            "deleteConversationItem",
            "Deletes an item of a conversation, which is returned.",
        )
        .json::<responses::Conversation>(),
    ]
}

fn anthropic() -> Vec<Operation> {
    let post = |path, id, summary| operation(Tag::Anthropic, "post", path, id, summary).errors(MODEL);
    vec![
        post("/v1/messages", "createMessage", "Answers a conversation.")
            .body::<MessagesRequest>()
            .json::<MessageJson<'static>>()
            .events::<anthropic::MessageStreamEvent>(),
        post(
            "/v1/messages/count_tokens",
            "countTokens",
            "Counts the tokens of a conversation.",
        )
        .body::<MessagesRequest>()
        .json::<anthropic::TokenCount>(),
    ]
}

fn ollama() -> Vec<Operation> {
    let of = |method, path, id, summary| operation(Tag::Ollama, method, path, id, summary);
    let refused = |method, path, id| of(method, path, id, "Refused: the server's operator chooses the models.");
    vec![
        of("post", "/api/chat", "ollamaChat", "Answers a conversation.")
            .body::<ollama_chat::ChatRequest>()
            .json::<ollama::OllamaChatLine>()
            .lines::<ollama::OrError<ollama::OllamaChatLine>>()
            .errors(MODEL),
        of(
            "post",
            "/api/generate",
            "ollamaGenerate",
            "Answers a prompt, or continues a text.",
        )
        .body::<generate::GenerateRequest>()
        .json::<ollama::OllamaGenerateLine>()
        .lines::<ollama::OrError<ollama::OllamaGenerateLine>>()
        .errors(MODEL),
        of(
            "post",
            "/api/embed",
            "ollamaEmbed",
            "Returns embeddings of texts, normalised to length 1.",
        )
        .body::<embed::EmbedRequest>()
        .json::<embed::EmbedReply<'static>>()
        .errors(MODEL),
        of(
            "post",
            "/api/embeddings",
            "ollamaEmbeddings",
            "Returns the embedding of a text, as the model computes it.",
        )
        .body::<embed::OldEmbedRequest>()
        .json::<embed::OldEmbedReply>()
        .errors(MODEL),
        of("get", "/api/tags", "ollamaTags", "Lists the models.").json::<ollama::OllamaTags>(),
        of("get", "/api/ps", "ollamaPs", "Lists the models that are loaded.").json::<ollama::OllamaRunning>(),
        of("post", "/api/show", "ollamaShow", "Describes a model.")
            .body::<options::ModelFields>()
            .json::<ollama::ShownModel>()
            .errors(MODEL),
        of(
            "get",
            "/api/version",
            "ollamaVersion",
            "Returns the version of Ollama whose interface this is.",
        )
        .json::<ollama::OllamaVersion>(),
        of(
            "post",
            "/api/pull",
            "ollamaPull",
            "Downloads a model, if the server's operator allows it.",
        )
        .body::<pull::PullRequest>()
        .json::<ollama::PullLine>()
        .lines::<ollama::OrError<ollama::PullLine>>()
        .errors(&[502]),
        refused("delete", "/api/delete", "ollamaDelete"),
        refused("post", "/api/create", "ollamaCreate"),
        refused("post", "/api/copy", "ollamaCopy"),
        refused("post", "/api/push", "ollamaPush"),
        refused("post", "/api/blobs/{digest}", "ollamaCreateBlob"),
        of(
            "head",
            "/api/blobs/{digest}",
            "ollamaHasBlob",
            "Says that no file of this digest was uploaded.",
        )
        .errors(&[404]),
    ]
}

fn models() -> Vec<Operation> {
    let of = |method, path, id, summary| operation(Tag::Vllm, method, path, id, summary).errors(MODEL);
    vec![
        of(
            "post",
            "/tokenize",
            "tokenize",
            "Returns the tokens of a text or a conversation.",
        )
        .body::<servers::TokenizeRequest>()
        .json::<servers::Tokens>(),
        of("post", "/detokenize", "detokenize", "Returns the text of tokens.")
            .body::<DetokenizeRequest>()
            .json::<servers::Detokenized>(),
    ]
}

fn llama_server() -> Vec<Operation> {
    let of = |method, path, id, summary| operation(Tag::LlamaServer, method, path, id, summary);
    let completion = |path, id| {
        of("post", path, id, "Continues a text.")
            .body::<LlamaCompletion>()
            .json::<servers::LlamaAnswer>()
            .events::<servers::LlamaEvent>()
            .errors(MODEL)
    };
    vec![
        of(
            "get",
            "/props",
            "llamaProps",
            "Describes the first model and its settings.",
        )
        .json::<servers::Props>(),
        of(
            "get",
            "/slots",
            "llamaSlots",
            "Lists the places in the first model's batch.",
        )
        .json::<Vec<servers::Slot>>(),
        of(
            "post",
            "/apply-template",
            "llamaApplyTemplate",
            "Renders a conversation.",
        )
        .body::<ChatRequest>()
        .json::<servers::AppliedTemplate>()
        .errors(MODEL),
        completion("/completion", "llamaCompletion"),
        completion("/completions", "llamaCompletions"),
        of(
            "post",
            "/infill",
            "llamaInfill",
            "Writes the text of a gap, for models that were trained to.",
        )
        .body::<InfillRequest>()
        .json::<servers::LlamaAnswer>()
        .events::<servers::LlamaEvent>()
        .errors(MODEL),
    ]
}

fn vllm() -> Vec<Operation> {
    let of = |method, path, id, summary| operation(Tag::Vllm, method, path, id, summary);
    let refused = |path, id| of("post", path, id, "Refused: no model here ranks or classifies texts.");
    vec![
        of("get", "/version", "vllmVersion", "Returns the server's version.").json::<servers::Version>(),
        of("get", "/ping", "vllmPing", "Answers, as SageMaker asks.").json::<servers::Pong>(),
        of("post", "/ping", "vllmPostPing", "Answers, as SageMaker asks.").json::<servers::Pong>(),
        of(
            "get",
            "/load",
            "vllmLoad",
            "Counts the requests that are computed or wait.",
        )
        .json::<servers::ServerLoad>(),
        of(
            "get",
            "/tokenizer_info",
            "vllmTokenizerInfo",
            "Describes the first model's tokenizer.",
        )
        .json::<servers::TokenizerInfo>(),
        refused("/rerank", "rerank"),
        refused("/v1/rerank", "rerankV1"),
        refused("/v2/rerank", "rerankV2"),
        refused("/reranking", "reranking"),
        refused("/v1/reranking", "rerankingV1"),
        refused("/score", "score"),
        refused("/v1/score", "scoreV1"),
        refused("/classify", "classify"),
        refused("/v1/classify", "classifyV1"),
        refused("/pooling", "pooling"),
        refused("/v1/pooling", "poolingV1"),
    ]
}

fn monitoring() -> Vec<Operation> {
    let get = |path, id, summary| operation(Tag::Monitoring, "get", path, id, summary);
    let health = |path, id| {
        get(path, id, "Says whether the server works.")
            .json::<servers::Health>()
            .errors(&[503])
            .open()
    };
    vec![
        health("/health", "health"),
        health("/v1/health", "healthV1"),
        get("/metrics", "metrics", "Returns metrics in Prometheus' text format.").text("text/plain"),
        get("/openapi.json", "openapi", "Returns this document.").json::<servers::OpenApi>(),
    ]
}

fn page() -> Vec<Operation> {
    let of = |method, path, id, summary| operation(Tag::Page, method, path, id, summary);
    vec![
        of("get", "/", "page", "Returns the web page.").text("text/html").open(),
        of("get", "/page/{name}", "pageFile", "Returns a file of the web page.")
            .text("text/html")
            .text("text/javascript")
            .text("text/css")
            .text("image/svg+xml")
            .errors(&[404])
            .open(),
        of(
            "post",
            "/render",
            "render",
            "Converts markdown and LaTeX to HTML and MathML.",
        )
        .body::<RenderRequest>()
        .json::<servers::Rendered>(),
    ]
}
