//! `/api/tags`, `/api/ps`, `/api/show` and `/api/version`: the models that are served.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use super::options::ModelFields;
use super::refusal::OllamaRefusal;
use crate::error::{Body, Refusal};
use crate::served::{ModelFacts, ServedModel, ServedModels};

/// The Ollama version whose API this server has: the first with logprobs, `/v1/responses` and `/v1/messages`. Clients
/// compare it before they use a feature.
const OLLAMA_VERSION: &str = "0.14.0";

/// Lists the models.
pub(crate) async fn tags(State(models): State<Arc<ServedModels>>) -> Json<Value> {
    let all: Vec<Value> = models.0.iter().map(|model| described(model)).collect();
    Json(json!({"models": all}))
}

/// Lists the models that are loaded.
pub(crate) async fn running(State(models): State<Arc<ServedModels>>) -> Json<Value> {
    let running = models.0.iter().filter_map(|model| {
        let cached = model.loaded()?.options().cache_tokens as u64 * model.bytes_per_token;
        let mut entry = described(model);
        entry["size"] = (model.facts.bytes + cached).into();
        // The KV cache is where the weights are.
        let on_card = model.facts.bytes_on_card;
        entry["size_vram"] = if on_card > 0 { on_card + cached } else { 0 }.into();
        entry["context_length"] = model.context.into();
        entry["expires_at"] = expires_at(model).into();
        Some(entry)
    });
    Json(json!({"models": running.collect::<Vec<_>>()}))
}

/// When an idle model is unloaded; far in the future if it stays.
fn expires_at(model: &ServedModel) -> String {
    let never = || "9999-12-31T23:59:59Z".to_owned();
    let expires = model
        .stays()
        .and_then(|left| jiff::Timestamp::now().checked_add(left).ok());
    expires.map_or_else(never, |time| time.to_string())
}

/// The compatible Ollama version, and this program's own.
pub(crate) async fn version() -> Json<Value> {
    Json(json!({"version": OLLAMA_VERSION, "refrain": env!("CARGO_PKG_VERSION")}))
}

/// Describes a model.
pub(crate) async fn show(
    State(models): State<Arc<ServedModels>>,
    request: Result<Body<ModelFields>, Refusal>,
) -> Result<Json<Value>, OllamaRefusal> {
    let Body(request) = request?;
    let model = request.model(&models)?;
    let ModelFacts {
        architecture,
        parameters,
        ..
    } = &model.facts;
    let mut shown = json!({
        "details": details(&model),
        "model_info": {
            "general.architecture": architecture,
            "general.parameter_count": parameters,
            (format!("{architecture}.context_length")): model.context,
            (format!("{architecture}.embedding_length")): model.width,
        },
        "capabilities": capabilities(&model),
        "modified_at": modified_at(&model),
    });
    if let Some(template) = model.template_source() {
        shown["template"] = template.into();
    }
    Ok(Json(shown))
}

/// What a model can do, in Ollama's words.
fn capabilities(model: &ServedModel) -> Vec<&'static str> {
    let dialect = model.dialect();
    let all = [
        ("completion", true),
        ("insert", model.fills()),
        ("tools", dialect.has_calls()),
        ("thinking", dialect.reasons()),
    ];
    let has = all.into_iter().filter(|(_, has)| *has);
    has.map(|(capability, _)| capability).collect()
}

fn described(model: &ServedModel) -> Value {
    json!({
        "name": model.name,
        "model": model.name,
        "modified_at": modified_at(model),
        "size": model.facts.bytes,
        "digest": model.facts.digest,
        "details": details(model),
    })
}

fn details(model: &ServedModel) -> Value {
    let facts = &model.facts;
    json!({
        "parent_model": "",
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

fn modified_at(model: &ServedModel) -> String {
    jiff::Timestamp::from_second(model.since as i64).map_or_else(|_| String::new(), |time| time.to_string())
}
