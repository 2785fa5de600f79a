//! `/tokenize` and `/detokenize`, as vLLM and llama-server have them.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use refrain_text::Conversation;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::{Body, Refusal};
use crate::messages;
use crate::served::ServedModels;

/// A text, or a conversation.
#[derive(Deserialize)]
pub(crate) struct TokenizeRequest {
    model: Option<String>,
    #[serde(alias = "content")]
    prompt: Option<String>,
    messages: Option<Vec<Value>>,
    #[serde(alias = "add_special")]
    add_special_tokens: Option<bool>,
}

pub(crate) async fn tokenize(
    State(models): State<Arc<ServedModels>>,
    Body(request): Body<TokenizeRequest>,
) -> Result<Json<Value>, Refusal> {
    let model = models.named(request.model.as_deref())?;
    let tokens = match (&request.prompt, request.messages) {
        (Some(text), _) => model
            .tokenizer
            .encode(text, request.add_special_tokens.unwrap_or(true))?,
        (None, Some(given)) => {
            let conversation = Conversation {
                messages: messages::read(given)?,
                ..Conversation::default()
            };
            model.prompt(&conversation, None)?.0
        }
        (None, None) => return Err(Refusal::field("prompt", "give a prompt or messages")),
    };
    let most = model.context;
    Ok(Json(
        json!({"count": tokens.len(), "max_model_len": most, "tokens": tokens}),
    ))
}

/// Tokens.
#[derive(Deserialize)]
pub(crate) struct DetokenizeRequest {
    model: Option<String>,
    tokens: Vec<u32>,
}

pub(crate) async fn detokenize(
    State(models): State<Arc<ServedModels>>,
    Body(request): Body<DetokenizeRequest>,
) -> Result<Json<Value>, Refusal> {
    let model = models.named(request.model.as_deref())?;
    let text = model.tokenizer.decode(&request.tokens, false)?;
    Ok(Json(json!({"prompt": text, "content": text})))
}
