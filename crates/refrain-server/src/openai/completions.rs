//! `POST /v1/completions`: texts that continue prompts.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use refrain_engine::{EngineRequest, PromptOutputs};
use schemars::JsonSchema;
use serde::Deserialize;

use super::completion::{Completion, CompletionForm};
use super::options::GenerationFields;
use super::pending::{self, PendingAnswer};
use super::reply::{self, ReplyHead};
use crate::answer::AnswerFormat;
use crate::error::{Body, Refusal};
use crate::fill::Gap;
use crate::served::{ServedModel, ServedModels};
use crate::tokenize::TextLimit;

/// Texts to continue.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct CompletionRequest {
    prompt: PromptField,
    #[serde(default)]
    echo: bool,
    suffix: Option<String>,
    #[serde(flatten)]
    generation: GenerationFields,
}

/// A text or tokens, or several of them.
#[derive(Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "prompt must be a string or a list of token ids, or a list of these"
)]
enum PromptField {
    Text(#[schemars(length(min = 1))] String),
    Tokens(#[schemars(length(min = 1))] Vec<u32>),
    Texts(#[schemars(length(min = 1), inner(length(min = 1)))] Vec<String>),
    Several(#[schemars(length(min = 1), inner(length(min = 1)))] Vec<Vec<u32>>),
}

impl PromptField {
    /// Returns the tokens of each prompt.
    ///
    /// # Errors
    /// If a text is too long, or the tokenizer cannot represent it.
    async fn tokens(self, model: &Arc<ServedModel>) -> Result<Vec<Vec<u32>>, Refusal> {
        match self {
            PromptField::Text(text) => model.encode(vec![text], true, TextLimit::Context).await,
            PromptField::Tokens(tokens) => Ok(vec![tokens]),
            PromptField::Texts(texts) => model.encode(texts, true, TextLimit::Context).await,
            PromptField::Several(prompts) => Ok(prompts),
        }
    }

    /// The prompts as they were written; nothing for tokens.
    fn texts(&self) -> Vec<String> {
        match self {
            PromptField::Text(text) => vec![text.clone()],
            PromptField::Texts(texts) => texts.clone(),
            PromptField::Tokens(_) | PromptField::Several(_) => vec![],
        }
    }

    /// Returns the prompt that asks for the text between this one and `suffix`, and the tokens that end the answer.
    async fn before(
        self,
        suffix: String,
        echo: bool,
        model: &Arc<ServedModel>,
    ) -> Result<(Vec<Vec<u32>>, Vec<u32>), Refusal> {
        let PromptField::Text(prefix) = self else {
            return Err(Refusal::field("suffix", "the prompt must be one string"));
        };
        if echo {
            return Err(Refusal::field("suffix", "cannot be combined with echo"));
        }
        let gap = Gap {
            prefix,
            suffix,
            ..Gap::default()
        };
        let filled = model.fill_prompt(gap, "suffix").await?;
        Ok((vec![filled.tokens], filled.ends))
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
    let model = models.named(generation.model.as_deref())?;
    model.reserve()?;
    let mut options = generation.options(&model)?;
    let top_logprobs = generation.logprobs.of_completion()?;
    let scores = echo && top_logprobs.is_some();
    let structure = generation.structure.form()?;
    let format = AnswerFormat::default();
    let constraint = model.constraint(structure, &format).await?;
    let written = if echo { prompt.texts() } else { vec![] };
    let (mut prompts, ends) = match suffix.filter(|suffix| !suffix.is_empty()) {
        None => (prompt.tokens(&model).await?, vec![]),
        Some(suffix) => prompt.before(suffix, echo, &model).await?,
    };
    options.iter_mut().for_each(|options| options.stop_ids.extend(&ends));
    pending::check_count(prompts.len(), options.len())?;
    let lengths: Vec<usize> = prompts.iter().map(Vec::len).collect();
    check_lengths(&mut prompts, &generation, &model)?;
    let engine = Arc::new(model.engine().await?);
    // Before any is computed.
    prompts.iter().try_for_each(|prompt| engine.check_ids(prompt))?;
    let (stream, include_usage) = (generation.stream, generation.include_usage);
    let (generation, constraint) = (Arc::new(generation), Arc::new(constraint));
    let (mut answers, mut begun) = (vec![], vec![]);
    for (index, prompt) in prompts.iter().enumerate() {
        // What is left of a prompt that was truncated is not what was written.
        let is_whole = prompt.len() == lengths[index];
        let text = match written.get(index).filter(|_| is_whole) {
            Some(text) => text.clone(),
            None if echo => model.decode(prompt.clone(), false).await?,
            None => String::new(),
        };
        let begin = if scores {
            Completion::of_scored(text, prompt)
        } else {
            Completion::of_text(text)
        };
        for options in &options {
            begun.push(begin.clone());
            let (generation, constraint) = (generation.clone(), constraint.clone());
            let (prompt, options) = (prompt.clone(), options.clone());
            let request = move || {
                let request = EngineRequest {
                    top_logprobs,
                    ..generation.request(prompt, options, &constraint)
                };
                if scores { scored(request) } else { request }
            };
            answers.push(PendingAnswer {
                model: model.clone(),
                engine: engine.clone(),
                request: Box::new(request),
                format: format.clone(),
            });
        }
    }
    let prompt_tokens = prompts.iter().map(Vec::len).sum();
    let echoed_tokens = options.len() * (prompt_tokens - prompts.len());
    let head = ReplyHead {
        id: reply::new_id("cmpl"),
        created: model.now(),
        model: model.name.clone(),
        prompt_tokens,
        echoed_tokens: if scores { echoed_tokens } else { 0 },
    };
    let form = CompletionForm {
        model,
        begun: begun.into(),
    };
    if stream {
        reply::streamed(head, form, answers, include_usage)
    } else {
        reply::whole(head, form, answers).await
    }
}

/// Has a request report the log-probabilities of its prompt's tokens but the first, as if they were generated.
fn scored(mut request: EngineRequest) -> EngineRequest {
    request.options.stop_strings_after += request.prompt.len() - 1;
    EngineRequest {
        prompt_outputs: Some(PromptOutputs::Logprobs { from: 0 }),
        ..request
    }
}

/// Truncates prompts as the request wants, and refuses those that are too long before any is computed.
fn check_lengths(prompts: &mut [Vec<u32>], generation: &GenerationFields, model: &ServedModel) -> Result<(), Refusal> {
    use refrain_engine::Error;
    let context = model.context;
    for prompt in prompts {
        generation.truncate(prompt, model);
        let tokens = prompt.len() + 1;
        match prompt.len() {
            0 => return Err(Error::EmptyPrompt.into()),
            length if length >= context => return Err(Error::ContextFull { tokens, context }.into()),
            _ => {}
        }
    }
    Ok(())
}
