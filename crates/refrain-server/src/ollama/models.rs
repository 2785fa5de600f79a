//! `/api/tags`, `/api/ps`, `/api/show`, `/api/version`: the model that is served.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use serde_json::{Value, json};

use super::options::check_name;
use super::refusal::OllamaRefusal;
use crate::error::{Body, Refusal};
use crate::served::{ModelFacts, ServedModel};

pub(crate) async fn tags(State(model): State<Arc<ServedModel>>) -> Json<Value> {
    Json(json!({"models": [described(&model)]}))
}

/// It is loaded as long as the server runs.
pub(crate) async fn running(State(model): State<Arc<ServedModel>>) -> Json<Value> {
    let mut running = described(&model);
    running["size_vram"] = model.facts.bytes_on_card.into();
    running["context_length"] = model.engine.options().context.into();
    Json(json!({"models": [running]}))
}

pub(crate) async fn version() -> Json<Value> {
    Json(json!({"version": env!("CARGO_PKG_VERSION")}))
}

#[derive(Deserialize)]
pub(crate) struct ShowRequest {
    #[serde(alias = "name")]
    model: Option<String>,
}

pub(crate) async fn show(
    State(model): State<Arc<ServedModel>>,
    request: Result<Body<ShowRequest>, Refusal>,
) -> Result<Json<Value>, OllamaRefusal> {
    let Body(request) = request?;
    check_name(&model, request.model.as_deref())?;
    let ModelFacts {
        architecture,
        parameters,
        ..
    } = &model.facts;
    let mut capabilities = vec!["completion"];
    if model.converses() {
        capabilities.push("tools");
    }
    if model.marks().is_some() {
        capabilities.push("thinking");
    }
    Ok(Json(json!({
        "details": details(&model),
        "model_info": {
            "general.architecture": architecture,
            "general.parameter_count": parameters,
            (format!("{architecture}.context_length")): model.engine.options().context,
        },
        "capabilities": capabilities,
        "modified_at": modified(&model),
    })))
}

fn described(model: &ServedModel) -> Value {
    json!({
        "name": model.name,
        "model": model.name,
        "modified_at": modified(model),
        "size": model.facts.bytes,
        "digest": "",
        "details": details(model),
    })
}

fn details(model: &ServedModel) -> Value {
    let facts = &model.facts;
    json!({
        "format": facts.container,
        "family": facts.architecture,
        "families": [facts.architecture],
        "parameter_size": match facts.parameters as f64 {
            count if count < 1e9 => format!("{:.1}M", count / 1e6),
            count => format!("{:.1}B", count / 1e9),
        },
        "quantization_level": facts.format,
    })
}

fn modified(model: &ServedModel) -> String {
    jiff::Timestamp::from_second(model.since as i64).map_or_else(|_| String::new(), |time| time.to_string())
}
