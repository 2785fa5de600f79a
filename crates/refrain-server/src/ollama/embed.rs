//! `POST /api/embed`, and its older form `/api/embeddings`.

use std::sync::Arc;
use std::time::Instant;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::options::ModelFields;
use super::refusal::OllamaRefusal;
use crate::embeddings::{InputField, dimensions, normalised};
use crate::error::{Body, Refusal};
use crate::served::ServedModels;
use crate::tokenize::TextLimit;

/// Texts to embed. Without a text, the model is loaded or unloaded.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct EmbedRequest {
    #[serde(flatten)]
    model: ModelFields,
    input: Option<InputField>,
    /// Whether a text that is too long is cut off instead of refused.
    truncate: Option<bool>,
    /// How many numbers an embedding has; all of the model's if absent.
    #[schemars(with = "Option<u64>", range(min = 1))]
    dimensions: Option<Value>,
}

/// Embeddings in the order of the texts, with durations in nanoseconds.
#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct EmbedReply<'m> {
    model: &'m str,
    embeddings: Vec<Vec<f32>>,
    total_duration: u64,
    load_duration: u64,
    prompt_eval_count: usize,
}

pub(crate) async fn embed(
    State(models): State<Arc<ServedModels>>,
    request: Result<Body<EmbedRequest>, Refusal>,
) -> Result<Response, OllamaRefusal> {
    let (begin, Body(request)) = (Instant::now(), request?);
    let model = request.model.model(&models)?;
    let dimensions = dimensions(&model, request.dimensions.as_ref())?;
    // A request without text only loads the model.
    let is_text = |input: &InputField| !matches!(input, InputField::Text(text) if text.is_empty());
    let input = request.input.filter(is_text);
    let is_truncated = request.truncate.unwrap_or(true);
    let limit = if is_truncated {
        TextLimit::Truncated
    } else {
        TextLimit::Context
    };
    let mut texts = match input {
        Some(input) => input.tokens(&model, limit).await?,
        None => vec![],
    };
    if is_truncated {
        texts.iter_mut().for_each(|text| text.truncate(model.context));
    }
    let tokens = texts.iter().map(Vec::len).sum();
    let embedded = model.embed(texts).await?.into_iter();
    request.model.keep(&model);
    let reply = EmbedReply {
        model: &model.name,
        embeddings: embedded.map(|hidden| normalised(hidden, dimensions)).collect(),
        total_duration: begin.elapsed().as_nanos() as u64,
        load_duration: 0,
        prompt_eval_count: tokens,
    };
    Ok(Json(reply).into_response())
}

/// A text to embed. Without one, the model is loaded or unloaded.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct OldEmbedRequest {
    #[serde(flatten)]
    model: ModelFields,
    prompt: Option<String>,
}

/// The embedding of a text.
#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct OldEmbedReply {
    /// As the model computes it: not normalised.
    embedding: Vec<f32>,
}

pub(crate) async fn embeddings(
    State(models): State<Arc<ServedModels>>,
    request: Result<Body<OldEmbedRequest>, Refusal>,
) -> Result<Response, OllamaRefusal> {
    let Body(request) = request?;
    let model = request.model.model(&models)?;
    let mut embedding = vec![];
    if let Some(prompt) = request.prompt.filter(|prompt| !prompt.is_empty()) {
        let texts = InputField::Text(prompt).tokens(&model, TextLimit::Context).await?;
        embedding = model.embed(texts).await?.pop().unwrap_or_default();
    }
    request.model.keep(&model);
    Ok(Json(OldEmbedReply { embedding }).into_response())
}
