//! `GET /v1/models`, for clients of OpenAI and of Anthropic.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, Uri};
use serde_json::{Value, json};

use crate::anthropic;
use crate::error::Refusal;
use crate::served::{ServedModel, ServedModels};

pub(crate) async fn models(State(models): State<Arc<ServedModels>>, uri: Uri, headers: HeaderMap) -> Json<Value> {
    Json(if anthropic::is_asked(uri.path(), &headers) {
        let models = models.names();
        let models = models.map(|(name, model)| anthropic::models::described(name, model));
        anthropic::models::list(models.collect())
    } else {
        let models = models.names().map(|(name, model)| described(name, model));
        json!({"object": "list", "data": models.collect::<Vec<_>>()})
    })
}

pub(crate) async fn model(
    State(models): State<Arc<ServedModels>>,
    name: Result<Path<String>, PathRejection>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Json<Value>, Refusal> {
    let Path(name) = name?;
    let model = models.named(Some(&name))?;
    Ok(Json(if anthropic::is_asked(uri.path(), &headers) {
        anthropic::models::described(&name, &model)
    } else {
        described(&name, &model)
    }))
}

fn described(name: &str, model: &ServedModel) -> Value {
    json!({
        "id": name,
        "object": "model",
        "created": model.since,
        "owned_by": "refrain",
        "max_model_len": model.context,
    })
}
