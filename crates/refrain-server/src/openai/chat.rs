//! `POST /v1/chat/completions`: answers to conversations.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use refrain_engine::{EngineRequest, Finish, PickedToken};
use refrain_text::{Conversation, Parted};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::likelihood;
use super::options::GenerationFields;
use super::reply::{self, ReplyForm, ReplyHead, finish_reason};
use super::structure::{self, AnswerForm};
use crate::error::{Body, Refusal};
use crate::messages;
use crate::served::{ServedModel, ServedModels, another};
use crate::tools::{CallSplitter, CallsAndText};

#[derive(Deserialize)]
pub(crate) struct ChatRequest {
    messages: Vec<Value>,
    tools: Option<Vec<Value>>,
    tool_choice: Option<Value>,
    parallel_tool_calls: Option<bool>,
    /// Variables of the chat template, as vLLM and llama-server take them.
    #[serde(default)]
    chat_template_kwargs: Map<String, Value>,
    /// Whether the model thinks first.
    #[serde(alias = "enable_thinking")]
    think: Option<bool>,
    #[serde(flatten)]
    generation: GenerationFields,
}

pub(crate) async fn chat(
    State(models): State<Arc<ServedModels>>,
    Body(request): Body<ChatRequest>,
) -> Result<Response, Refusal> {
    let model = models.named(request.generation.model.as_deref())?;
    let options = request.generation.options(&model)?;
    let AnswerForm { tools, constraint } = structure::answer_form(
        request.tools,
        request.tool_choice.as_ref(),
        request.parallel_tool_calls.unwrap_or(true),
        request.generation.structure.form()?,
    )?;
    let likeliest = request.generation.likelihoods.of_chat()?;
    let form = ChatForm {
        calls: tools.is_some(),
        model: model.clone(),
    };
    let conversation = Conversation {
        messages: messages::read(request.messages)?,
        tools,
        documents: None,
        variables: request.chat_template_kwargs,
    };
    let (prompt, text) = model.conversed(conversation, request.think).await?;
    let constraint = model.constraint(constraint, text).await?;
    let head = ReplyHead {
        id: reply::new_id("chatcmpl"),
        created: model.now(),
        model: model.name.clone(),
        prompt_tokens: prompt.len(),
    };
    let engine = model.engine().await?;
    let answers = options.into_iter().map(|options| {
        let request = EngineRequest {
            likeliest,
            constraint: constraint.as_ref().map(another),
            ..EngineRequest::new(prompt.clone(), options)
        };
        model.ask(&engine, request, text)
    });
    let answers = answers.collect::<Result<Vec<_>, _>>()?;
    if request.generation.stream {
        Ok(reply::streamed(head, form, answers, request.generation.tells_usage()))
    } else {
        reply::whole(head, form, answers).await
    }
}

/// Messages of the assistant.
#[derive(Clone)]
struct ChatForm {
    /// Whether the model may call functions.
    calls: bool,
    model: Arc<ServedModel>,
}

/// A message so far.
#[derive(Default)]
struct Message {
    content: String,
    reasoning: String,
    calls: Vec<Value>,
    splitter: CallSplitter,
    /// How likely its tokens were, and how many of them were streamed.
    likelihoods: Vec<Value>,
    said: usize,
}

impl Message {
    /// What is said of the likelihoods of tokens that were not spoken of yet.
    fn likelihoods(&mut self) -> Value {
        let told = &self.likelihoods[self.said..];
        self.said = self.likelihoods.len();
        if told.is_empty() {
            Value::Null
        } else {
            json!({"content": told, "refusal": null})
        }
    }
}

impl ChatForm {
    /// News with the likelihoods of the tokens up to them.
    fn tell(&self, message: &mut Message, told: &[PickedToken], mut news: Vec<Value>) -> Vec<Value> {
        let entries = told.iter().map(|token| likelihood::of_chat(&self.model, token));
        message.likelihoods.extend(entries);
        if let Some(first) = news.first_mut().filter(|_| message.said < message.likelihoods.len()) {
            first["logprobs"] = message.likelihoods();
        }
        news
    }

    fn take(&self, message: &mut Message, found: CallsAndText) -> Vec<Value> {
        let mut news = vec![];
        // Blanks before a call, or instead of text, are not worth a word.
        let is_blank = self.calls && message.content.is_empty() && found.text.trim().is_empty();
        if !found.text.is_empty() && !is_blank {
            message.content.push_str(&found.text);
            news.push(delta(json!({"content": found.text})));
        }
        for call in &found.calls {
            let (name, arguments) = call;
            let function = json!({"name": name, "arguments": arguments});
            let call = json!({"id": reply::new_id("call"), "type": "function", "function": function});
            let mut said = call.clone();
            said["index"] = message.calls.len().into();
            message.calls.push(call);
            news.push(delta(json!({"tool_calls": [said]})));
        }
        news
    }
}

impl ReplyForm for ChatForm {
    type Choice = Message;

    fn push(&self, message: &mut Message, piece: Parted, told: Vec<PickedToken>) -> Vec<Value> {
        let mut news = vec![];
        if !piece.reasoning.is_empty() {
            message.reasoning.push_str(&piece.reasoning);
            news.push(delta(json!({"reasoning_content": piece.reasoning})));
        }
        let found = if self.calls {
            message.splitter.push(&piece.answer)
        } else {
            CallsAndText {
                text: piece.answer,
                calls: vec![],
            }
        };
        news.extend(self.take(message, found));
        self.tell(message, &told, news)
    }

    fn finish(&self, message: &mut Message, told: Vec<PickedToken>) -> Vec<Value> {
        let held = message.splitter.finish();
        let mut news = self.take(message, held);
        if news.is_empty() && message.said < message.likelihoods.len() + told.len() {
            news.push(delta(json!({})));
        }
        self.tell(message, &told, news)
    }

    fn last(&self, message: &Message, finish: Finish) -> Value {
        json!({"delta": {}, "finish_reason": reason(message, finish)})
    }

    fn whole(&self, mut message: Message, finish: Finish) -> Value {
        message.said = 0;
        let likelihoods = message.likelihoods();
        let reason = reason(&message, finish);
        let has_text = !message.content.is_empty() || message.calls.is_empty();
        let mut json = json!({"role": "assistant", "content": has_text.then_some(&message.content)});
        if !message.reasoning.is_empty() {
            json["reasoning_content"] = message.reasoning.into();
        }
        if !message.calls.is_empty() {
            json["tool_calls"] = message.calls.into();
        }
        json!({"message": json, "logprobs": likelihoods, "finish_reason": reason})
    }

    fn first(&self) -> Option<Value> {
        Some(delta(json!({"role": "assistant", "content": ""})))
    }

    fn objects(&self) -> [&'static str; 2] {
        ["chat.completion.chunk", "chat.completion"]
    }
}

fn delta(delta: Value) -> Value {
    json!({"delta": delta, "finish_reason": null})
}

fn reason(message: &Message, finish: Finish) -> &'static str {
    match message.calls.is_empty() {
        false if finish_reason(finish) == "stop" => "tool_calls",
        _ => finish_reason(finish),
    }
}
