//! `POST /v1/messages` and `/v1/messages/count_tokens`.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use refrain_engine::{EngineRequest, GenerateOptions};
use refrain_text::Conversation;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::message::MessageHead;
use super::reasoning;
use super::{AnthropicRefusal, conversation, reply};
use crate::answer::AnswerFormat;
use crate::body;
use crate::error::{Body, Refusal};
use crate::exact_list::ExactList;
use crate::openai::options::GenerationFields;
use crate::openai::structure::{RequestedAnswer, ResponseFormat, of_format, requested_answer};
use crate::openai::tools::InputGrammars;
use crate::openapi::anthropic::{
    AnthropicMessage, AnthropicThinking, AnthropicTool, AnthropicToolChoice, OutputConfig, TextContent,
};
use crate::openapi::generation::ResponseFormatField;
use crate::prefill::Prefill;
use crate::served::{ServedModel, ServedModels};

/// A conversation to answer, or to count. Fields that change nothing here, such as `metadata`, are ignored.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct MessagesRequest {
    model: Option<String>,
    #[schemars(with = "Vec<AnthropicMessage>", length(min = 1))]
    messages: ExactList,
    /// A string, or blocks of text.
    #[schemars(with = "Option<TextContent>")]
    system: Option<Value>,
    #[schemars(with = "Option<Vec<AnthropicTool>>")]
    tools: Option<Vec<Value>>,
    #[schemars(with = "Option<AnthropicToolChoice>")]
    tool_choice: Option<Value>,
    #[schemars(with = "Option<AnthropicThinking>")]
    thinking: Option<Value>,
    stream: Option<bool>,
    /// Maximum number of tokens of the answer; -1 is no limit.
    #[schemars(with = "Option<i64>", range(min = -1))]
    max_tokens: Option<Value>,
    #[schemars(with = "Option<f32>", range(min = 0))]
    temperature: Option<Value>,
    /// 0 and less consider all tokens.
    #[schemars(with = "Option<i64>")]
    top_k: Option<Value>,
    #[schemars(with = "Option<f32>", range(min = 0, max = 1))]
    top_p: Option<Value>,
    #[schemars(length(max = 16))]
    stop_sequences: Option<Vec<String>>,
    #[schemars(with = "Option<OutputConfig>")]
    output_config: Option<Value>,
    /// The older name of `output_config.format`.
    #[schemars(with = "Option<ResponseFormatField>")]
    output_format: Option<Value>,
}

pub(crate) async fn messages(
    State(models): State<Arc<ServedModels>>,
    request: Result<Body<MessagesRequest>, Refusal>,
) -> Result<Response, AnthropicRefusal> {
    let Body(request) = request?;
    let model = models.named(request.model.as_deref())?;
    model.reserve()?;
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
        constraint: constraint.of_answer(),
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
        let options = fields.options(model).map_err(|refusal| match refusal {
            Refusal::Field { field, why } if field == "stop" => Refusal::field("stop_sequences", why),
            other => other,
        });
        Ok(options?.swap_remove(0))
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
    fn answer_form(&mut self, model: &ServedModel) -> Result<RequestedAnswer, Refusal> {
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
        requested_answer(
            model,
            tools,
            &InputGrammars::default(),
            Some(&choice),
            several,
            self.response_format()?,
        )
    }

    /// Renders the prompt. A last message of the assistant is the beginning of the answer.
    async fn prompt(mut self, model: &Arc<ServedModel>) -> Result<AnthropicPrompt, Refusal> {
        let RequestedAnswer { tools, constraint } = self.answer_form(model)?;
        let reasoning = reasoning::options(self.thinking.as_ref(), self.output_config.as_ref())?;
        let mut messages = conversation::read(self.system, self.messages.0)?;
        let prefill = Prefill::take(&mut messages);
        let conversation = Conversation {
            messages,
            tools,
            ..Conversation::default()
        };
        let (tokens, format) = model.render_with_effort(conversation, reasoning, prefill).await?;
        Ok(AnthropicPrompt {
            tokens,
            format,
            constraint,
        })
    }
}

/// Reads a body as [`messages`] does, up to where a model is needed.
#[cfg(feature = "fuzzing")]
pub(crate) fn exercise(request: MessagesRequest) -> Result<(), Refusal> {
    request.response_format()?;
    reasoning::options(request.thinking.as_ref(), request.output_config.as_ref())?;
    request.tools.map(conversation::tools).transpose()?;
    conversation::read(request.system, request.messages.0).map(drop)
}

/// A rendered prompt, and how the answer to it is read and constrained.
struct AnthropicPrompt {
    tokens: Vec<u32>,
    format: AnswerFormat,
    constraint: Option<ResponseFormat>,
}
