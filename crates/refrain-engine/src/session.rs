use refrain::{DType, Device, Executor, Function, LowerOptions, Run, Tape, Write};
use refrain_lm::sample::Settings;
use refrain_models::ModelConfig;
use refrain_models::{LayerState, Pages};

use crate::mode::{Mode, ModeCache, ModeChoice, Trial};
use crate::pace::Pace;
use crate::prompts::{MAX_CHUNK, PromptChunk, PromptPrograms, SHORT_CHUNK, most_tokens, unpadded_tokens, usual_chunk};
use crate::rollback::Rollback;
use crate::step::{DecodeStep, StepExtras};
use crate::{Error, Model, Stream};

/// Positions per page of the KV cache.
const PAGE: usize = 256;

/// Sequences in progress: what the model's layers remember of them, and the traced programs that extend
/// them. Most sessions have one; several are equal to each other in length and prompt. A session keeps its model's
/// weights as long as it lives.
pub struct Session {
    model: Model,
    pub(crate) states: Vec<LayerState>,
    pages: Pages,
    sequences: usize,
    context: usize,
    chunk: usize,
    /// What memory left of that.
    shorter_chunk: Option<usize>,
    /// Tokens that the session holds.
    pub(crate) tokens: Vec<u32>,
    /// Whether the states must take in `tokens` again before anything else: recurrent ones do not go back, and those
    /// of a snapshot may hold for another session.
    pub(crate) stale: bool,
    /// The programs that take in prompts.
    prompts: PromptPrograms,
    step: Option<DecodeStep>,
    rollback: Option<Rollback>,
    model_calls: u64,
    decoding: Decoding,
}

/// How tokens are decoded.
#[derive(Clone)]
struct Decoding {
    options: LowerOptions,
    mode: Mode,
    choice: Option<ModeChoice>,
    cache: Option<ModeCache>,
    trying: Option<&'static dyn Executor>,
    /// What earlier streams found out about the modes.
    trial: Option<Trial>,
    tokens_per_submit: Option<usize>,
    /// Of the last stream.
    pace: Pace,
    /// Microseconds on the device, summed, and for how many tokens.
    device_time: (f64, u64),
}

/// Bytes of memory beside the weights, but for what sampling keeps and copies of recurrent states.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionMemory {
    /// Of the KV cache.
    pub kv_bytes: u64,
    /// Of intermediate results, arguments and logits.
    pub scratch_bytes: u64,
}

/// What keys and values are kept in: the CPU executor is the oracle and rounds nothing.
pub(crate) fn cache_dtype(device: &Device) -> DType {
    if device.is_cpu() { DType::F32 } else { DType::F16 }
}

impl Session {
    /// An empty session that can hold `context` tokens. Keys and values are kept in f16, and in f32
    /// on the CPU executor.
    ///
    /// # Errors
    /// A context beyond the model's limit; too little memory for the KV cache.
    pub fn new(model: &Model, context: usize) -> Result<Session, Error> {
        Session::several(model, context, 1)
    }

    /// A session of several sequences that begin with the same prompt and are decoded together, each with
    /// `context` tokens.
    ///
    /// # Errors
    /// As [`Session::new`].
    pub fn several(model: &Model, context: usize, sequences: usize) -> Result<Session, Error> {
        let config = model.config();
        if context == 0 || context > config.max_position {
            return Err(Error::ContextRange {
                asked: context,
                limit: config.max_position,
            });
        }
        let pages = Pages {
            size: PAGE,
            per_sequence: context.div_ceil(PAGE),
            context,
        };
        Ok(Session {
            model: model.clone(),
            states: model
                .decoder()
                .new_states(cache_dtype(model.device()), pages, sequences)?,
            pages,
            sequences,
            context,
            chunk: usual_chunk(model.device()),
            shorter_chunk: None,
            tokens: vec![],
            stale: false,
            prompts: PromptPrograms::new(sequences, pages),
            step: None,
            rollback: None,
            model_calls: 0,
            decoding: Decoding {
                options: LowerOptions::default(),
                mode: Mode::Auto,
                choice: None,
                cache: None,
                trying: None,
                trial: None,
                tokens_per_submit: None,
                pace: Pace::default(),
                device_time: (0.0, 0),
            },
        })
    }

    /// Bytes of keys and values that [`Session::new`] keeps for each token.
    pub fn kv_bytes_per_token(config: &ModelConfig, device: &Device) -> u64 {
        (config.attention_layers()
            * config.attention.kv_heads
            * (config.attention.head_dim + config.attention.value_dim)
            * cache_dtype(device).size()) as u64
    }

    /// Tokens of the model's vocabulary: numbers in a row of logits.
    pub fn vocabulary(&self) -> usize {
        self.model.config().vocab_size
    }

    /// Tokens that the session can hold.
    pub fn context(&self) -> usize {
        self.context
    }

    /// Number of tokens that the session holds.
    pub fn position(&self) -> usize {
        self.tokens.len()
    }

    /// The tokens that the session holds (of several sequences, the first one's).
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Number of sequences.
    pub fn sequences(&self) -> usize {
        self.sequences
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Sets how many tokens of a prompt one call of the model sees: clamped to 1 … 2,048. Where memory is
    /// short, it sees fewer.
    pub fn set_chunk(&mut self, tokens: usize) {
        self.chunk = tokens.clamp(1, MAX_CHUNK);
        self.shorter_chunk = None;
    }

    /// The most tokens of a prompt that one call of the model sees, if memory was too short for as many as were set.
    pub fn shorter_chunk(&self) -> Option<usize> {
        self.shorter_chunk
    }

    /// How often the model's code has run: once per shape class.
    pub fn model_calls(&self) -> u64 {
        self.model_calls + self.prompts.traced()
    }

    /// Memory used beside the weights.
    pub fn memory(&self) -> SessionMemory {
        let kv = self.states.iter().flat_map(LayerState::arrays);
        SessionMemory {
            kv_bytes: kv.map(|a| (a.count() * a.dtype().size()) as u64).sum(),
            scratch_bytes: self.prompts.own_bytes() + self.step.as_ref().map_or(0, |step| step.function().own_bytes()),
        }
    }

    /// Forgets the tokens from `position` on. Does nothing when there are not that many.
    pub fn rewind(&mut self, position: usize) {
        if position >= self.tokens.len() {
            return;
        }
        self.tokens.truncate(position);
        self.leave_states();
    }

    fn is_recurrent(&self) -> bool {
        !LayerState::recurrent(&self.states).is_empty()
    }

    /// Appends tokens, in chunks, without computing logits.
    ///
    /// # Errors
    /// As [`Session::prefill`], but for an empty prompt.
    pub fn feed(&mut self, tokens: &[u32]) -> Result<(), Error> {
        if tokens.is_empty() {
            return Ok(());
        }
        self.check(tokens)?;
        self.take_in_again()?;
        self.take_in(tokens)
    }

    fn take_in(&mut self, tokens: &[u32]) -> Result<(), Error> {
        let mut rest = tokens;
        while let Some(chunk) = self.next_chunk(&mut rest, 0)? {
            self.extend(chunk, 0)?;
        }
        Ok(())
    }

    /// What a rewind left to be done.
    pub(crate) fn take_in_again(&mut self) -> Result<(), Error> {
        if !self.stale {
            return Ok(());
        }
        let tokens = std::mem::take(&mut self.tokens);
        if let Err(error) = self.take_in(&tokens) {
            self.tokens = tokens;
            return Err(error);
        }
        self.stale = false;
        Ok(())
    }

    /// Notes that recurrent states go on without `tokens`.
    pub(crate) fn leave_states(&mut self) {
        self.stale |= self.is_recurrent();
    }

    /// Appends a prompt, in chunks; returns the logits `[vocabulary]` after its last token.
    ///
    /// # Errors
    /// An empty prompt, a token beyond the vocabulary, a full context, a failing device.
    pub fn prefill(&mut self, tokens: &[u32]) -> Result<Vec<f32>, Error> {
        self.check(tokens)?;
        self.take_in_again()?;
        let (mut rest, mut logits) = (tokens, vec![]);
        while let Some(chunk) = self.next_chunk(&mut rest, 1)? {
            logits = self.extend(chunk, usize::from(rest.is_empty()))?;
        }
        Ok(logits)
    }

    /// Logits `[T, vocabulary]` after each of `tokens`, which start a new sequence.
    ///
    /// # Errors
    /// As [`Session::prefill`].
    pub fn logits(&mut self, tokens: &[u32]) -> Result<Vec<f32>, Error> {
        self.rewind(0);
        self.extend_logits(tokens)
    }

    /// Appends tokens; returns the logits `[T, vocabulary]` after each of them.
    ///
    /// # Errors
    /// As [`Session::prefill`].
    pub fn extend_logits(&mut self, tokens: &[u32]) -> Result<Vec<f32>, Error> {
        self.check(tokens)?;
        self.take_in_again()?;
        let mut logits = Vec::with_capacity(tokens.len() * self.model.config().vocab_size);
        let mut rest = tokens;
        while let Some(chunk) = self.next_chunk(&mut rest, tokens.len())? {
            logits.extend(self.extend(chunk, chunk.len())?);
        }
        Ok(logits)
    }

    /// Hidden states `[T, hidden]` behind the model's last norm, of each of `tokens`, which start a new sequence: what
    /// logits are computed from, and embeddings are made of.
    ///
    /// # Errors
    /// As [`Session::prefill`].
    pub fn hidden_states(&mut self, tokens: &[u32]) -> Result<Vec<f32>, Error> {
        self.rewind(0);
        self.check(tokens)?;
        self.take_in_again()?;
        let mut hidden = Vec::with_capacity(tokens.len() * self.model.config().hidden_size);
        let mut rest = tokens;
        while let Some(chunk) = self.next_chunk(&mut rest, tokens.len())? {
            let rows = self.compute(chunk, chunk.len(), true);
            hidden.extend(self.extended(chunk, rows)?);
        }
        Ok(hidden)
    }

    /// Appends a prompt and begins to decode: the stream gives the tokens after it.
    ///
    /// # Errors
    /// As [`Session::prefill`]; settings that the device cannot hold.
    pub fn stream(&mut self, prompt: &[u32], settings: &Settings) -> Result<Stream<'_>, Error> {
        self.stream_with(prompt, settings, StepExtras::default())
    }

    /// The same, of tokens that are allowed one by one ([`Stream::allow`]).
    pub(crate) fn constrained_stream(&mut self, prompt: &[u32], settings: &Settings) -> Result<Stream<'_>, Error> {
        self.stream_with(prompt, settings, StepExtras::ALLOWED)
    }

    fn stream_with(&mut self, prompt: &[u32], settings: &Settings, extras: StepExtras) -> Result<Stream<'_>, Error> {
        self.check(prompt)?;
        settings.encode()?;
        let Some((&last, before)) = prompt.split_last() else {
            return Err(Error::EmptyPrompt);
        };
        self.feed(before)?;
        self.take_in_again()?;
        self.set_extras(extras)?;
        self.prepare_step(last, settings)?;
        Stream::new(self, last, settings)
    }

    /// The logits `[S, vocabulary]` that the last token of a stream was picked from.
    ///
    /// # Errors
    /// If nothing was decoded yet, or the device fails.
    pub fn last_logits(&self) -> Result<Vec<f32>, Error> {
        match &self.step {
            Some(step) => Ok(step.logits()?),
            None => Err(Error::NothingDecoded),
        }
    }

    fn check(&self, tokens: &[u32]) -> Result<(), Error> {
        if tokens.is_empty() {
            return Err(Error::EmptyPrompt);
        }
        self.model.check_ids(tokens)?;
        let held = self.tokens.len() + tokens.len();
        if held > self.context {
            return Err(Error::ContextFull {
                tokens: held,
                context: self.context,
            });
        }
        Ok(())
    }

    /// Runs the model on a chunk of new tokens; returns the logits after its last `wanted` ones, of the
    /// last sequence.
    fn extend(&mut self, chunk: &[u32], wanted: usize) -> Result<Vec<f32>, Error> {
        let logits = self.compute(chunk, wanted, false);
        self.extended(chunk, logits)
    }

    /// Notes what became of a chunk that was to be appended.
    fn extended(&mut self, chunk: &[u32], rows: Result<Vec<f32>, Error>) -> Result<Vec<f32>, Error> {
        match rows.is_ok() {
            true => self.tokens.extend(chunk),
            // Some of the chunk may have gone into recurrent states.
            false => self.leave_states(),
        }
        rows
    }

    /// Logits, or hidden states, of the last `wanted` tokens of a chunk, of the last sequence.
    fn compute(&mut self, chunk: &[u32], wanted: usize, hidden: bool) -> Result<Vec<f32>, Error> {
        let pages: Vec<u32> = (0..(self.sequences * self.pages.per_sequence) as u32).collect();
        let config = self.model.config();
        let width = if hidden { config.hidden_size } else { config.vocab_size };
        let mut rows = vec![];
        for sequence in 0..self.sequences {
            let chunk = PromptChunk {
                tokens: chunk,
                sequence,
                position: self.tokens.len(),
                wanted,
                hidden,
            };
            let function = self.prompts.run(&self.model, &self.states, &chunk, &pages)?;
            if wanted > 0 && sequence + 1 == self.sequences {
                rows = function.read_range(0, 0, wanted * width)?;
            }
        }
        Ok(rows)
    }

    /// Takes the tokens that the next call sees from the front of `rest`, as [`Session::tokens_of_call`] has it.
    fn next_chunk<'t>(&mut self, rest: &mut &'t [u32], wanted: usize) -> Result<Option<&'t [u32]>, Error> {
        if rest.is_empty() {
            return Ok(None);
        }
        let tokens = self.tokens_of_call(rest.len(), self.tokens.len(), wanted)?;
        let (chunk, later) = rest.split_at(tokens);
        *rest = later;
        Ok(Some(chunk))
    }

    /// How many of `left` tokens behind `held` others the next call sees, of whose last `wanted` something is to be known.
    /// Long chunks have memory then: where there is too little, this and later ones are shorter.
    fn tokens_of_call(&mut self, left: usize, held: usize, wanted: usize) -> Result<usize, Error> {
        let bound = if wanted > 1 { SHORT_CHUNK } else { MAX_CHUNK };
        let most = self.shorter_chunk.unwrap_or(self.chunk).min(bound);
        let most = most_tokens(&self.model, most, held);
        let asked = unpadded_tokens(left, most);
        let last = wanted.min(usize::from(asked == left));
        let tokens = self.prompts.with_room(&self.model, &self.states, asked, last)?;
        if tokens < asked {
            self.shorter_chunk = Some(tokens);
        }
        Ok(tokens)
    }
}

mod decoding;
mod preparing;
