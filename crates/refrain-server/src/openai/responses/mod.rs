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
use super::structure::{AnswerForm, answer_form, of_format};
use crate::error::{Body, Refusal};
use crate::parts;
use crate::served::{ServedModels, another};

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
    /// What the text is like.
    text: Option<Value>,
    parallel_tool_calls: Option<bool>,
    /// What else is to be said.
    include: Option<Vec<Value>>,
    top_logprobs: Option<Value>,
    max_output_tokens: Option<Value>,
    metadata: Option<Value>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

/// Fields that mean the same as in chats.
const SHARED: [&str; 6] = ["model", "temperature", "top_p", "top_k", "min_p", "seed"];

pub(crate) async fn responses(
    State(models): State<Arc<ServedModels>>,
    Body(request): Body<ResponsesRequest>,
) -> Result<Response, Refusal> {
    let generation = request.generation()?;
    let model = models.named(generation.model.as_deref())?;
    let options = generation.options(&model)?.swap_remove(0);
    let likeliest = generation.likelihoods.of_chat()?;
    request.check()?;
    let AnswerForm { tools, constraint } = request.answer_form()?;
    let calls = tools.is_some();
    let conversation = Conversation {
        messages: items::read(request.instructions.as_deref(), &request.input)?,
        tools,
        ..Conversation::default()
    };
    let (prompt, text) = model.conversed(conversation, None).await?;
    let constraint = model.constraint(constraint, text).await?;
    let or_null = |value: &Option<Value>| value.clone().unwrap_or_default();
    let other = |name: &str| request.others.get(name).cloned().unwrap_or_default();
    let said = json!({
        "created_at": model.now(),
        "model": model.name,
        "instructions": request.instructions,
        "max_output_tokens": or_null(&request.max_output_tokens),
        "metadata": request.metadata.clone().unwrap_or_else(|| json!({})),
        "parallel_tool_calls": request.parallel_tool_calls.unwrap_or(true),
        "temperature": other("temperature"),
        "text": request.text.clone().filter(|text| !text["format"].is_null()).unwrap_or_else(plain_text),
        "top_p": other("top_p"),
        "tool_choice": request.tool_choice.clone().unwrap_or_else(|| "auto".into()),
        "tools": request.tools.clone().unwrap_or_default(),
    });
    let response = reply::Reply::new(said, prompt.len());
    let asked = EngineRequest {
        likeliest,
        constraint: constraint.as_ref().map(another),
        ..EngineRequest::new(prompt, options)
    };
    let engine = model.engine().await?;
    let heard = parts::hear(model.ask(&engine, asked, text)?, calls);
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
        if self.wants_likelihoods() {
            fields.insert("logprobs".to_owned(), true.into());
            let most = self.top_logprobs.clone().unwrap_or_default();
            fields.insert("top_logprobs".to_owned(), most);
        }
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

    /// Functions, and what the answer is held to.
    fn answer_form(&self) -> Result<AnswerForm, Refusal> {
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
        let format = match &self.text {
            None | Some(Value::Null) => &Value::Null,
            Some(Value::Object(text)) => text.get("format").unwrap_or(&Value::Null),
            Some(_) => return Err(Refusal::field("text", "it is no object")),
        };
        // In chats names lie a level deeper.
        let choice = match &self.tool_choice {
            Some(Value::Object(choice)) => choice.get("name").map(|name| json!({"function": {"name": name}})),
            _ => None,
        };
        let choice = choice.as_ref().or(self.tool_choice.as_ref());
        let is_none = choice.is_some_and(|choice| choice == "none");
        let tools = self.tools.as_ref().filter(|_| !is_none);
        let tools = tools.map(|tools| tools.iter().map(one).collect::<Result<_, _>>());
        let several = self.parallel_tool_calls.unwrap_or(true);
        answer_form(tools.transpose()?, choice, several, of_format("text.format", format)?)
    }

    /// Whether it is to be said how likely tokens were.
    fn wants_likelihoods(&self) -> bool {
        let included = self.include.iter().flatten();
        included.into_iter().any(|name| name == "message.output_text.logprobs")
            || self
                .top_logprobs
                .as_ref()
                .and_then(Value::as_u64)
                .is_some_and(|most| most > 0)
    }
}

/// What a text is like if nothing else is said.
fn plain_text() -> Value {
    json!({"format": {"type": "text"}})
}
