//! `POST /api/chat`: answers to conversations.

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
use crate::error::{Body, Refusal};
use crate::messages;
use crate::openai::structure::{AnswerForm, answer_form};
use crate::served::{ServedModels, another};

#[derive(Deserialize)]
pub(crate) struct OllamaChat {
    #[serde(default)]
    messages: Vec<Value>,
    tools: Option<Vec<Value>>,
    #[serde(flatten)]
    fields: OllamaFields,
}

pub(crate) async fn chat(
    State(models): State<Arc<ServedModels>>,
    request: Result<Body<OllamaChat>, Refusal>,
) -> Result<Response, OllamaRefusal> {
    let (begin, Body(request)) = (Instant::now(), request?);
    let model = request.fields.named.model(&models)?;
    let options = request.fields.options(&model)?;
    let likeliest = request.fields.likelihoods.of_ollama()?;
    let AnswerForm { tools, constraint } = answer_form(request.tools, None, true, request.fields.form()?)?;
    let form = OllamaForm {
        model: model.clone(),
        begin,
        prompt_tokens: 0,
        calls: tools.is_some(),
        put: message,
    };
    if request.messages.is_empty() {
        return form.loaded(&request.fields.named).await;
    }
    let has_images = |message: &Value| message["images"].as_array().is_some_and(|images| !images.is_empty());
    if request.messages.iter().any(has_images) {
        return Err(Refusal::field("images", "only text is supported").into());
    }
    let conversation = Conversation {
        messages: messages::read(request.messages)?,
        tools,
        ..Conversation::default()
    };
    let (prompt, text) = model.conversed(conversation, request.fields.think()).await?;
    let constraint = model.constraint(constraint, text).await?;
    let asked = EngineRequest {
        likeliest,
        constraint: constraint.as_ref().map(another),
        ..EngineRequest::new(prompt, options)
    };
    form.reply(&request.fields, asked, text).await
}

fn message(said: &Said) -> Value {
    let mut message = json!({"role": "assistant", "content": said.text});
    if !said.thinking.is_empty() {
        message["thinking"] = said.thinking.clone().into();
    }
    if !said.calls.is_empty() {
        message["tool_calls"] = said.calls.clone().into();
    }
    json!({"message": message})
}
