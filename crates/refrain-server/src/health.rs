//! Whether the server works.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use serde_json::{Map, Value, json};

use crate::served::{ServedModel, ServedModels};

const OK: &str = "ok";

/// It works unless a model that is loaded does not; those that are not will be when they are asked for.
pub(crate) async fn health(State(models): State<Arc<ServedModels>>) -> impl IntoResponse {
    let of_model = |model: &Arc<ServedModel>| match model.loaded() {
        None => "not loaded",
        Some(engine) if engine.has_failed() => "the device failed; start the server again",
        Some(engine) if engine.is_recovering() => "the device failed; the model is being loaded again",
        Some(_) => OK,
    };
    let states: Vec<&str> = models.0.iter().map(of_model).collect();
    let trouble = states.iter().find(|state| ![OK, "not loaded"].contains(state));
    let (status, said) = match trouble {
        Some(trouble) => (StatusCode::SERVICE_UNAVAILABLE, *trouble),
        None => (StatusCode::OK, OK),
    };
    let named = models.0.iter().zip(&states);
    let named: Map<String, Value> = named
        .map(|(model, state)| (model.name.clone(), (*state).into()))
        .collect();
    (status, Json(json!({"status": said, "models": named})))
}
