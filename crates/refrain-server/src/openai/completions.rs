//! `POST /v1/completions`: texts that go on from prompts.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use refrain_engine::{EngineRequest, Finish, PickedToken};
use refrain_text::Parted;
use serde::Deserialize;
use serde_json::{Value, json};

use super::likelihood;
use super::options::GenerationFields;
use super::reply::{self, ReplyForm, ReplyHead, finish_reason};
use crate::answer::TextOptions;
use crate::error::{Body, Refusal};
use crate::served::{ServedModel, ServedModels, another};

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
#[serde(untagged, expecting = "prompt is neither a text nor tokens, nor a list of these")]
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
    State(models): State<Arc<ServedModels>>,
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
    let model = models.named(generation.model.as_deref())?;
    let options = generation.options(&model)?;
    let likeliest = generation.likelihoods.of_completion()?;
    let text = TextOptions::default();
    let constraint = model.constraint(generation.structure.form()?, text).await?;
    let prompts = prompt.tokens(&model)?;
    let engine = model.engine().await?;
    let mut answers = vec![];
    for prompt in &prompts {
        for options in &options {
            let request = EngineRequest {
                likeliest,
                constraint: constraint.as_ref().map(another),
                ..EngineRequest::new(prompt.clone(), options.clone())
            };
            answers.push(model.ask(&engine, request, text)?);
        }
    }
    let head = ReplyHead {
        id: reply::new_id("cmpl"),
        created: model.now(),
        model: model.name.clone(),
        prompt_tokens: prompts.iter().map(Vec::len).sum(),
    };
    let form = PlainText { model };
    if generation.stream {
        Ok(reply::streamed(head, form, answers, generation.tells_usage()))
    } else {
        reply::whole(head, form, answers).await
    }
}

/// Text as it is.
#[derive(Clone)]
struct PlainText {
    model: Arc<ServedModel>,
}

/// A text so far.
#[derive(Default)]
struct Completion {
    text: String,
    told: Vec<PickedToken>,
    /// Tokens of those that were streamed, and the characters before the next.
    said: usize,
    offset: usize,
}

impl PlainText {
    /// What is said of the likelihoods of tokens that were not spoken of yet.
    fn likelihoods(&self, completion: &mut Completion) -> Value {
        let told = &completion.told[completion.said..];
        completion.said = completion.told.len();
        if told.is_empty() {
            Value::Null
        } else {
            likelihood::of_completion(&self.model, told, &mut completion.offset)
        }
    }
}

impl ReplyForm for PlainText {
    type Choice = Completion;

    fn push(&self, completion: &mut Completion, piece: Parted, told: Vec<PickedToken>) -> Vec<Value> {
        completion.text.push_str(&piece.answer);
        completion.told.extend(told);
        vec![said(&piece.answer, self.likelihoods(completion), None)]
    }

    fn finish(&self, completion: &mut Completion, told: Vec<PickedToken>) -> Vec<Value> {
        completion.told.extend(told);
        match self.likelihoods(completion) {
            Value::Null => vec![],
            likelihoods => vec![said("", likelihoods, None)],
        }
    }

    fn last(&self, _: &Completion, finish: Finish) -> Value {
        said("", Value::Null, Some(finish))
    }

    fn whole(&self, mut completion: Completion, finish: Finish) -> Value {
        (completion.said, completion.offset) = (0, 0);
        let likelihoods = self.likelihoods(&mut completion);
        said(&completion.text, likelihoods, Some(finish))
    }

    fn first(&self) -> Option<Value> {
        None
    }

    fn objects(&self) -> [&'static str; 2] {
        ["text_completion"; 2]
    }
}

fn said(text: &str, likelihoods: Value, finish: Option<Finish>) -> Value {
    json!({"text": text, "logprobs": likelihoods, "finish_reason": finish.map(finish_reason)})
}
