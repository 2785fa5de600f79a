//! `POST /api/generate`: an answer to one prompt, or what goes on from it.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::State;
use axum::response::Response;
use refrain_engine::EngineRequest;
use refrain_text::Conversation;
use serde::Deserialize;
use serde_json::{Value, json};

use super::options::OllamaFields;
use super::refusal::OllamaRefusal;
use super::reply::{OllamaForm, Said};
use crate::answer::TextOptions;
use crate::error::{Body, Refusal};
use crate::served::{ServedModels, another};

#[derive(Deserialize)]
pub(crate) struct OllamaGenerate {
    #[serde(default)]
    prompt: String,
    system: Option<String>,
    suffix: Option<String>,
    template: Option<String>,
    #[serde(default)]
    images: Vec<Value>,
    /// Whether the prompt is taken as it is, and not as a question.
    #[serde(default)]
    raw: bool,
    #[serde(flatten)]
    fields: OllamaFields,
}

pub(crate) async fn generate(
    State(models): State<Arc<ServedModels>>,
    request: Result<Body<OllamaGenerate>, Refusal>,
) -> Result<Response, OllamaRefusal> {
    let (begin, Body(request)) = (Instant::now(), request?);
    let model = request.fields.named.model(&models)?;
    let options = request.fields.options(&model)?;
    let likeliest = request.fields.likelihoods.of_ollama()?;
    let is_given = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
    for (field, is_given) in [
        ("suffix", is_given(&request.suffix)),
        ("template", is_given(&request.template)),
        ("images", !request.images.is_empty()),
    ] {
        if is_given {
            return Err(Refusal::field(field, "not supported").into());
        }
    }
    let form = OllamaForm {
        model: model.clone(),
        begin,
        prompt_tokens: 0,
        calls: false,
        put: response,
    };
    if request.prompt.is_empty() {
        return form.loaded(&request.fields.named).await;
    }
    let (prompt, text) = if request.raw || !model.converses() {
        (model.tokenizer.encode(&request.prompt, true)?, TextOptions::default())
    } else {
        let said = |role: &str, text: String| json!({"role": role, "content": text});
        let system = request.system.filter(|text| !text.is_empty());
        let messages = system.map(|text| said("system", text)).into_iter();
        let conversation = Conversation {
            messages: messages.chain([said("user", request.prompt)]).collect(),
            ..Conversation::default()
        };
        model.conversed(conversation, request.fields.think()).await?
    };
    let constraint = model.constraint(request.fields.form()?, text).await?;
    let asked = EngineRequest {
        likeliest,
        constraint: constraint.as_ref().map(another),
        ..EngineRequest::new(prompt, options)
    };
    form.reply(&request.fields, asked, text).await
}

fn response(said: &Said) -> Value {
    let mut line = json!({"response": said.text});
    if !said.thinking.is_empty() {
        line["thinking"] = said.thinking.clone().into();
    }
    line
}
