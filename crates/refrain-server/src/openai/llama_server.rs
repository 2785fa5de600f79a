//! Routes of llama-server: `/props`, `/slots`, `/completion`, `/infill` and `/apply-template`.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;

use axum::Json;
use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use refrain_engine::{EngineRequest, Finish, GenerateOptions};
use refrain_text::dialects::AnswerPiece;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc::Receiver;

use super::chat::ChatRequest;
use super::fields::FieldReader;
use super::options::GenerationFields;
use crate::answer::{AnswerFormat, Ended};
use crate::error::{Body, Refusal};
use crate::events::{self, AnswerEvent};
use crate::fill::{ExtraFile, Gap};
use crate::openapi::servers::LlamaRequestFields;
use crate::served::{ServedModel, ServedModels};
use crate::tokenize::TextLimit;

/// Number of last tokens that penalties count unless a request says otherwise, as in llama-server.
const REPEAT_LAST_N: u32 = 64;

/// `GET /props`: the first model and its settings.
pub(crate) async fn props(State(models): State<Arc<ServedModels>>) -> Result<Json<Value>, Refusal> {
    let model = models.named(None)?;
    let token = |id: Option<u32>| id.and_then(|id| model.tokenizer.token(id));
    let suggested = &model.suggested;
    let params = json!({
        "temperature": suggested.temperature,
        "top_k": suggested.top_k,
        "top_p": suggested.top_p,
        "min_p": suggested.min_p,
        "repeat_penalty": suggested.repeat_penalty,
        "repeat_last_n": suggested.repeat_last,
        "n_predict": model.max_new_tokens.map_or(-1, |limit| limit as i64),
    });
    Ok(Json(json!({
        "default_generation_settings": {"n_ctx": model.context, "params": params},
        "total_slots": model.loaded().map_or(1, |engine| engine.options().streams),
        "model_alias": model.name,
        "model_path": model.name,
        "chat_template": model.template_source(),
        "bos_token": token(model.tokenizer.bos_id()),
        "eos_token": token(model.tokenizer.eos_ids().first().copied()),
        "modalities": {"vision": false, "audio": false},
        "build_info": concat!("refrain ", env!("CARGO_PKG_VERSION")),
        "is_sleeping": model.loaded().is_none(),
        "cache_type_k": model.cache.keys.name(),
        "cache_type_v": model.cache.values.name(),
    })))
}

/// `GET /slots`: which places of the first model's batch are taken. A model that is not loaded has none.
pub(crate) async fn slots(State(models): State<Arc<ServedModels>>) -> Result<Json<Value>, Refusal> {
    let model = models.named(None)?;
    let Some(engine) = model.loaded() else {
        return Ok(Json(json!([])));
    };
    let running = engine.load().running;
    let slot = |id: usize| json!({"id": id, "n_ctx": model.context, "is_processing": id < running});
    Ok(Json((0..engine.options().streams).map(slot).collect()))
}

/// `POST /apply-template`: the prompt of a conversation, which is not computed.
pub(crate) async fn apply_template(
    State(models): State<Arc<ServedModels>>,
    Body(request): Body<ChatRequest>,
) -> Result<Json<Value>, Refusal> {
    let model = models.named(request.model())?;
    let tokens = request.prompt(&model).await?.tokens;
    Ok(Json(json!({"prompt": model.decode(tokens, false).await?})))
}

/// A text, or texts and tokens that follow each other.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged, expecting = "prompt must be a string, or a list of token ids and strings")]
enum LlamaPrompt {
    Text(#[schemars(length(min = 1))] String),
    Named { prompt_string: String },
    Pieces(#[schemars(length(min = 1))] Vec<PromptPiece>),
}

/// A part of a prompt.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
enum PromptPiece {
    Token(u32),
    Text(String),
}

impl LlamaPrompt {
    /// Returns the prompt's tokens. The tokenizer adds its own to a text that begins the prompt.
    ///
    /// # Errors
    /// If there are several prompts, a text is too long, or the tokenizer cannot represent it.
    async fn tokens(self, model: &Arc<ServedModel>) -> Result<Vec<u32>, Refusal> {
        let pieces = match self {
            LlamaPrompt::Text(text) | LlamaPrompt::Named { prompt_string: text } => vec![PromptPiece::Text(text)],
            LlamaPrompt::Pieces(pieces) => pieces,
        };
        if pieces.len() > 1 && pieces.iter().all(|piece| matches!(piece, PromptPiece::Text(_))) {
            let why = "several prompts are supported by /v1/completions only";
            return Err(Refusal::field("prompt", why));
        }
        let is_begun_by_text = matches!(pieces.first(), Some(PromptPiece::Text(_)));
        let (mut ids, mut texts) = (vec![], vec![]);
        for piece in pieces {
            match piece {
                PromptPiece::Token(id) => ids.push(Some(id)),
                PromptPiece::Text(text) => {
                    ids.push(None);
                    texts.push(text);
                }
            }
        }
        // Texts are tokenized at once, but for one that begins the prompt.
        let later = texts.split_off(usize::from(is_begun_by_text));
        let mut encoded = vec![];
        for (texts, special) in [(texts, true), (later, false)] {
            if !texts.is_empty() {
                encoded.extend(model.encode(texts, special, TextLimit::Context).await?);
            }
        }
        let mut encoded = encoded.into_iter();
        let next = |id: Option<u32>| id.map_or_else(|| encoded.next().unwrap_or_default(), |id| vec![id]);
        Ok(ids.into_iter().flat_map(next).collect())
    }
}

/// A text to continue.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "LlamaCompletionRequest")]
pub(crate) struct LlamaCompletion {
    prompt: LlamaPrompt,
    #[serde(flatten)]
    #[schemars(with = "LlamaRequestFields")]
    fields: Map<String, Value>,
}

/// `POST /completion`.
pub(crate) async fn completion(
    State(models): State<Arc<ServedModels>>,
    Body(request): Body<LlamaCompletion>,
) -> Result<Response, Refusal> {
    let (model, fields) = LlamaFields::read(request.fields, &models)?;
    let mut prompt = request.prompt.tokens(&model).await?;
    fields.generation.truncate(&mut prompt, &model);
    fields.answer(&model, prompt).await
}

/// The texts around a gap, as llama-server names them.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct InfillRequest {
    #[serde(default)]
    input_prefix: String,
    #[serde(default)]
    input_suffix: String,
    #[serde(default)]
    input_extra: Vec<ExtraFile>,
    /// The beginning of the answer.
    #[serde(default)]
    prompt: String,
    #[serde(flatten)]
    #[schemars(with = "LlamaRequestFields")]
    fields: Map<String, Value>,
}

/// `POST /infill`: the text of a gap, for models that were trained to fill it.
pub(crate) async fn infill(
    State(models): State<Arc<ServedModels>>,
    Body(request): Body<InfillRequest>,
) -> Result<Response, Refusal> {
    let (model, mut fields) = LlamaFields::read(request.fields, &models)?;
    let gap = Gap {
        prefix: request.input_prefix,
        suffix: request.input_suffix,
        begun: request.prompt,
        extra: request.input_extra,
    };
    let prompt = model.fill_prompt(gap, "input_prefix").await?;
    fields.options.stop_ids.extend(prompt.ends);
    fields.answer(&model, prompt.tokens).await
}

/// The fields that say how an answer is generated.
struct LlamaFields {
    generation: GenerationFields,
    options: GenerateOptions,
    top_logprobs: Option<usize>,
}

impl LlamaFields {
    /// Reads the fields, and finds the model that they name. Its queue has room for the request.
    fn read(mut fields: Map<String, Value>, models: &ServedModels) -> Result<(Arc<ServedModel>, LlamaFields), Refusal> {
        for (llama, openai) in [("n_predict", "max_tokens"), ("n_probs", "logprobs"), ("id_slot", "")] {
            let value = fields.shift_remove(llama).filter(|_| !openai.is_empty());
            value.map(|value| fields.insert(openai.to_owned(), value));
        }
        // Penalties count the last tokens here, prompt included.
        fields.entry("repeat_last_n").or_insert(REPEAT_LAST_N.into());
        let generation = GenerationFields::read(FieldReader::new(fields))?;
        let model = models.named(generation.model.as_deref())?;
        let mut options = generation.options(&model)?;
        // Several answers would need another form of response.
        if options.len() > 1 {
            return Err(Refusal::field(
                "n",
                "several answers are supported by /v1/completions only",
            ));
        }
        let top_logprobs = generation.logprobs.of_completion()?.filter(|count| *count > 0);
        model.reserve()?;
        let read = LlamaFields {
            generation,
            options: options.swap_remove(0),
            top_logprobs,
        };
        Ok((model, read))
    }

    /// Answers a prompt.
    async fn answer(self, model: &Arc<ServedModel>, prompt: Vec<u32>) -> Result<Response, Refusal> {
        let format = AnswerFormat::default();
        let constraint = model.constraint(self.generation.structure.form()?, &format).await?;
        let completion = LlamaReply {
            model: model.name.clone(),
            prompt_tokens: prompt.len(),
            begin: Instant::now(),
            first: None,
            stops: self.options.stop_strings.clone(),
            logprobs: vec![],
        };
        let asked = EngineRequest {
            top_logprobs: self.top_logprobs,
            ..self.generation.request(prompt, self.options, &constraint)
        };
        let engine = model.engine().await?;
        let events = events::stream(model.ask(&engine, asked, format)?);
        if self.generation.stream {
            Ok(completion.streamed(events))
        } else {
            completion.whole(events).await
        }
    }
}

/// Writes completions.
struct LlamaReply {
    model: String,
    prompt_tokens: usize,
    begin: Instant,
    /// When the first token came.
    first: Option<Instant>,
    stops: Vec<String>,
    logprobs: Vec<Value>,
}

impl LlamaReply {
    async fn whole(mut self, mut events: Receiver<AnswerEvent>) -> Result<Response, Refusal> {
        let mut content = String::new();
        while let Some(event) = events.recv().await {
            self.first.get_or_insert_with(Instant::now);
            match event {
                AnswerEvent::Logprobs(entries) => self.logprobs.extend(entries),
                AnswerEvent::Piece(AnswerPiece::Text(text)) => content.push_str(&text),
                AnswerEvent::Piece(_) => {}
                AnswerEvent::Ended(ended) => return Ok(Json(self.last(content, ended)).into_response()),
                AnswerEvent::Failed(why) => return Err(why),
            }
        }
        Err(Refusal::Silence)
    }

    fn streamed(self, events: Receiver<AnswerEvent>) -> Response {
        let events = stream::unfold((self, events), |(mut reply, mut events)| async {
            loop {
                let event = events.recv().await?;
                reply.first.get_or_insert_with(Instant::now);
                let value = match event {
                    AnswerEvent::Logprobs(entries) => {
                        reply.logprobs.extend(entries);
                        continue;
                    }
                    AnswerEvent::Piece(AnswerPiece::Text(text)) => reply.part(&text),
                    AnswerEvent::Piece(_) => continue,
                    AnswerEvent::Ended(ended) => reply.last(String::new(), ended),
                    AnswerEvent::Failed(why) => why.json(),
                };
                let event = Event::default().data(value.to_string());
                return Some((Ok::<Event, Infallible>(event), (reply, events)));
            }
        });
        Sse::new(events).keep_alive(KeepAlive::default()).into_response()
    }

    /// Returns an event with more text.
    fn part(&mut self, text: &str) -> Value {
        let mut part = json!({"content": text, "stop": false});
        self.add_logprobs(&mut part);
        part
    }

    /// Returns the whole completion, or the last event.
    fn last(&mut self, content: String, ended: Ended) -> Value {
        let stop_type = match ended.finish {
            Finish::Length | Finish::Context => "limit",
            Finish::StopString => "word",
            Finish::Stop | Finish::Interrupted => "eos",
        };
        let word = ended.stop.and_then(|index| self.stops.get(index));
        let first = self.first.unwrap_or(self.begin);
        let milliseconds = |from: Instant, to: Instant| to.duration_since(from).as_secs_f64() * 1e3;
        let (prompt_ms, predicted_ms) = (milliseconds(self.begin, first), milliseconds(first, Instant::now()));
        let processed = self.prompt_tokens.saturating_sub(ended.cached_tokens);
        let mut last = json!({
            "content": content,
            "stop": true,
            "stop_type": stop_type,
            "stopping_word": word.map_or("", String::as_str),
            "model": self.model,
            "tokens_predicted": ended.tokens,
            "tokens_evaluated": self.prompt_tokens,
            "tokens_cached": ended.cached_tokens,
            "truncated": ended.finish == Finish::Context,
            "timings": timings(processed, prompt_ms, ended.tokens, predicted_ms),
        });
        self.add_logprobs(&mut last);
        last
    }

    fn add_logprobs(&mut self, part: &mut Value) {
        if !self.logprobs.is_empty() {
            part["completion_probabilities"] = std::mem::take(&mut self.logprobs).into();
        }
    }
}

/// Returns the times of a completion in llama-server's names. A part without tokens has no speed.
fn timings(prompt: usize, prompt_ms: f64, predicted: usize, predicted_ms: f64) -> Value {
    let mut timings = Map::new();
    for (name, tokens, ms) in [("prompt", prompt, prompt_ms), ("predicted", predicted, predicted_ms)] {
        timings.insert(format!("{name}_n"), tokens.into());
        timings.insert(format!("{name}_ms"), ms.into());
        if tokens > 0 && ms > 0.0 {
            timings.insert(format!("{name}_per_token_ms"), (ms / tokens as f64).into());
            timings.insert(format!("{name}_per_second"), (tokens as f64 * 1e3 / ms).into());
        }
    }
    timings.into()
}
