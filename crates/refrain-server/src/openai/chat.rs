//! `POST /v1/chat/completions`: answers to conversations.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use refrain_engine::EngineRequest;
use refrain_text::{Conversation, ReasoningOptions};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::message::ChatForm;
use super::options::GenerationFields;
use super::pending::PendingAnswer;
use super::reply::{self, ReplyHead};
use super::structure::{self, AnswerForm};
use super::tools::ToolSet;
use crate::answer::AnswerFormat;
use crate::error::{Body, Refusal};
use crate::messages;
use crate::prefill::Prefill;
use crate::served::{ServedModel, ServedModels};

#[derive(Deserialize)]
pub(crate) struct ChatRequest {
    messages: Vec<Value>,
    tools: Option<Vec<Value>>,
    tool_choice: Option<Value>,
    /// The names of `tools` and `tool_choice` in older clients. Calls are then written in the older way, too.
    functions: Option<Vec<Value>>,
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

/// The fields by which clients switch reasoning.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct ReasoningFields {
    /// Whether the model reasons before it answers.
    think: Option<bool>,
    enable_thinking: Option<bool>,
    reasoning_effort: Option<String>,
    reasoning: Option<NestedReasoning>,
}

/// `reasoning` of the Responses API, and of chats by way of routers.
#[derive(Debug, Default, Deserialize)]
struct NestedReasoning {
    enabled: Option<bool>,
    effort: Option<String>,
}

impl ReasoningFields {
    /// Returns the options of reasoning. Switches among the template's variables count, too.
    pub fn options(&self, variables: &Map<String, Value>) -> ReasoningOptions {
        let nested = self.reasoning.as_ref();
        let effort = self.reasoning_effort.clone();
        let effort = effort.or_else(|| nested?.effort.clone());
        let switches = ["enable_thinking", "thinking"].into_iter();
        let variable = switches.filter_map(|name| variables.get(name)?.as_bool()).next();
        let enabled = self
            .think
            .or(self.enable_thinking)
            .or_else(|| nested?.enabled)
            .or(variable);
        match effort {
            Some(effort) if effort == "none" => ReasoningOptions::switched(enabled.or(Some(false))),
            effort => ReasoningOptions { enabled, effort },
        }
    }
}

pub(crate) async fn chat(
    State(models): State<Arc<ServedModels>>,
    Body(request): Body<ChatRequest>,
) -> Result<Response, Refusal> {
    let model = models.named(request.generation.model.as_deref())?;
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
    let answers = options.into_iter().map(|options| PendingAnswer {
        model: model.clone(),
        engine: engine.clone(),
        request: EngineRequest {
            top_logprobs,
            ..generation.request(prompt.clone(), options, constraint.as_ref())
        },
        format: format.clone(),
    });
    let answers = answers.collect();
    if generation.stream {
        reply::streamed(head, form, answers, generation.include_usage)
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
        let AnswerForm {
            tools: functions,
            constraint,
        } = structure::answer_form(model, tools.functions(), choice.as_ref(), several, structure)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn options(fields: Value, variables: Value) -> ReasoningOptions {
        let fields: ReasoningFields = serde_json::from_value(fields).unwrap();
        let Value::Object(variables) = variables else {
            unreachable!()
        };
        fields.options(&variables)
    }

    #[test]
    fn reasoning_is_switched_by_all_names() {
        let effort = |effort: &str| ReasoningOptions {
            enabled: None,
            effort: Some(effort.to_owned()),
        };
        assert_eq!(options(json!({}), json!({})), ReasoningOptions::default());
        assert_eq!(options(json!({"reasoning_effort": "high"}), json!({})), effort("high"));
        assert_eq!(
            options(json!({"reasoning": {"effort": "low"}}), json!({})),
            effort("low")
        );
        for (fields, variables) in [
            (json!({"reasoning_effort": "none"}), json!({})),
            (json!({"enable_thinking": false}), json!({})),
            (json!({"think": false, "enable_thinking": true}), json!({})),
            (json!({"reasoning": {"enabled": false}}), json!({})),
            (json!({}), json!({"enable_thinking": false})),
        ] {
            assert_eq!(options(fields, variables), ReasoningOptions::switched(Some(false)));
        }
    }
}
