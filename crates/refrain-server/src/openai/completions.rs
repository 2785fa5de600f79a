//! `POST /v1/completions`: texts that continue prompts.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use refrain_engine::{EngineRequest, GenerateOptions};
use serde::Deserialize;

use super::completion::{Completion, CompletionForm};
use super::constraints::ForcedTokens;
use super::options::GenerationFields;
use super::pending::PendingAnswer;
use super::reply::{self, ReplyHead};
use crate::answer::AnswerFormat;
use crate::error::{Body, Refusal};
use crate::served::{ServedModel, ServedModels};
use crate::tokenize::TextLimit;

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
#[serde(
    untagged,
    expecting = "prompt must be a string or a list of token ids, or a list of these"
)]
pub(super) enum PromptField {
    Text(String),
    Tokens(Vec<u32>),
    Texts(Vec<String>),
    Several(Vec<Vec<u32>>),
}

impl PromptField {
    /// Returns the tokens of each prompt.
    ///
    /// # Errors
    /// If a text is too long, or the tokenizer cannot represent it.
    pub async fn tokens(self, model: &Arc<ServedModel>) -> Result<Vec<Vec<u32>>, Refusal> {
        match self {
            PromptField::Text(text) => model.encode(vec![text], true, TextLimit::Context).await,
            PromptField::Tokens(tokens) => Ok(vec![tokens]),
            PromptField::Texts(texts) => model.encode(texts, true, TextLimit::Context).await,
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
    if suffix.is_some_and(|suffix| !suffix.is_empty()) {
        return Err(Refusal::field(
            "suffix",
            "inserting text before a suffix is not supported",
        ));
    }
    let model = models.named(generation.model.as_deref())?;
    let options = generation.options(&model)?;
    let top_logprobs = generation.logprobs.of_completion()?;
    let scores = echo && top_logprobs.is_some();
    let structure = generation.structure.form()?;
    if scores && (structure.is_some() || options.iter().any(|options| !options.stop_strings.is_empty())) {
        let why = "echo with logprobs cannot be combined with stop strings or structured output";
        return Err(Refusal::field("echo", why));
    }
    let format = AnswerFormat::default();
    let constraint = model.constraint(structure, &format).await?;
    let mut prompts = prompt.tokens(&model).await?;
    for prompt in &mut prompts {
        generation.truncate(prompt, &model);
        check_length(prompt, &model)?;
    }
    let engine = Arc::new(model.engine().await?);
    let (mut answers, mut begun, mut echoed_tokens) = (vec![], vec![], 0);
    for prompt in &prompts {
        for options in &options {
            let (request, completion) = if scores {
                echoed_tokens += prompt.len() - 1;
                (forced(prompt, options), Completion::of_token(prompt[0]))
            } else {
                let echoed = if echo {
                    model.tokenizer.decode(prompt, true)?
                } else {
                    String::new()
                };
                let request = generation.request(prompt.clone(), options.clone(), constraint.as_ref());
                (request, Completion::of_text(echoed))
            };
            begun.push(completion);
            answers.push(PendingAnswer {
                model: model.clone(),
                engine: engine.clone(),
                request: EngineRequest {
                    top_logprobs,
                    ..request
                },
                format: format.clone(),
            });
        }
    }
    let head = ReplyHead {
        id: reply::new_id("cmpl"),
        created: model.now(),
        model: model.name.clone(),
        prompt_tokens: prompts.iter().map(Vec::len).sum(),
        echoed_tokens,
    };
    let form = CompletionForm {
        model,
        begun: begun.into(),
    };
    if generation.stream {
        reply::streamed(head, form, answers, generation.include_usage)
    } else {
        reply::whole(head, form, answers).await
    }
}

/// Returns a request that generates all tokens of a prompt but the first, and then the answer: so each has
/// log-probabilities. The constraint ends the answer, because a prompt may contain the tokens that end one.
fn forced(prompt: &[u32], options: &GenerateOptions) -> EngineRequest {
    let forced = prompt[1..].to_vec();
    let max_tokens = options.max_tokens.map(|limit| limit.saturating_add(forced.len()));
    let constraint = ForcedTokens::boxed(forced, options.stop_ids.clone());
    let options = GenerateOptions {
        max_tokens,
        stop_ids: vec![],
        ..options.clone()
    };
    EngineRequest {
        constraint: Some(constraint),
        ..EngineRequest::new(prompt[..1].to_vec(), options)
    }
}

/// Refuses a prompt before those that come before it are computed.
fn check_length(prompt: &[u32], model: &ServedModel) -> Result<(), Refusal> {
    use refrain_engine::Error;
    match prompt.len() {
        0 => Err(Error::EmptyPrompt.into()),
        length if length >= model.context => Err(Error::ContextFull {
            tokens: length + 1,
            context: model.context,
        }
        .into()),
        _ => Ok(()),
    }
}
