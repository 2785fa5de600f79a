//! OpenAI's interface, and what llama-server and vLLM add to it.

pub(crate) mod chat;
mod completion;
pub(crate) mod completions;
mod constraints;
pub(crate) mod embeddings;
pub(crate) mod fields;
pub(crate) mod llama_server;
pub(crate) mod logprob;
mod message;
pub(crate) mod models;
pub(crate) mod options;
mod pending;
pub(crate) mod reasoning;
mod reply;
pub(crate) mod responses;
pub(crate) mod structure;
mod tool_choice;
pub(crate) mod tools;
mod vllm;

use axum::routing::{get, post};
use axum::{Extension, Router};

use crate::model_list::ModelList;
pub(crate) use reply::{new_call_id, new_id, object_id};
pub use responses::ResponseStore;
use responses::routes as kept;

/// The routes beside those of answers and embeddings.
pub(crate) fn routes(store: ResponseStore) -> Router<ModelList> {
    Router::new()
        .route("/v1/responses", post(responses::responses))
        .route("/v1/responses/input_tokens", post(responses::input_tokens))
        .route("/v1/responses/compact", post(responses::compact))
        .route("/v1/responses/{id}", get(kept::response).delete(kept::delete_response))
        .route("/v1/responses/{id}/input_items", get(kept::input_items))
        .route("/v1/responses/{id}/cancel", post(kept::cancel))
        .route("/v1/conversations", post(kept::create_conversation))
        .route(
            "/v1/conversations/{id}",
            get(kept::conversation)
                .post(kept::change_conversation)
                .delete(kept::delete_conversation),
        )
        .route(
            "/v1/conversations/{id}/items",
            get(kept::conversation_items).post(kept::add_conversation_items),
        )
        .route(
            "/v1/conversations/{id}/items/{item}",
            get(kept::conversation_item).delete(kept::delete_conversation_item),
        )
        .merge(unsupported(&["rerank", "reranking", "score", "classify", "pooling"]))
        .route("/v2/rerank", post(vllm::unsupported))
        .route("/tokenizer_info", get(vllm::tokenizer_info))
        .route("/version", get(vllm::version))
        .route("/ping", get(vllm::ping).post(vllm::ping))
        .route("/load", get(vllm::load))
        .route("/props", get(llama_server::props))
        .route("/slots", get(llama_server::slots))
        .route("/apply-template", post(llama_server::apply_template))
        .route("/completion", post(llama_server::completion))
        .route("/infill", post(llama_server::infill))
        .route("/completions", post(llama_server::completion))
        .layer(Extension(store))
}

/// Routes of other servers that no model here can answer.
fn unsupported(names: &[&str]) -> Router<ModelList> {
    names.iter().fold(Router::new(), |router, name| {
        router
            .route(&format!("/{name}"), post(vllm::unsupported))
            .route(&format!("/v1/{name}"), post(vllm::unsupported))
    })
}
