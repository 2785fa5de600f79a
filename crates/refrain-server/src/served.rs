//! A model that is served: the engine that computes, and what turns text into tokens and back.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use refrain_engine::fit::Needs;
use refrain_engine::{Device, Engine, EngineRequest, SamplerOptions, TokenConstraint};
use refrain_formats::{Format, TensorInfo};
use refrain_grammar::{GrammarConstraint, GrammarError, Grammars, ReasoningTokens};
use refrain_models::Checkpoint;
use refrain_text::{ChatTemplate, Conversation, ReasoningMarks, TokenBytes, Tokenizer};

use crate::answer::{Answer, AskedText, TextOptions};
use crate::error::Refusal;
use crate::figures::RequestTimes;
use crate::openai::structure::AskedForm;
use crate::record::RequestRecord;
use crate::shelf::{EngineLoader, EngineShelf};

/// What turns a checkpoint's text into tokens, and its tokens into text.
pub struct ServedText {
    tokenizer: Tokenizer,
    template: Option<ChatTemplate>,
}

impl ServedText {
    /// Of a checkpoint, whose weights are not looked at.
    ///
    /// # Errors
    /// If its tokenizer or template is missing or damaged.
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
    pub shelf: Arc<EngineShelf>,
    /// Brings the model onto its device, if it is asked for and not there.
    pub load: EngineLoader,
    /// Its engine, if it is there already.
    pub loaded: Option<Engine>,
    /// Tokens that a request may have.
    pub context: usize,
}

/// A model that is served.
pub struct ServedModel {
    /// What clients call it.
    pub(crate) name: String,
    pub(crate) shelf: Arc<EngineShelf>,
    /// On the shelf.
    place: usize,
    /// Tokens that a request may have.
    pub(crate) context: usize,
    pub(crate) tokenizer: Tokenizer,
    template: Option<ChatTemplate>,
    marks: Option<ReasoningMarks>,
    /// What tokens stand for, and what makes grammars for them: made when they are first wanted.
    vocabulary: OnceLock<Vec<Option<TokenBytes>>>,
    grammars: OnceLock<Result<Grammars, GrammarError>>,
    pub(crate) suggested: SamplerOptions,
    pub(crate) max_new_tokens: Option<usize>,
    /// Numbers of an embedding.
    pub(crate) width: usize,
    pub(crate) facts: ModelFacts,
    pub(crate) figures: RequestTimes,
    /// Bytes of weights that a step of one request reads, and of keys and values of a token.
    pub(crate) bytes_per_step: u64,
    pub(crate) bytes_per_token: u64,
    /// Bytes a second that the device reads, where that was measured.
    pub(crate) bandwidth: Option<f64>,
    /// When it was made, in seconds since 1970.
    pub(crate) since: u64,
}

/// What clients may want to know of a model.
pub(crate) struct ModelFacts {
    pub architecture: &'static str,
    /// How its files hold it.
    pub container: &'static str,
    /// What most of its weights are.
    pub format: String,
    /// Numbers in its weights, and bytes.
    pub parameters: usize,
    pub bytes: u64,
    /// Bytes of its weights in a card's memory.
    pub bytes_on_card: u64,
}

impl ModelFacts {
    fn of(checkpoint: &Checkpoint, device: &Device) -> ModelFacts {
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
        }
    }
}

impl ServedModel {
    /// The model that engines of `source` compute on `device`, as `name`; `checkpoint` is what it is loaded from.
    pub fn new(
        name: String,
        source: EngineSource,
        device: &Device,
        checkpoint: &Checkpoint,
        text: ServedText,
    ) -> ServedModel {
        let ServedText { tokenizer, template } = text;
        let marks = template
            .as_ref()
            .and_then(|template| ReasoningMarks::of(template, &tokenizer));
        let shown = marks.map_or(vec![], |marks| vec![marks.open, marks.close]);
        let suggestions = checkpoint.generation();
        let needs = Needs::of(checkpoint, device);
        ServedModel {
            name,
            place: source.shelf.add(source.load, source.loaded),
            shelf: source.shelf,
            context: source.context,
            tokenizer: tokenizer.show(&shown),
            template,
            marks,
            vocabulary: OnceLock::new(),
            grammars: OnceLock::new(),
            facts: ModelFacts::of(checkpoint, device),
            figures: RequestTimes::default(),
            bytes_per_step: needs.weights_per_token,
            bytes_per_token: needs.kv_per_position,
            bandwidth: None,
            suggested: SamplerOptions::suggested(suggestions),
            max_new_tokens: suggestions.max_new_tokens,
            width: checkpoint.config().hidden_size,
            since: seconds(),
        }
    }

    /// What clients call it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The same, on a device that was seen to read so many bytes a second.
    #[must_use]
    pub fn with_bandwidth(self, bandwidth: Option<f64>) -> ServedModel {
        ServedModel { bandwidth, ..self }
    }

    /// Seconds since 1970.
    pub(crate) fn now(&self) -> u64 {
        seconds().max(self.since)
    }

    /// The tokens of a conversation up to where the answer begins, and whether it begins within reasoning.
    pub(crate) fn prompt(&self, conversation: &Conversation, think: Option<bool>) -> Result<(Vec<u32>, bool), Refusal> {
        let template = self.template.as_ref().ok_or(Refusal::NoTemplate)?;
        let text = template.render_for_answer(conversation, think, self.marks)?;
        let is_thinking = self.marks.is_some_and(|marks| marks.opened_by(&text));
        Ok((self.tokenizer.encode_rendered(&text)?, is_thinking))
    }

    /// The tokens of a conversation, and how its answer is read.
    pub(crate) async fn conversed(
        self: &Arc<Self>,
        conversation: Conversation,
        think: Option<bool>,
    ) -> Result<(Vec<u32>, TextOptions), Refusal> {
        // A template is a program, and may take its time.
        let (prompt, is_thinking) = tokio::task::spawn_blocking({
            let model = self.clone();
            move || model.prompt(&conversation, think)
        })
        .await
        .map_err(|_| Refusal::Silence)??;
        let reasoning = self.marks.map(|marks| (marks, is_thinking));
        let may_reason = think != Some(false);
        Ok((prompt, TextOptions { reasoning, may_reason }))
    }

    /// Whether it has a template for conversations.
    pub(crate) fn converses(&self) -> bool {
        self.template.is_some()
    }

    /// The marks of reasoning, if the model is known to think.
    pub(crate) fn marks(&self) -> Option<ReasoningMarks> {
        self.marks
    }

    /// What a token stands for; nothing for an id that is no token's.
    pub(crate) fn bytes_of(&self, id: u32) -> &[u8] {
        let vocabulary = self.vocabulary.get_or_init(|| self.tokenizer.vocabulary());
        let token = vocabulary.get(id as usize).and_then(Option::as_ref);
        token.map_or(&[], |token| &token.bytes)
    }

    /// What a grammar that a field asks for leaves of an answer that is read so.
    ///
    /// # Errors
    /// A grammar that is none, by the name of its field.
    pub(crate) async fn constraint(
        self: &Arc<Self>,
        form: Option<AskedForm>,
        text: TextOptions,
    ) -> Result<Option<GrammarConstraint>, Refusal> {
        let Some((field, grammar)) = form else {
            return Ok(None);
        };
        let reasoning = text.reasoning.and_then(|(marks, is_open)| {
            Some(ReasoningTokens {
                open: self.tokenizer.id(marks.open).filter(|_| !is_open && text.may_reason),
                close: self.tokenizer.id(marks.close)?,
                is_open,
            })
        });
        let model = self.clone();
        let made = tokio::task::spawn_blocking(move || {
            let grammars = model.grammars.get_or_init(|| Grammars::new(&model.tokenizer));
            grammars.as_ref().map_err(Clone::clone)?.constraint(&grammar, reasoning)
        });
        let made = made.await.map_err(|_| Refusal::Silence)?;
        made.map(Some).map_err(|why| Refusal::field(field, why.to_string()))
    }

    /// Its engine, which stays as long as this is held; it is loaded if it is not there. Who holds it must not ask again.
    pub(crate) async fn engine(&self) -> Result<Arc<Engine>, Refusal> {
        self.shelf.engine(self.place).await
    }

    /// Its engine, if it is loaded.
    pub(crate) fn loaded(&self) -> Option<Arc<Engine>> {
        self.shelf.loaded(self.place)
    }

    /// Notes how long it shall stay loaded when nobody asks for it.
    pub(crate) fn keep(&self, time: Option<Duration>) {
        self.shelf.keep(self.place, time);
    }

    /// In how long it leaves the device if nobody asks for it; `None`: it stays.
    pub(crate) fn stays(&self) -> Option<Duration> {
        self.shelf.stays(self.place)
    }

    /// Asks its engine for a text.
    pub(crate) fn ask(
        self: &Arc<Self>,
        engine: &Arc<Engine>,
        mut request: EngineRequest,
        text: TextOptions,
    ) -> Result<Answer, Refusal> {
        let (events, heard) = tokio::sync::mpsc::unbounded_channel();
        let stops = std::mem::take(&mut request.options.stop_strings);
        let record = RequestRecord::current();
        record.add_prompt(request.prompt.len());
        request.client = record.client();
        let ticket = engine.submit(request, Box::new(move |event| drop(events.send(event))))?;
        let asked = AskedText {
            events: heard,
            _ticket: ticket,
            _engine: engine.clone(),
        };
        Ok(Answer::new(self.clone(), asked, stops, text))
    }
}

/// The models of a server: one at least.
pub(crate) struct ServedModels(pub Vec<Arc<ServedModel>>);

impl ServedModels {
    /// The model that is meant; who names none means the first. Ollama's clients may add a tag to a name.
    pub fn named(&self, asked: Option<&str>) -> Result<Arc<ServedModel>, Refusal> {
        let Some(asked) = asked else {
            return Ok(self.0[0].clone());
        };
        let called = |name: &str| self.0.iter().find(|model| model.name == name);
        let found = called(asked).or_else(|| called(asked.strip_suffix(":latest")?));
        found.cloned().ok_or_else(|| Refusal::NoSuchModel {
            asked: asked.to_owned(),
            served: self.0.iter().map(|model| model.name.clone()).collect(),
        })
    }
}

/// A constraint of one text more.
pub(crate) fn another(constraint: &GrammarConstraint) -> Box<dyn TokenConstraint> {
    Box::new(constraint.for_another())
}

fn seconds() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
