//! `POST /v1/responses`: answers to conversations of items.

mod items;
mod reply;

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use refrain_engine::EngineRequest;
use refrain_text::Conversation;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::options::GenerationFields;
use crate::error::{Body, Refusal};
use crate::parts;
use crate::served::ServedModel;

#[derive(Deserialize)]
pub(crate) struct ResponsesRequest {
    /// A text, or items.
    input: Value,
    instructions: Option<String>,
    tools: Option<Vec<Value>>,
    tool_choice: Option<Value>,
    previous_response_id: Option<Value>,
    #[serde(default)]
    background: bool,
    #[serde(default)]
    stream: bool,
    text: Option<Value>,
    max_output_tokens: Option<Value>,
    metadata: Option<Value>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

/// Fields that mean the same as in chats.
const SHARED: [&str; 6] = ["model", "temperature", "top_p", "top_k", "min_p", "seed"];

pub(crate) async fn responses(
    State(model): State<Arc<ServedModel>>,
    Body(request): Body<ResponsesRequest>,
) -> Result<Response, Refusal> {
    let options = request.generation()?.options(&model)?.swap_remove(0);
    request.check()?;
    let tools = request.tools()?;
    let calls = tools.is_some();
    let conversation = Conversation {
        messages: items::read(request.instructions.as_deref(), &request.input)?,
        tools,
        ..Conversation::default()
    };
    let (prompt, text) = model.conversed(conversation, None).await?;
    let or_null = |value: &Option<Value>| value.clone().unwrap_or_default();
    let other = |name: &str| request.others.get(name).cloned().unwrap_or_default();
    let said = json!({
        "created_at": model.now(),
        "model": model.name,
        "instructions": request.instructions,
        "max_output_tokens": or_null(&request.max_output_tokens),
        "metadata": request.metadata.clone().unwrap_or_else(|| json!({})),
        "temperature": other("temperature"),
        "top_p": other("top_p"),
        "tool_choice": request.tool_choice.clone().unwrap_or_else(|| "auto".into()),
        "tools": request.tools.clone().unwrap_or_default(),
    });
    let response = reply::Reply::new(said, prompt.len());
    let heard = parts::hear(model.ask(EngineRequest::new(prompt, options), text)?, calls);
    reply::reply(response, heard, request.stream).await
}

impl ResponsesRequest {
    fn generation(&self) -> Result<GenerationFields, Refusal> {
        let mut fields = Map::new();
        for name in SHARED {
            let given = self.others.get(name).cloned();
            given.map(|value| fields.insert(name.to_owned(), value));
        }
        let most = self.max_output_tokens.clone();
        most.map(|most| fields.insert("max_tokens".to_owned(), most));
        // What is asked of the text's form is the same, but not where it stands.
        let format = self.text.as_ref().map(|text| text["format"].clone());
        format.map(|format| fields.insert("response_format".to_owned(), as_in_chats(format)));
        serde_json::from_value(fields.into()).map_err(|why| Refusal::Malformed(why.to_string()))
    }

    fn check(&self) -> Result<(), Refusal> {
        if self.previous_response_id.as_ref().is_some_and(|id| !id.is_null()) {
            let why = "this server keeps no responses; send the items of the conversation";
            return Err(Refusal::field("previous_response_id", why));
        }
        if self.background {
            return Err(Refusal::field("background", "not supported"));
        }
        Ok(())
    }

    /// Descriptions of functions as templates expect them.
    fn tools(&self) -> Result<Option<Vec<Value>>, Refusal> {
        match self.tool_choice.as_ref().map(|choice| choice.as_str()) {
            None | Some(Some("auto")) => {}
            Some(Some("none")) => return Ok(None),
            _ => {
                let why = "only \"auto\" and \"none\" are supported";
                return Err(Refusal::field("tool_choice", why));
            }
        }
        let one = |tool: &Value| match tool["type"].as_str() {
            Some("function") => {
                let [name, description, parameters] = ["name", "description", "parameters"].map(|key| &tool[key]);
                let function = json!({"name": name, "description": description, "parameters": parameters});
                Ok(json!({"type": "function", "function": function}))
            }
            kind => Err(Refusal::field(
                "tools",
                format!("{kind:?} is not supported; functions are"),
            )),
        };
        let tools = self.tools.as_ref().filter(|tools| !tools.is_empty());
        tools.map(|tools| tools.iter().map(one).collect()).transpose()
    }
}

/// A schema's name and text lie a level deeper in chats.
fn as_in_chats(format: Value) -> Value {
    match format["type"].as_str() {
        Some("json_schema") => json!({"type": "json_schema", "json_schema": format}),
        _ => format,
    }
}
