//! `GET /v1/models`.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use serde_json::{Value, json};

use crate::error::Refusal;
use crate::served::{ServedModel, ServedModels};

pub(crate) async fn models(State(models): State<Arc<ServedModels>>) -> Json<Value> {
    Json(
        json!({"object": "list", "data": models.names().map(|(name, model)| described(name, model)).collect::<Vec<_>>()}),
    )
}

pub(crate) async fn model(
    State(models): State<Arc<ServedModels>>,
    name: Result<Path<String>, PathRejection>,
) -> Result<Json<Value>, Refusal> {
    let Path(name) = name?;
    let model = models.named(Some(&name))?;
    Ok(Json(described(&name, &model)))
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
