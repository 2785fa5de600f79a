//! `POST /v1/completions`: texts that go on from prompts.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use refrain_engine::Finish;
use refrain_text::Parted;
use serde::Deserialize;
use serde_json::{Value, json};

use super::options::GenerationFields;
use super::reply::{self, ReplyForm, ReplyHead, finish_reason};
use crate::answer::TextOptions;
use crate::error::{Body, Refusal};
use crate::served::ServedModel;

#[derive(Deserialize)]
pub(crate) struct CompletionRequest {
    prompt: PromptField,
    #[serde(default)]
    echo: bool,
    suffix: Option<String>,
    #[serde(flatten)]
    generation: GenerationFields,
}

/// A text or tokens, or several of them.
#[derive(Deserialize)]
#[serde(untagged)]
enum PromptField {
    Text(String),
    Tokens(Vec<u32>),
    Texts(Vec<String>),
    Several(Vec<Vec<u32>>),
}

impl PromptField {
    fn tokens(self, model: &ServedModel) -> Result<Vec<Vec<u32>>, Refusal> {
        let encoded = |text: String| Ok(model.tokenizer.encode(&text, true)?);
        match self {
            PromptField::Text(text) => Ok(vec![encoded(text)?]),
            PromptField::Tokens(tokens) => Ok(vec![tokens]),
            PromptField::Texts(texts) => texts.into_iter().map(encoded).collect(),
            PromptField::Several(prompts) => Ok(prompts),
        }
    }
}

pub(crate) async fn completions(
    State(model): State<Arc<ServedModel>>,
    Body(request): Body<CompletionRequest>,
) -> Result<Response, Refusal> {
    let CompletionRequest {
        prompt,
        echo,
        suffix,
        generation,
    } = request;
    if echo || suffix.is_some_and(|suffix| !suffix.is_empty()) {
        return Err(Refusal::field("echo", "echo and suffix are not supported"));
    }
    let options = generation.options(&model)?;
    let prompts = prompt.tokens(&model)?;
    let mut answers = vec![];
    for prompt in &prompts {
        for options in &options {
            answers.push(model.ask(prompt.clone(), options.clone(), TextOptions::default())?);
        }
    }
    let head = ReplyHead {
        id: reply::new_id("cmpl"),
        created: model.now(),
        model: model.name.clone(),
        prompt_tokens: prompts.iter().map(Vec::len).sum(),
    };
    match generation.stream {
        true => Ok(reply::streamed(head, PlainText, answers, generation.tells_usage())),
        false => reply::whole(head, PlainText, answers).await,
    }
}

/// Text as it is.
#[derive(Clone)]
struct PlainText;

impl ReplyForm for PlainText {
    type Choice = String;

    fn push(&self, choice: &mut String, piece: Parted) -> Vec<Value> {
        choice.push_str(&piece.answer);
        vec![said(&piece.answer, None)]
    }

    fn finish(&self, _: &mut String) -> Vec<Value> {
        vec![]
    }

    fn last(&self, _: &String, finish: Finish) -> Value {
        said("", Some(finish))
    }

    fn whole(&self, choice: String, finish: Finish) -> Value {
        said(&choice, Some(finish))
    }

    fn first(&self) -> Option<Value> {
        None
    }

    fn objects(&self) -> [&'static str; 2] {
        ["text_completion"; 2]
    }
}

fn said(text: &str, finish: Option<Finish>) -> Value {
    json!({"text": text, "logprobs": null, "finish_reason": finish.map(finish_reason)})
}
