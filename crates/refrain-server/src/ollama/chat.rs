//! `POST /api/chat`: answers to conversations.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::State;
use axum::response::Response;
use refrain_engine::EngineRequest;
use refrain_text::Conversation;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::options::OllamaFields;
use super::partial::{Partial, PartialCall};
use super::refusal::OllamaRefusal;
use super::reply::OllamaReply;
use crate::error::{Body, Refusal};
use crate::exact_list::ExactList;
use crate::messages;
use crate::openai::structure::{RequestedAnswer, requested_answer};
use crate::openai::tools::InputGrammars;
use crate::openapi::messages::ChatTool;
use crate::openapi::ollama::OllamaMessage;
use crate::prefill::Prefill;
use crate::served::ServedModels;

/// A conversation to answer. Without messages, the model is loaded or unloaded.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "OllamaChatRequest")]
pub(crate) struct ChatRequest {
    #[schemars(with = "Option<Vec<OllamaMessage>>")]
    messages: Option<ExactList>,
    #[schemars(with = "Option<Vec<ChatTool>>")]
    tools: Option<Vec<Value>>,
    #[serde(flatten)]
    fields: OllamaFields,
}

pub(crate) async fn chat(
    State(models): State<Arc<ServedModels>>,
    request: Result<Body<ChatRequest>, Refusal>,
) -> Result<Response, OllamaRefusal> {
    let (begin, Body(request)) = (Instant::now(), request?);
    let model = request.fields.model.model(&models)?;
    let options = request.fields.options(&model)?;
    let top_logprobs = request.fields.top_logprobs()?;
    let reasoning = request.fields.reasoning()?;
    let format = request.fields.response_format()?;
    let RequestedAnswer { tools, constraint } =
        requested_answer(&model, request.tools, &InputGrammars::default(), None, true, format)?;
    let reply = OllamaReply::new(model.clone(), begin, message);
    let messages = request.messages.unwrap_or_default().0;
    if messages.is_empty() {
        return reply.loaded(&request.fields.model).await;
    }
    let mut messages = messages::read(prepared(messages)?)?;
    // A last message of the assistant is the beginning of the answer.
    let prefill = Prefill::take(&mut messages);
    let conversation = Conversation {
        messages,
        tools,
        ..Conversation::default()
    };
    model.reserve()?;
    let (prompt, format) = model.render_with_effort(conversation, reasoning, prefill).await?;
    let constraint = model.constraint(constraint, &format).await?;
    let request_to_engine = EngineRequest {
        top_logprobs,
        constraint: constraint.of_answer(),
        ..EngineRequest::new(prompt, options)
    };
    reply.send(&request.fields, request_to_engine, format).await
}

/// Returns messages with the names of fields that OpenAI's clients use.
///
/// # Errors
/// If a message has images.
fn prepared(mut messages: Vec<Value>) -> Result<Vec<Value>, Refusal> {
    for (index, message) in messages.iter_mut().enumerate() {
        let Some(message) = message.as_object_mut() else {
            continue;
        };
        if message
            .remove("images")
            .is_some_and(|images| images.as_array().is_none_or(|images| !images.is_empty()) && !images.is_null())
        {
            return Err(Refusal::field(
                "images",
                format!("message {index} has images; only text is supported"),
            ));
        }
        if let Some(name) = message.remove("tool_name").filter(Value::is_string) {
            message.entry("name").or_insert(name);
        }
        if let Some(reasoning) = message.remove("thinking").filter(Value::is_string) {
            message.entry("reasoning_content").or_insert(reasoning);
        }
    }
    Ok(messages)
}

fn message(answer: &Partial) -> Value {
    let mut message = json!({"role": "assistant", "content": answer.text});
    if !answer.thinking.is_empty() {
        message["thinking"] = answer.thinking.clone().into();
    }
    let calls: Vec<Value> = answer.calls.iter().filter_map(PartialCall::json).collect();
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    json!({"message": message})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_get_the_names_that_templates_know() {
        let messages = prepared(vec![
            json!({"role": "assistant", "content": "", "thinking": "hm", "images": null}),
            json!({"role": "tool", "tool_name": "f", "content": "7", "images": []}),
        ]);
        let messages = messages.unwrap();
        assert_eq!(
            messages[0],
            json!({"role": "assistant", "content": "", "reasoning_content": "hm"})
        );
        assert_eq!(messages[1], json!({"role": "tool", "content": "7", "name": "f"}));
        let images = prepared(vec![json!({"role": "user"}), json!({"role": "user", "images": ["x"]})]);
        assert!(images.unwrap_err().to_string().starts_with("images: message 1 "));
    }
}
