//! `POST /v1/chat/completions`: answers to conversations.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use refrain_engine::Finish;
use refrain_text::{Conversation, Parted};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::options::GenerationFields;
use super::reply::{self, ReplyForm, ReplyHead, finish_reason};
use crate::error::{Body, Refusal};
use crate::messages;
use crate::served::ServedModel;
use crate::tools::{CallSplitter, CallsAndText};

#[derive(Deserialize)]
pub(crate) struct ChatRequest {
    messages: Vec<Value>,
    tools: Option<Vec<Value>>,
    tool_choice: Option<Value>,
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
    State(model): State<Arc<ServedModel>>,
    Body(request): Body<ChatRequest>,
) -> Result<Response, Refusal> {
    let options = request.generation.options(&model)?;
    let tools = request.tools.filter(|tools| !tools.is_empty());
    let tools = match request.tool_choice.as_ref().map(|choice| choice.as_str()) {
        None | Some(Some("auto")) => tools,
        Some(Some("none")) => None,
        _ => {
            return Err(Refusal::field(
                "tool_choice",
                "only \"auto\" and \"none\" are supported",
            ));
        }
    };
    let form = ChatForm { calls: tools.is_some() };
    let conversation = Conversation {
        messages: messages::read(request.messages)?,
        tools,
        documents: None,
        variables: request.chat_template_kwargs,
    };
    let (prompt, text) = model.conversed(conversation, request.think).await?;
    let head = ReplyHead {
        id: reply::new_id("chatcmpl"),
        created: model.now(),
        model: model.name.clone(),
        prompt_tokens: prompt.len(),
    };
    let answers = options
        .into_iter()
        .map(|options| model.ask(prompt.clone(), options, text));
    let answers = answers.collect::<Result<Vec<_>, _>>()?;
    match request.generation.stream {
        true => Ok(reply::streamed(head, form, answers, request.generation.tells_usage())),
        false => reply::whole(head, form, answers).await,
    }
}

/// Messages of the assistant.
#[derive(Clone)]
struct ChatForm {
    /// Whether the model may call functions.
    calls: bool,
}

/// A message so far.
#[derive(Default)]
struct Message {
    content: String,
    reasoning: String,
    calls: Vec<Value>,
    splitter: CallSplitter,
}

impl ChatForm {
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

    fn push(&self, message: &mut Message, piece: Parted) -> Vec<Value> {
        let mut news = vec![];
        if !piece.reasoning.is_empty() {
            message.reasoning.push_str(&piece.reasoning);
            news.push(delta(json!({"reasoning_content": piece.reasoning})));
        }
        let found = match self.calls {
            true => message.splitter.push(&piece.answer),
            false => CallsAndText {
                text: piece.answer,
                calls: vec![],
            },
        };
        news.extend(self.take(message, found));
        news
    }

    fn finish(&self, message: &mut Message) -> Vec<Value> {
        let held = message.splitter.finish();
        self.take(message, held)
    }

    fn last(&self, message: &Message, finish: Finish) -> Value {
        json!({"delta": {}, "finish_reason": reason(message, finish)})
    }

    fn whole(&self, message: Message, finish: Finish) -> Value {
        let reason = reason(&message, finish);
        let has_text = !message.content.is_empty() || message.calls.is_empty();
        let mut json = json!({"role": "assistant", "content": has_text.then_some(&message.content)});
        if !message.reasoning.is_empty() {
            json["reasoning_content"] = message.reasoning.into();
        }
        if !message.calls.is_empty() {
            json["tool_calls"] = message.calls.into();
        }
        json!({"message": json, "logprobs": null, "finish_reason": reason})
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
