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
use crate::openai::structure::{AnswerForm, AskedForm, answer_form, of_format};
use crate::served::{ServedModel, ServedModels, another};

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
    output_config: Option<Value>,
    output_format: Option<Value>,
}

pub(crate) async fn messages(
    State(models): State<Arc<ServedModels>>,
    request: Result<Body<MessagesRequest>, Refusal>,
) -> Result<Response, AnthropicRefusal> {
    let Body(request) = request?;
    let model = models.named(request.model.as_deref())?;
    let options = request.options(&model)?;
    let (is_streamed, stops) = (request.stream, request.stop_sequences.clone());
    let asked = request.prompt(&model).await?;
    let head = reply::MessageHead {
        model: model.name.clone(),
        input_tokens: asked.tokens.len(),
        stops: stops.unwrap_or_default(),
    };
    let constraint = model.constraint(asked.constraint, asked.text).await?;
    let request = EngineRequest {
        constraint: constraint.as_ref().map(another),
        ..EngineRequest::new(asked.tokens, options)
    };
    let engine = model.engine().await?;
    let answer = model.ask(&engine, request, asked.text)?;
    reply::reply(head, crate::parts::hear(answer, asked.calls), is_streamed).await
}

pub(crate) async fn count_tokens(
    State(models): State<Arc<ServedModels>>,
    request: Result<Body<MessagesRequest>, Refusal>,
) -> Result<Json<Value>, AnthropicRefusal> {
    let Body(request) = request?;
    let model = models.named(request.model.as_deref())?;
    let prompt = request.prompt(&model).await?;
    Ok(Json(json!({"input_tokens": prompt.tokens.len()})))
}

impl MessagesRequest {
    fn options(&self, model: &ServedModel) -> Result<GenerateOptions, Refusal> {
        let fields = [
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

    /// The form of the text, if one is asked for; the second field is the first one's older name.
    fn form(&self) -> Result<Option<AskedForm>, Refusal> {
        let format = self
            .output_config
            .as_ref()
            .map_or(&Value::Null, |config| &config["format"]);
        let older = self.output_format.as_ref().unwrap_or(&Value::Null);
        if !format.is_null() && !older.is_null() {
            return Err(Refusal::field("output_format", "output_config.format is there too"));
        }
        let format = of_format("output_config.format", format)?;
        Ok(format.or(of_format("output_format", older)?))
    }

    /// The tools, and what the answer is held to.
    fn answer_form(&mut self) -> Result<AnswerForm, Refusal> {
        let null = Value::Null;
        let given = self.tool_choice.as_ref().unwrap_or(&null);
        let choice = match (given["type"].as_str(), given["name"].as_str()) {
            (None, _) if given.is_null() => Value::Null,
            (Some(word @ ("auto" | "none")), _) => word.into(),
            (Some("any"), _) => "required".into(),
            (Some("tool"), Some(name)) => json!({"function": {"name": name}}),
            (Some("tool"), None) => return Err(Refusal::field("tool_choice", "it names no tool")),
            _ => {
                let why = "its type is none of \"auto\", \"any\", \"tool\" and \"none\"";
                return Err(Refusal::field("tool_choice", why));
            }
        };
        let several = given["disable_parallel_tool_use"] != true;
        let tools = self.tools.take().filter(|_| choice != "none");
        let tools = tools.map(conversation::tools).transpose()?;
        answer_form(tools, Some(&choice), several, self.form()?)
    }

    /// What is computed of it.
    async fn prompt(mut self, model: &Arc<ServedModel>) -> Result<AnthropicPrompt, Refusal> {
        let AnswerForm { tools, constraint } = self.answer_form()?;
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
            tools,
            ..Conversation::default()
        };
        let (tokens, text) = model.conversed(conversation, think).await?;
        Ok(AnthropicPrompt {
            tokens,
            text,
            calls,
            constraint,
        })
    }
}

/// What is computed of a request.
struct AnthropicPrompt {
    tokens: Vec<u32>,
    /// How the answer is read.
    text: TextOptions,
    /// Whether it may call functions.
    calls: bool,
    constraint: Option<AskedForm>,
}
