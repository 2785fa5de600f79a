//! Routes of vLLM: `/version`, `/ping`, `/load`, `/tokenizer_info`, and those that need models of another kind.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use serde_json::{Value, json};

use crate::error::Refusal;
use crate::served::ServedModels;

/// `GET /version`.
pub(crate) async fn version() -> Json<Value> {
    Json(json!({"version": env!("CARGO_PKG_VERSION")}))
}

/// `GET /ping`, as SageMaker asks.
pub(crate) async fn ping() -> Json<Value> {
    Json(json!({}))
}

/// `GET /load`: requests that are computed or wait.
pub(crate) async fn load(State(models): State<Arc<ServedModels>>) -> Json<Value> {
    let engines = models.0.iter().filter_map(|model| model.loaded());
    let load: usize = engines
        .map(|engine| engine.load())
        .map(|load| load.waiting + load.running)
        .sum();
    Json(json!({"server_load": load}))
}

/// `GET /tokenizer_info`: the first model's special tokens and template.
pub(crate) async fn tokenizer_info(State(models): State<Arc<ServedModels>>) -> Result<Json<Value>, Refusal> {
    let model = models.named(None)?;
    let tokenizer = &model.tokenizer;
    let token = |id: Option<u32>| id.and_then(|id| tokenizer.token(id));
    let end = token(tokenizer.eos_ids().first().copied());
    let bos = tokenizer.bos_id();
    // An empty text becomes the tokens that the tokenizer adds by itself.
    let added = tokenizer.encode("", true)?;
    Ok(Json(json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "vocab_size": tokenizer.vocab_size(),
        "model_max_length": model.context,
        "bos_token": token(bos),
        "eos_token": end,
        "pad_token": end,
        "add_bos_token": bos.is_some_and(|bos| added.first() == Some(&bos)),
        "add_eos_token": added.last().is_some_and(|last| tokenizer.eos_ids().contains(last)),
        "chat_template": model.template_source(),
    })))
}

/// Refuses routes of models that rank or classify texts.
pub(crate) async fn unsupported(uri: Uri) -> Refusal {
    let task = match uri.path().rsplit('/').next().unwrap_or_default() {
        "score" => "scoring pairs of texts",
        "classify" => "classifying texts",
        "pooling" => "pooling",
        _ => "reranking",
    };
    Refusal::Malformed(format!(
        "{task} is not supported: no model here ranks texts; /v1/embeddings compares them"
    ))
}
