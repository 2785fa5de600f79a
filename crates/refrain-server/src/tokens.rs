//! `/tokenize` and `/detokenize`, as vLLM and llama-server have them.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::body;
use crate::error::{Body, Refusal};
use crate::openai::chat::ChatRequest;
use crate::openai::fields::FieldReader;
use crate::served::{ServedModel, ServedModels};
use crate::tokenize::TextLimit;

/// Tokenizes a text or a conversation, which is `messages` with the fields of a chat.
pub(crate) async fn tokenize(
    State(models): State<Arc<ServedModels>>,
    Body(mut request): Body<Map<String, Value>>,
) -> Result<Json<Value>, Refusal> {
    let is_chat = request.contains_key("messages");
    let chat = is_chat.then(|| Value::Object(request.clone()));
    // llama-server's names of the same fields.
    for (llama, vllm) in [("content", "prompt"), ("add_special", "add_special_tokens")] {
        if let Some(value) = request.shift_remove(llama) {
            request.entry(vllm).or_insert(value);
        }
    }
    let mut fields = FieldReader::new(request);
    let model = models.named(fields.text("model")?.as_deref())?;
    let special = fields.flag("add_special_tokens")?.unwrap_or(true);
    let with_pieces = fields.flag("with_pieces")?.unwrap_or(false);
    let with_strings = fields.flag("return_token_strs")?.unwrap_or(false);
    if fields.flag("parse_special")? == Some(false) {
        let why = "special tokens in a text are always read; false is not supported";
        return Err(Refusal::field("parse_special", why));
    }
    let tokens = match (fields.text("prompt")?, chat) {
        (Some(text), _) => {
            let tokens = model.encode(vec![text], special, TextLimit::Counted).await?;
            tokens.into_iter().next().unwrap_or_default()
        }
        (None, Some(chat)) => body::from_value::<ChatRequest>(chat)?.prompt(&model).await?.tokens,
        (None, None) => return Err(Refusal::field("prompt", "give a prompt or messages")),
    };
    let mut reply = json!({"count": tokens.len(), "max_model_len": model.context});
    if with_strings {
        let strings = tokens.iter().map(|id| model.tokenizer.token(*id));
        reply["token_strs"] = strings.collect();
    }
    reply["tokens"] = if with_pieces {
        tokens.iter().map(|id| piece(&model, *id)).collect()
    } else {
        tokens.into()
    };
    Ok(Json(reply))
}

/// Returns a token with what it stands for: text, or bytes that are no text alone.
fn piece(model: &ServedModel, id: u32) -> Value {
    let bytes = model.bytes_of(id);
    match std::str::from_utf8(bytes) {
        Ok(text) => json!({"id": id, "piece": text}),
        Err(_) => json!({"id": id, "piece": bytes}),
    }
}

/// Tokens.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct DetokenizeRequest {
    model: Option<String>,
    tokens: Vec<u32>,
}

pub(crate) async fn detokenize(
    State(models): State<Arc<ServedModels>>,
    Body(request): Body<DetokenizeRequest>,
) -> Result<Json<Value>, Refusal> {
    let model = models.named(request.model.as_deref())?;
    let text = model.decode(request.tokens, false).await?;
    Ok(Json(json!({"prompt": text, "content": text})))
}
