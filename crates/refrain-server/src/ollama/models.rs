//! `/api/tags`, `/api/ps`, `/api/show`, `/api/version`: the models that are served.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use serde_json::{Value, json};

use super::refusal::OllamaRefusal;
use crate::error::{Body, Refusal};
use crate::served::{ModelFacts, ServedModel, ServedModels};

pub(crate) async fn tags(State(models): State<Arc<ServedModels>>) -> Json<Value> {
    let all: Vec<Value> = models.0.iter().map(|model| described(model)).collect();
    Json(json!({"models": all}))
}

/// Those that are loaded.
pub(crate) async fn running(State(models): State<Arc<ServedModels>>) -> Json<Value> {
    let running = models.0.iter().filter_map(|model| {
        let cached = model.loaded()?.options().cache_tokens as u64 * model.bytes_per_token;
        let mut said = described(model);
        said["size"] = (model.facts.bytes + cached).into();
        // Where weights lie in the card's memory, so do keys and values.
        let on_card = model.facts.bytes_on_card;
        said["size_vram"] = if on_card > 0 { on_card + cached } else { 0 }.into();
        said["context_length"] = model.context.into();
        said["expires_at"] = leaves_at(model).into();
        Some(said)
    });
    Json(json!({"models": running.collect::<Vec<_>>()}))
}

/// When a model leaves if nobody asks for it: at the end of times if it stays.
fn leaves_at(model: &ServedModel) -> String {
    let never = || "9999-12-31T23:59:59Z".to_owned();
    let leaves = model
        .stays()
        .and_then(|left| jiff::Timestamp::now().checked_add(left).ok());
    leaves.map_or_else(never, |time| time.to_string())
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
    State(models): State<Arc<ServedModels>>,
    request: Result<Body<ShowRequest>, Refusal>,
) -> Result<Json<Value>, OllamaRefusal> {
    let Body(request) = request?;
    let model = models.named(request.model.as_deref())?;
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
            (format!("{architecture}.context_length")): model.context,
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
