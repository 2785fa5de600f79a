//! `GET /v1/models`.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use serde_json::{Value, json};

use crate::error::Refusal;
use crate::served::ServedModel;

pub(crate) async fn models(State(model): State<Arc<ServedModel>>) -> Json<Value> {
    Json(json!({"object": "list", "data": [described(&model)]}))
}

pub(crate) async fn model(
    State(model): State<Arc<ServedModel>>,
    Path(name): Path<String>,
) -> Result<Json<Value>, Refusal> {
    model.check_name(Some(&name))?;
    Ok(Json(described(&model)))
}

fn described(model: &ServedModel) -> Value {
    json!({
        "id": model.name,
        "object": "model",
        "created": model.since,
        "owned_by": "refrain",
        "max_model_len": model.engine.options().context,
    })
}
