//! `GET /v1/models`.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use serde_json::{Value, json};

use crate::error::Refusal;
use crate::served::{ServedModel, ServedModels};

pub(crate) async fn models(State(models): State<Arc<ServedModels>>) -> Json<Value> {
    Json(json!({"object": "list", "data": models.0.iter().map(|model| described(model)).collect::<Vec<_>>()}))
}

pub(crate) async fn model(
    State(models): State<Arc<ServedModels>>,
    name: Result<Path<String>, PathRejection>,
) -> Result<Json<Value>, Refusal> {
    let Path(name) = name?;
    Ok(Json(described(&*models.named(Some(&name))?)))
}

fn described(model: &ServedModel) -> Value {
    json!({
        "id": model.name,
        "object": "model",
        "created": model.since,
        "owned_by": "refrain",
        "max_model_len": model.context,
    })
}
