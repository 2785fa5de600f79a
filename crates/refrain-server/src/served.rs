//! A served model: its engine, tokenizer, chat template and dialect.

mod grammars;

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use refrain_engine::fit::Requirements;
use refrain_engine::{CacheTypes, Device, Engine, EngineLoad, EngineRequest, SamplerOptions};
use refrain_formats::{Format, TensorInfo};
use refrain_grammar::{GrammarCompiler, GrammarError, SpecialTokens};
use refrain_models::Checkpoint;
use refrain_text::dialects::{Dialect, Functions};
use refrain_text::{ChatTemplate, Conversation, ReasoningOptions, TokenBytes, Tokenizer};

use crate::answer::{Answer, AnswerFormat, SubmittedRequest};
use crate::blocking;
use crate::digest::digest;
use crate::error::Refusal;
use crate::histogram::RequestTimes;
use crate::lease::EngineLease;
use crate::messages;
pub(crate) use crate::model_names::ServedModels;
use crate::prefill::Prefill;
use crate::record::RequestRecord;
use crate::registry::{EngineLoader, ModelRegistry, ModelStay};
use crate::tokenize;

/// Bytes of a prompt's end that are kept to tell how the answer begins.
const PROMPT_END_BYTES: usize = 1024;

/// The tokenizer and chat template of a checkpoint.
pub struct ServedText {
    tokenizer: Tokenizer,
    template: Option<ChatTemplate>,
}

impl ServedText {
    /// Reads those of a checkpoint. The weights are not read.
    ///
    /// # Errors
    /// If the tokenizer or template is missing or damaged.
    pub fn of(checkpoint: &Checkpoint) -> Result<ServedText, refrain_formats::Error> {
        Ok(ServedText {
            tokenizer: checkpoint.tokenizer()?,
            template: checkpoint.chat_template()?,
        })
    }
}

/// Where a model's engine comes from.
pub struct EngineSource {
    /// Shared by all models of a server.
    pub registry: Arc<ModelRegistry>,
    /// Loads the model onto its device.
    pub load: EngineLoader,
    /// How long it stays loaded.
    pub stay: ModelStay,
    /// Its engine, if it is loaded already.
    pub loaded: Option<Engine>,
    /// Maximum number of tokens of a request, prompt and answer together.
    pub context: usize,
    /// How keys and values are stored.
    pub cache: CacheTypes,
}

/// A model that is served.
pub struct ServedModel {
    /// The name that it is listed under.
    pub(crate) name: String,
    /// Further names that clients may use.
    pub(crate) aliases: Vec<String>,
    pub(crate) registry: Arc<ModelRegistry>,
    /// Its slot in the registry.
    slot: usize,
    /// Requests that are being prepared, and are not in the engine's queue yet.
    pub(crate) preparing: Arc<AtomicUsize>,
    /// Maximum number of tokens of a request, prompt and answer together.
    pub(crate) context: usize,
    pub(crate) tokenizer: Tokenizer,
    template: Option<ChatTemplate>,
    /// How it writes reasoning and tool calls.
    dialect: Dialect,
    special: OnceLock<SpecialTokens>,
    /// The tokens' bytes, and the compiler of grammars for them; created on first use.
    vocabulary: OnceLock<Vec<Option<TokenBytes>>>,
    grammars: OnceLock<Result<GrammarCompiler, GrammarError>>,
    pub(crate) suggested: SamplerOptions,
    pub(crate) max_new_tokens: Option<usize>,
    /// Numbers in an embedding.
    pub(crate) width: usize,
    pub(crate) facts: ModelFacts,
    pub(crate) figures: RequestTimes,
    /// Bytes of weights that a step of one request reads, and of keys and values of a token.
    pub(crate) bytes_per_step: u64,
    pub(crate) bytes_per_token: u64,
    /// How keys and values are stored.
    pub(crate) cache: CacheTypes,
    /// The measured memory bandwidth of its device, in bytes a second.
    pub(crate) bandwidth: Option<f64>,
    /// When it was opened, in seconds since 1970.
    pub(crate) since: u64,
}

/// Facts about a model that interfaces report.
pub(crate) struct ModelFacts {
    pub architecture: &'static str,
    /// The format of its files.
    pub container: &'static str,
    /// The format of most of its weights.
    pub format: String,
    /// Number of weights, and their bytes.
    pub parameters: usize,
    pub bytes: u64,
    /// Bytes of its weights in GPU memory.
    pub bytes_on_card: u64,
    /// Tells the models of servers apart: 64 hexadecimal digits.
    pub digest: String,
}

impl ModelFacts {
    fn of(name: &str, checkpoint: &Checkpoint, device: &Device) -> ModelFacts {
        let bytes = checkpoint.tensors().map(|tensor| tensor.bytes).sum();
        ModelFacts {
            architecture: checkpoint.config().family.name,
            container: match checkpoint.format() {
                Format::Gguf => "gguf",
                Format::Safetensors | Format::Mlx => "safetensors",
            },
            format: checkpoint.weight_format(),
            parameters: checkpoint.tensors().map(TensorInfo::values).sum(),
            bytes,
            bytes_on_card: if device.is_cpu() { 0 } else { bytes },
            digest: digest(name, checkpoint),
        }
    }
}

impl ServedModel {
    /// Creates a model with the name `name`, which engines of `source` run on `device`. `checkpoint` holds its weights.
    pub fn new(
        name: String,
        source: EngineSource,
        device: &Device,
        checkpoint: &Checkpoint,
        text: ServedText,
    ) -> ServedModel {
        let ServedText { tokenizer, template } = text;
        let dialect = template
            .as_ref()
            .map_or(Dialect::PLAIN, |template| Dialect::of(template, Some(&tokenizer)));
        let suggestions = checkpoint.generation();
        let requirements = Requirements::of(checkpoint, source.cache);
        let facts = ModelFacts::of(&name, checkpoint, device);
        ServedModel {
            name,
            aliases: vec![],
            slot: source.registry.add(source.load, source.loaded, source.stay),
            registry: source.registry,
            preparing: Arc::default(),
            context: source.context,
            tokenizer: tokenizer.show_special(&dialect.with_calls().marks()),
            template,
            dialect,
            special: OnceLock::new(),
            vocabulary: OnceLock::new(),
            grammars: OnceLock::new(),
            facts,
            figures: RequestTimes::default(),
            bytes_per_step: requirements.weights_per_token,
            bytes_per_token: requirements.kv_per_position,
            cache: source.cache,
            bandwidth: None,
            suggested: SamplerOptions::suggested(suggestions),
            max_new_tokens: suggestions.max_new_tokens,
            width: checkpoint.config().hidden_size,
            since: seconds(),
        }
    }

    /// The name that it is listed under.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sets further names that clients may use. `*` is any name that no other model has.
    #[must_use]
    pub fn with_aliases(self, aliases: Vec<String>) -> ServedModel {
        ServedModel { aliases, ..self }
    }

    /// Changes the sampling settings of requests that do not give them.
    #[must_use]
    pub fn with_sampler(mut self, change: impl FnOnce(&mut SamplerOptions)) -> ServedModel {
        change(&mut self.suggested);
        self
    }

    /// Sets the measured memory bandwidth of its device, in bytes a second.
    #[must_use]
    pub fn with_bandwidth(self, bandwidth: Option<f64>) -> ServedModel {
        ServedModel { bandwidth, ..self }
    }

    /// Seconds since 1970.
    pub(crate) fn now(&self) -> u64 {
        seconds().max(self.since)
    }

    /// Renders and encodes a conversation up to where the answer begins, and says how the answer is read.
    ///
    /// # Errors
    /// A model without a chat template, or a conversation that the template does not take.
    pub(crate) async fn render(
        self: &Arc<Self>,
        conversation: Conversation,
        reasoning: ReasoningOptions,
    ) -> Result<(Vec<u32>, AnswerFormat), Refusal> {
        self.render_prefilled(conversation, reasoning, None).await
    }

    /// As [`ServedModel::render`], with the beginning of the answer. The answer is what follows it. A prefill without
    /// reasoning switches the reasoning off.
    ///
    /// # Errors
    /// As [`ServedModel::render`].
    pub(crate) async fn render_prefilled(
        self: &Arc<Self>,
        conversation: Conversation,
        mut reasoning: ReasoningOptions,
        prefill: Option<Prefill>,
    ) -> Result<(Vec<u32>, AnswerFormat), Refusal> {
        if prefill.as_ref().is_some_and(|prefill| prefill.reasoning.is_empty()) {
            reasoning.enabled = Some(false);
        }
        // A template is a program, and may take its time; so may a long text.
        let bytes = tokenize::text_bytes(&conversation);
        let model = self.clone();
        let work = move || model.render_blocking(&conversation, &reasoning, prefill.as_ref());
        let done = blocking::run(bytes, work).await?;
        RequestRecord::current().release_body();
        done
    }

    fn render_blocking(
        &self,
        conversation: &Conversation,
        reasoning: &ReasoningOptions,
        prefill: Option<&Prefill>,
    ) -> Result<(Vec<u32>, AnswerFormat), Refusal> {
        let template = self.template.as_ref().ok_or(Refusal::NoTemplate)?;
        let render = |conversation: &Conversation| template.render_for_answer(conversation, reasoning, &self.dialect);
        let mut text =
            render(conversation).or_else(|error| match messages::without_disputed_reasoning(conversation) {
                Some(conversation) => render(&conversation),
                None => Err(error),
            })?;
        if let Some(prefill) = prefill {
            prefill.open(&mut text, &self.dialect);
        }
        let start = text.len().saturating_sub(PROMPT_END_BYTES);
        let start = (start..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        let (dialect, functions) = match &conversation.tools {
            Some(tools) => (self.dialect.with_calls(), Functions::of_tools(tools)),
            None => (self.dialect.without_calls(), Functions::default()),
        };
        let format = AnswerFormat {
            dialect: Some(dialect),
            functions,
            prompt_end: text[start..].to_owned(),
            may_reason: reasoning.enabled != Some(false),
            reasoning_budget: reasoning.budget,
        };
        text.push_str(prefill.map_or("", |prefill| &prefill.text));
        self.check_length(&text)?;
        Ok((self.tokenizer.encode_rendered(&text)?, format))
    }

    /// The source of its template for conversations, if it has one.
    pub(crate) fn template_source(&self) -> Option<&str> {
        self.template.as_ref()?.source(false).ok()
    }

    /// Whether it has a template for conversations.
    pub(crate) fn converses(&self) -> bool {
        self.template.is_some()
    }

    /// How it writes reasoning and tool calls.
    pub(crate) fn dialect(&self) -> &Dialect {
        &self.dialect
    }

    /// What a token stands for; nothing for an id that is no token's.
    pub(crate) fn bytes_of(&self, id: u32) -> &[u8] {
        let token = self.vocabulary().get(id as usize).and_then(Option::as_ref);
        token.map_or(&[], |token| &token.bytes)
    }

    /// The bytes that a token appends to texts, which leave out most special tokens.
    pub(crate) fn text_bytes_of(&self, id: u32) -> &[u8] {
        match self.vocabulary().get(id as usize) {
            Some(Some(token)) if token.is_special && !self.tokenizer.writes_special(id) => &[],
            _ => self.bytes_of(id),
        }
    }

    /// What tokens stand for, by their ids.
    pub(crate) fn vocabulary(&self) -> &[Option<TokenBytes>] {
        self.vocabulary.get_or_init(|| self.tokenizer.vocabulary())
    }

    /// Returns its engine, after loading it if necessary. Do not call this while holding a lease of another model:
    /// loading this one may wait for it.
    pub(crate) async fn engine(&self) -> Result<EngineLease, Refusal> {
        self.registry.engine(self.slot).await
    }

    /// Returns its engine, if it is loaded.
    pub(crate) fn loaded(&self) -> Option<Arc<Engine>> {
        self.registry.loaded(self.slot)
    }

    /// Returns its load, with counters that unloading does not reset.
    pub(crate) fn load(&self) -> EngineLoad {
        self.registry.counters(self.slot)
    }

    /// Sets how long it stays loaded when nobody uses it.
    pub(crate) fn keep(&self, time: Option<Duration>) {
        self.registry.keep(self.slot, time);
    }

    /// Returns in how long it is unloaded if nobody uses it; `None` if it stays.
    pub(crate) fn stays(&self) -> Option<Duration> {
        self.registry.time_left(self.slot)
    }

    /// Submits a request to its engine.
    ///
    /// # Errors
    /// If the engine refuses it.
    pub(crate) fn ask(
        self: &Arc<Self>,
        engine: &EngineLease,
        mut request: EngineRequest,
        format: AnswerFormat,
    ) -> Result<Answer, Refusal> {
        let (events, received) = tokio::sync::mpsc::unbounded_channel();
        let stops = (
            std::mem::take(&mut request.options.stop_strings),
            request.options.stop_strings_after,
        );
        let record = RequestRecord::current();
        record.add_prompt(request.prompt.len());
        request.client = record.client();
        let cached_tokens = request.cached_tokens.clone();
        // The engine drops its listener when the request has finished, however slowly the client reads.
        let in_use = engine.hold();
        let listener = move |event| {
            let _held = &in_use;
            drop(events.send(event));
        };
        let ticket = engine.submit(request, Box::new(listener));
        record.release_ticket();
        let ticket = ticket?;
        let submitted = SubmittedRequest {
            events: received,
            cached_tokens,
            _ticket: ticket,
        };
        Ok(Answer::new(self.clone(), submitted, stops, format))
    }
}

fn seconds() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
