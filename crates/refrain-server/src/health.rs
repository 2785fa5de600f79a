//! `GET /health`: whether the server works.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use axum::{Extension, Json};
use serde_json::{Map, Value, json};

use crate::access::ApiKeys;
use crate::served::{ServedModel, ServedModels};

const OK: &str = "ok";
const NOT_LOADED: &str = "not loaded";

/// Returns 503 if a loaded model does not work. A model that is not loaded is loaded when it is requested.
///
/// Where the server has keys, only clients with a key see the models.
pub(crate) async fn health(
    State(models): State<Arc<ServedModels>>,
    Extension(keys): Extension<ApiKeys>,
    headers: HeaderMap,
) -> impl IntoResponse {
    let state = |model: &Arc<ServedModel>| match model.loaded() {
        None => NOT_LOADED,
        Some(engine) if engine.has_failed() => "the device failed; restart the server",
        Some(engine) if engine.is_recovering() => "the device failed; the model is being reloaded",
        Some(_) => OK,
    };
    let states: Vec<&str> = models.0.iter().map(state).collect();
    let failure = states.iter().find(|state| ![OK, NOT_LOADED].contains(state));
    let status = if failure.is_some() {
        StatusCode::SERVICE_UNAVAILABLE
    } else {
        StatusCode::OK
    };
    let mut body = json!({"status": failure.copied().unwrap_or(OK)});
    if keys.allow(&headers) {
        let by_name = models.0.iter().zip(&states);
        let by_name: Map<String, Value> = by_name
            .map(|(model, state)| (model.name.clone(), (*state).into()))
            .collect();
        body["models"] = by_name.into();
    }
    (status, Json(body))
}
