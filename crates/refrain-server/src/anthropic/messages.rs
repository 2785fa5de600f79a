//! `POST /v1/messages` and `/v1/messages/count_tokens`.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use refrain_engine::{EngineRequest, GenerateOptions};
use refrain_text::Conversation;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::message::MessageHead;
use super::reasoning::{BUDGET, Thinking};
use super::{AnthropicRefusal, conversation, reply};
use crate::answer::AnswerFormat;
use crate::body;
use crate::error::{Body, Refusal};
use crate::exact_list::ExactList;
use crate::openai::options::GenerationFields;
use crate::openai::structure::{AnswerForm, ResponseFormat, answer_form, of_format};
use crate::prefill::Prefill;
use crate::served::{ServedModel, ServedModels, another};

/// The body of both requests. Fields that change nothing here, such as `metadata`, are ignored.
#[derive(Deserialize)]
pub(crate) struct MessagesRequest {
    model: Option<String>,
    messages: ExactList,
    /// A string, or blocks of text.
    system: Option<Value>,
    tools: Option<Vec<Value>>,
    tool_choice: Option<Value>,
    thinking: Option<Value>,
    stream: Option<bool>,
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
    let is_streamed = request.stream == Some(true);
    let stops = options.stop_strings.clone();
    let prompt = request.prompt(&model).await?;
    let head = MessageHead {
        model: model.name.clone(),
        input_tokens: prompt.tokens.len(),
        stops,
    };
    let constraint = model.constraint(prompt.constraint, &prompt.format).await?;
    let request = EngineRequest {
        constraint: constraint.as_ref().map(another),
        ..EngineRequest::new(prompt.tokens, options)
    };
    let engine = model.engine().await?;
    let answer = model.ask(&engine, request, prompt.format)?;
    reply::reply(head, crate::events::stream(answer), is_streamed).await
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
        let fields: GenerationFields = body::from_value(given.collect::<Map<_, _>>().into())?;
        Ok(fields.options(model)?.swap_remove(0))
    }

    /// The format of the text, if one is requested. `output_format` is the older name of the field.
    fn response_format(&self) -> Result<Option<ResponseFormat>, Refusal> {
        let format = self
            .output_config
            .as_ref()
            .map_or(&Value::Null, |config| &config["format"]);
        let older = self.output_format.as_ref().unwrap_or(&Value::Null);
        if !format.is_null() && !older.is_null() {
            return Err(Refusal::field("output_format", "output_config.format is given too"));
        }
        let format = of_format("output_config.format", format)?;
        Ok(format.or(of_format("output_format", older)?))
    }

    /// The tools, and the constraint on the answer.
    fn answer_form(&mut self, model: &ServedModel) -> Result<AnswerForm, Refusal> {
        let null = Value::Null;
        let given = self.tool_choice.as_ref().unwrap_or(&null);
        let choice = match (given["type"].as_str(), given["name"].as_str()) {
            (None, _) if given.is_null() => Value::Null,
            (Some(word @ ("auto" | "none")), _) => word.into(),
            (Some("any"), _) => "required".into(),
            (Some("tool"), Some(name)) => json!({"function": {"name": name}}),
            (Some("tool"), None) => return Err(Refusal::field("tool_choice", "names no tool")),
            _ => {
                let why = "type must be \"auto\", \"any\", \"tool\" or \"none\"";
                return Err(Refusal::field("tool_choice", why));
            }
        };
        let several = given["disable_parallel_tool_use"] != true;
        let tools = self.tools.take().filter(|_| choice != "none");
        let tools = tools.map(conversation::tools).transpose()?;
        answer_form(model, tools, Some(&choice), several, self.response_format()?)
    }

    /// Renders the prompt. A last message of the assistant is the beginning of the answer.
    async fn prompt(mut self, model: &Arc<ServedModel>) -> Result<AnthropicPrompt, Refusal> {
        let AnswerForm { tools, constraint } = self.answer_form(model)?;
        let Thinking { options, budget } = Thinking::new(self.thinking.as_ref(), self.output_config.as_ref())?;
        let mut messages = conversation::read(self.system, self.messages.0)?;
        let prefill = Prefill::take(&mut messages);
        let mut conversation = Conversation {
            messages,
            tools,
            ..Conversation::default()
        };
        if let Some(budget) = budget {
            conversation.variables.insert(BUDGET.to_owned(), budget.into());
        }
        let (tokens, format) = model.render_with_effort(conversation, options, prefill).await?;
        Ok(AnthropicPrompt {
            tokens,
            format,
            constraint,
        })
    }
}

/// A rendered prompt, and how the answer to it is read and constrained.
struct AnthropicPrompt {
    tokens: Vec<u32>,
    format: AnswerFormat,
    constraint: Option<ResponseFormat>,
}
