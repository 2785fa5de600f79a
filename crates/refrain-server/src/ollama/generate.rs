//! `POST /api/generate`: an answer to one prompt, or the continuation of a raw text.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::State;
use axum::response::Response;
use refrain_engine::EngineRequest;
use refrain_text::Conversation;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::options::OllamaFields;
use super::partial::Partial;
use super::refusal::OllamaRefusal;
use super::reply::OllamaReply;
use crate::answer::AnswerFormat;
use crate::error::{Body, Refusal};
use crate::fill::Gap;
use crate::served::{ServedModel, ServedModels};
use crate::tokenize::TextLimit;

/// A prompt to answer, or a text to continue. Without a prompt, the model is loaded or unloaded.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct GenerateRequest {
    prompt: Option<String>,
    system: Option<String>,
    /// Inserting text is not supported: it must be absent or empty.
    #[schemars(length(max = 0))]
    suffix: Option<String>,
    /// Must be absent or empty: set `raw` and render the prompt.
    #[schemars(length(max = 0))]
    template: Option<String>,
    /// Images are refused.
    #[schemars(with = "Option<Vec<String>>", length(max = 0))]
    images: Option<Vec<Value>>,
    /// Whether the prompt is taken as it is, without the chat template.
    raw: Option<bool>,
    /// Tokens of the conversation so far, as the answer before returned them.
    context: Option<Vec<u32>>,
    #[serde(flatten)]
    fields: OllamaFields,
}

pub(crate) async fn generate(
    State(models): State<Arc<ServedModels>>,
    request: Result<Body<GenerateRequest>, Refusal>,
) -> Result<Response, OllamaRefusal> {
    let (begin, Body(request)) = (Instant::now(), request?);
    let model = request.fields.model.model(&models)?;
    let mut options = request.fields.options(&model)?;
    let top_logprobs = request.fields.top_logprobs()?;
    let format = request.fields.response_format()?;
    request.check()?;
    let mut reply = OllamaReply::new(model.clone(), begin, response);
    if request.prompt.as_ref().is_none_or(String::is_empty) {
        return reply.loaded(&request.fields.model).await;
    }
    if request.raw != Some(true) {
        reply = reply.with_context();
    }
    model.reserve()?;
    let (prompt, answer_format, ends) = request.render(&model).await?;
    options.stop_ids.extend(ends);
    let constraint = model.constraint(format, &answer_format).await?;
    let request_to_engine = EngineRequest {
        top_logprobs,
        constraint: constraint.of_answer(),
        ..EngineRequest::new(prompt, options)
    };
    reply.send(&request.fields, request_to_engine, answer_format).await
}

impl GenerateRequest {
    /// Checks for fields that are not supported. Ollama's own programs send them empty.
    fn check(&self) -> Result<(), Refusal> {
        let is_given = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
        let refuse = |field: &'static str, why: &str| Err(Refusal::field(field, why));
        if is_given(&self.template) {
            return refuse(
                "template",
                "a template of the request is not supported; set `raw` and render the prompt",
            );
        }
        if self.images.as_ref().is_some_and(|images| !images.is_empty()) {
            return refuse("images", "only text is supported");
        }
        Ok(())
    }

    /// Returns the prompt's tokens behind those of the conversation so far, how the answer is read, and which tokens end
    /// it beside the model's own.
    async fn render(&self, model: &Arc<ServedModel>) -> Result<(Vec<u32>, AnswerFormat, Vec<u32>), Refusal> {
        let text = self.prompt.clone().unwrap_or_default();
        if let Some(suffix) = self.suffix.clone().filter(|suffix| !suffix.is_empty()) {
            let gap = Gap {
                prefix: text,
                suffix,
                ..Gap::default()
            };
            let filled = model.fill_prompt(gap, "suffix").await?;
            return Ok((filled.tokens, AnswerFormat::default(), filled.ends));
        }
        let (prompt, format) = if self.raw == Some(true) || !model.converses() {
            let mut tokens = model.encode(vec![text], true, TextLimit::Context).await?;
            (tokens.pop().unwrap_or_default(), AnswerFormat::default())
        } else {
            let system = self.system.as_deref().filter(|text| !text.is_empty());
            let conversation = Conversation::from_prompt(system, &text);
            model
                .render_with_effort(conversation, self.fields.reasoning()?, None)
                .await?
        };
        Ok((
            joined(
                self.context.as_deref().unwrap_or_default(),
                prompt,
                model.tokenizer.bos_id(),
            ),
            format,
            vec![],
        ))
    }
}

/// Returns a prompt behind the tokens of the conversation so far. Only the first token is the one that begins texts.
fn joined(context: &[u32], mut prompt: Vec<u32>, bos: Option<u32>) -> Vec<u32> {
    if context.is_empty() {
        return prompt;
    }
    if prompt.first().copied() == bos && bos.is_some() {
        prompt.remove(0);
    }
    [context, &prompt].concat()
}

fn response(answer: &Partial) -> Value {
    let mut line = json!({"response": answer.text});
    if !answer.thinking.is_empty() {
        line["thinking"] = answer.thinking.clone().into();
    }
    line
}

#[cfg(test)]
mod tests {
    use super::joined;

    #[test]
    fn only_one_token_begins_the_text() {
        assert_eq!(joined(&[], vec![1, 7], Some(1)), [1, 7]);
        assert_eq!(joined(&[1, 5], vec![1, 7], Some(1)), [1, 5, 7]);
        assert_eq!(joined(&[5], vec![7], None), [5, 7]);
    }
}
