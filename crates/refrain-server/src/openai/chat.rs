//! `POST /v1/chat/completions`: answers to conversations.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use refrain_engine::EngineRequest;
use refrain_text::Conversation;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::message::ChatForm;
use super::options::GenerationFields;
use super::pending::PendingAnswer;
use super::reasoning::ReasoningFields;
use super::reply::{self, ReplyHead};
use super::structure::{self, RequestedAnswer};
use super::tools::ToolSet;
use crate::answer::AnswerFormat;
use crate::error::{Body, Refusal};
use crate::messages;
use crate::openapi::messages::{ChatMessage, ChatTool, FunctionDescription, ToolChoiceField};
use crate::prefill::Prefill;
use crate::served::{ServedModel, ServedModels};

/// A conversation to answer.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct ChatRequest {
    #[schemars(with = "Vec<ChatMessage>", length(min = 1))]
    messages: Vec<Value>,
    #[schemars(with = "Option<Vec<ChatTool>>")]
    tools: Option<Vec<Value>>,
    #[schemars(with = "Option<ToolChoiceField>")]
    tool_choice: Option<Value>,
    /// The names of `tools` and `tool_choice` in older clients. Calls are then written in the older way, too.
    #[schemars(with = "Option<Vec<FunctionDescription>>")]
    functions: Option<Vec<Value>>,
    #[schemars(with = "Option<ToolChoiceField>")]
    function_call: Option<Value>,
    parallel_tool_calls: Option<bool>,
    /// Texts for templates that answer from documents, as vLLM takes them.
    documents: Option<Vec<Value>>,
    /// Variables of the chat template, as vLLM and llama-server take them.
    #[serde(default)]
    chat_template_kwargs: Map<String, Value>,
    #[serde(flatten)]
    reasoning: ReasoningFields,
    /// Whether the last message, which is the assistant's, is continued.
    #[serde(default)]
    continue_final_message: bool,
    add_generation_prompt: Option<bool>,
    #[serde(flatten)]
    generation: GenerationFields,
}

pub(crate) async fn chat(
    State(models): State<Arc<ServedModels>>,
    Body(request): Body<ChatRequest>,
) -> Result<Response, Refusal> {
    let model = models.named(request.generation.model.as_deref())?;
    model.reserve()?;
    let ChatPrompt {
        tokens: prompt,
        format,
        constraint,
        form,
        generation,
    } = request.prompt(&model).await?;
    let options = generation.options(&model)?;
    let top_logprobs = generation.logprobs.of_chat()?;
    let constraint = model.constraint(constraint, &format).await?;
    let head = ReplyHead {
        id: reply::new_id("chatcmpl"),
        created: model.now(),
        model: model.name.clone(),
        prompt_tokens: prompt.len(),
        echoed_tokens: 0,
    };
    let engine = Arc::new(model.engine().await?);
    let (stream, include_usage) = (generation.stream, generation.include_usage);
    let (generation, constraint) = (Arc::new(generation), Arc::new(constraint));
    let answers = options.into_iter().map(|options| {
        let (generation, constraint, prompt) = (generation.clone(), constraint.clone(), prompt.clone());
        PendingAnswer {
            model: model.clone(),
            engine: engine.clone(),
            request: Box::new(move || EngineRequest {
                top_logprobs,
                ..generation.request(prompt, options, &constraint)
            }),
            format: format.clone(),
        }
    });
    let answers = answers.collect();
    if stream {
        reply::streamed(head, form, answers, include_usage)
    } else {
        reply::whole(head, form, answers).await
    }
}

/// A chat that was rendered.
pub(crate) struct ChatPrompt {
    pub tokens: Vec<u32>,
    format: AnswerFormat,
    constraint: Option<structure::ResponseFormat>,
    form: ChatForm,
    generation: GenerationFields,
}

impl ChatRequest {
    /// Returns the model that is asked for.
    pub fn model(&self) -> Option<&str> {
        self.generation.model.as_deref()
    }

    /// Renders the conversation.
    ///
    /// # Errors
    /// If a field is invalid, or the template refuses the conversation.
    pub async fn prompt(self, model: &Arc<ServedModel>) -> Result<ChatPrompt, Refusal> {
        // Values out of their ranges are refused before anything is rendered.
        self.generation.options(model)?;
        self.generation.logprobs.of_chat()?;
        let is_legacy = self.functions.is_some() && self.tools.is_none();
        let (tools, choice) = match self.functions.filter(|_| is_legacy) {
            Some(functions) => (Some(wrapped(functions)), self.function_call),
            None => (self.tools, self.tool_choice),
        };
        let tools = ToolSet::of_chat(tools.unwrap_or_default())?;
        let several = self.parallel_tool_calls.unwrap_or(!is_legacy);
        let structure = self.generation.structure.form()?;
        let RequestedAnswer {
            tools: functions,
            constraint,
        } = structure::requested_answer(
            model,
            tools.functions(),
            tools.inputs(),
            choice.as_ref(),
            several,
            structure,
        )?;
        let mut messages = messages::read(self.messages)?;
        let prefill = match (self.continue_final_message, self.add_generation_prompt) {
            (false, None | Some(true)) => None,
            (true, Some(true)) => {
                let why = "cannot be combined with add_generation_prompt";
                return Err(Refusal::field("continue_final_message", why));
            }
            (true, _) => Some(Prefill::take(&mut messages).ok_or_else(|| {
                let why = "the last message must be the assistant's, without tool calls";
                Refusal::field("continue_final_message", why)
            })?),
            (false, Some(false)) => {
                let why = "false is supported with continue_final_message only";
                return Err(Refusal::field("add_generation_prompt", why));
            }
        };
        let reasoning = self.reasoning.options(&self.chat_template_kwargs);
        let conversation = Conversation {
            messages,
            tools: functions,
            documents: self.documents,
            variables: self.chat_template_kwargs,
        };
        let (mut tokens, format) = model.render_prefilled(conversation, reasoning, prefill).await?;
        self.generation.truncate(&mut tokens, model);
        Ok(ChatPrompt {
            tokens,
            format,
            constraint,
            form: ChatForm {
                model: model.clone(),
                tools: Arc::new(tools),
                several,
                is_legacy,
            },
            generation: self.generation,
        })
    }
}

/// Describes functions as tools.
fn wrapped(functions: Vec<Value>) -> Vec<Value> {
    let tool = |function: Value| json!({"type": "function", "function": function});
    functions.into_iter().map(tool).collect()
}
