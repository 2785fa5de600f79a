//! `POST /v1/messages` and `/v1/messages/count_tokens`.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use refrain_engine::{EngineRequest, GenerateOptions};
use refrain_text::Conversation;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{AnthropicRefusal, conversation, reply};
use crate::answer::TextOptions;
use crate::error::{Body, Refusal};
use crate::openai::options::GenerationFields;
use crate::served::ServedModel;

#[derive(Deserialize)]
pub(crate) struct MessagesRequest {
    model: Option<String>,
    messages: Vec<Value>,
    /// A text, or blocks of text.
    system: Option<Value>,
    tools: Option<Vec<Value>>,
    tool_choice: Option<Value>,
    thinking: Option<Value>,
    #[serde(default)]
    stream: bool,
    max_tokens: Option<Value>,
    temperature: Option<Value>,
    top_k: Option<Value>,
    top_p: Option<Value>,
    stop_sequences: Option<Vec<String>>,
}

pub(crate) async fn messages(
    State(model): State<Arc<ServedModel>>,
    request: Result<Body<MessagesRequest>, Refusal>,
) -> Result<Response, AnthropicRefusal> {
    let Body(request) = request?;
    let options = request.options(&model)?;
    let (is_streamed, stops) = (request.stream, request.stop_sequences.clone());
    let (prompt, text, calls) = request.prompt(&model).await?;
    let head = reply::MessageHead {
        model: model.name.clone(),
        input_tokens: prompt.len(),
        stops: stops.unwrap_or_default(),
    };
    let answer = model.ask(EngineRequest::new(prompt, options), text)?;
    reply::reply(head, crate::parts::hear(answer, calls), is_streamed).await
}

pub(crate) async fn count_tokens(
    State(model): State<Arc<ServedModel>>,
    request: Result<Body<MessagesRequest>, Refusal>,
) -> Result<Json<Value>, AnthropicRefusal> {
    let Body(request) = request?;
    model.check_name(request.model.as_deref())?;
    let (prompt, ..) = request.prompt(&model).await?;
    Ok(Json(json!({"input_tokens": prompt.len()})))
}

impl MessagesRequest {
    fn options(&self, model: &ServedModel) -> Result<GenerateOptions, Refusal> {
        let fields = [
            ("model", self.model.clone().map(Value::from)),
            ("max_tokens", self.max_tokens.clone()),
            ("temperature", self.temperature.clone()),
            ("top_k", self.top_k.clone()),
            ("top_p", self.top_p.clone()),
            ("stop", self.stop_sequences.clone().map(Value::from)),
        ];
        let given = fields
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?)));
        let fields: GenerationFields = serde_json::from_value(given.collect::<Map<_, _>>().into())
            .map_err(|why| Refusal::Malformed(why.to_string()))?;
        Ok(fields.options(model)?.swap_remove(0))
    }

    /// The prompt's tokens, how the answer is read, and whether it may call functions.
    async fn prompt(self, model: &Arc<ServedModel>) -> Result<(Vec<u32>, TextOptions, bool), Refusal> {
        let tools = match self.tool_choice.as_ref().map(|choice| choice["type"].as_str()) {
            None | Some(Some("auto")) => self.tools.filter(|tools| !tools.is_empty()),
            Some(Some("none")) => None,
            _ => {
                return Err(Refusal::field(
                    "tool_choice",
                    "only \"auto\" and \"none\" are supported",
                ));
            }
        };
        let think = match self.thinking.as_ref().and_then(|thinking| thinking["type"].as_str()) {
            // A model that cannot think answers as it can.
            Some("enabled" | "adaptive") => model.marks().map(|_| true),
            // Who did not ask for thoughts does not expect them.
            None | Some("disabled") => Some(false),
            Some(other) => return Err(Refusal::field("thinking", format!("{other:?} is not known"))),
        };
        let calls = tools.is_some();
        let conversation = Conversation {
            messages: conversation::read(self.system, self.messages)?,
            tools: tools.map(conversation::tools).transpose()?,
            ..Conversation::default()
        };
        let (prompt, text) = model.conversed(conversation, think).await?;
        Ok((prompt, text, calls))
    }
}
