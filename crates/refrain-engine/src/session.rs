use refrain::{Executor, Function, LowerOptions, Run, Tape, Write};
use refrain_lm::sample::Settings;
use refrain_models::{CacheTypes, LayerState, ModelConfig, Pages};

use crate::mode::{Mode, ModeCache, ModeChoice};
use crate::pace::Pace;
use crate::prefill::{
    MAX_CHUNK, PrefillChunk, PrefillPiece, PrefillPrograms, RowOutput, SHORT_CHUNK, default_chunk, max_chunk_tokens,
    next_chunk,
};
use crate::rollback::Rollback;
use crate::step::{DecodeStep, StepExtras};
use crate::{Error, Model, Stream};

/// Positions per page of the KV cache.
const PAGE_SIZE: usize = 256;

/// Sequences in progress: their KV cache and recurrent states, and the compiled programs that extend them. Most
/// sessions have one sequence; several share length and prompt. A session keeps its model's weights alive.
pub struct Session {
    model: Model,
    pub(crate) states: Vec<LayerState>,
    pages: Pages,
    sequences: usize,
    context: usize,
    chunk: usize,
    /// The chunk size that memory allows, if it is shorter.
    shorter_chunk: Option<usize>,
    /// Tokens that the session holds.
    pub(crate) tokens: Vec<u32>,
    /// Whether `tokens` must be recomputed before anything else. Recurrent states cannot go back, and a snapshot's states
    /// may belong to another session.
    pub(crate) stale: bool,
    /// The prefill programs.
    prompts: PrefillPrograms,
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
    tokens_per_submit: Option<usize>,
    /// The pace of the last stream.
    pace: Pace,
}

/// Memory of a session in bytes, beside the weights. Sampling state and copies of recurrent states are not counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionMemory {
    /// Bytes of the KV cache.
    pub kv_bytes: u64,
    /// Bytes of intermediate results, arguments and logits.
    pub scratch_bytes: u64,
}

impl Session {
    /// Creates an empty session that can hold `context` tokens. Keys and values are stored as the model's load options
    /// say.
    ///
    /// # Errors
    /// If the context exceeds the model's limit, or there is too little memory for the KV cache.
    pub fn new(model: &Model, context: usize) -> Result<Session, Error> {
        Session::several(model, context, 1)
    }

    /// Creates a session of several sequences that share a prompt and are decoded together, each with `context`
    /// tokens.
    ///
    /// # Errors
    /// As [`Session::new`].
    pub fn several(model: &Model, context: usize, sequences: usize) -> Result<Session, Error> {
        let config = model.config();
        if context == 0 || context > config.max_position {
            return Err(Error::ContextRange {
                requested: context,
                limit: config.max_position,
            });
        }
        let pages = Pages {
            size: PAGE_SIZE,
            per_sequence: context.div_ceil(PAGE_SIZE),
            context,
        };
        Ok(Session {
            model: model.clone(),
            states: model.decoder().new_states(model.cache_types(), pages, sequences)?,
            pages,
            sequences,
            context,
            chunk: default_chunk(model.device()),
            shorter_chunk: None,
            tokens: vec![],
            stale: false,
            prompts: PrefillPrograms::new(sequences, pages),
            step: None,
            rollback: None,
            model_calls: 0,
            decoding: Decoding {
                options: LowerOptions::default(),
                mode: Mode::Auto,
                choice: None,
                tokens_per_submit: None,
                pace: Pace::default(),
            },
        })
    }

    /// Returns the bytes of keys and values per token.
    pub fn kv_bytes_per_token(config: &ModelConfig, cache: CacheTypes) -> u64 {
        let layer: usize = cache.layer_bytes(config).iter().sum();
        (config.attention_layers() * layer) as u64
    }

    /// Returns the vocabulary size: the length of a row of logits.
    pub fn vocabulary(&self) -> usize {
        self.model.config().vocab_size
    }

    /// Returns the number of tokens that the session can hold.
    pub fn context(&self) -> usize {
        self.context
    }

    /// Returns the number of tokens that the session holds.
    pub fn position(&self) -> usize {
        self.tokens.len()
    }

    /// Returns the tokens that the session holds, of the first sequence.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Returns the number of sequences.
    pub fn sequences(&self) -> usize {
        self.sequences
    }

    /// Returns the model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Sets the chunk size of prefill, clamped to 1 … 2,048 tokens. Chunks are shorter if memory is scarce.
    pub fn set_chunk(&mut self, tokens: usize) {
        self.chunk = tokens.clamp(1, MAX_CHUNK);
        self.shorter_chunk = None;
    }

    /// Returns the reduced chunk size, if memory was too scarce for the one that was set.
    pub fn shorter_chunk(&self) -> Option<usize> {
        self.shorter_chunk
    }

    /// Returns how often the model was traced: once per shape class.
    pub fn model_calls(&self) -> u64 {
        self.model_calls + self.prompts.traced()
    }

    /// Returns the memory used beside the weights.
    pub fn memory(&self) -> SessionMemory {
        let kv = self.states.iter().flat_map(LayerState::arrays);
        SessionMemory {
            kv_bytes: kv.map(|a| (a.count() * a.dtype().size()) as u64).sum(),
            scratch_bytes: self.prompts.own_bytes()
                + self.step.as_ref().map_or(0, |step| step.function().working_bytes()),
        }
    }

    /// Drops the tokens from `position` on. Does nothing if there are none.
    pub fn rewind(&mut self, position: usize) {
        if position >= self.tokens.len() {
            return;
        }
        self.tokens.truncate(position);
        self.invalidate_states();
    }

    fn is_recurrent(&self) -> bool {
        !LayerState::recurrent(&self.states).is_empty()
    }

    /// Appends tokens in chunks, without computing logits.
    ///
    /// # Errors
    /// As [`Session::prefill`], except for an empty prompt.
    pub fn append(&mut self, tokens: &[u32]) -> Result<(), Error> {
        if tokens.is_empty() {
            return Ok(());
        }
        self.check(tokens)?;
        self.recompute()?;
        self.append_chunks(tokens)
    }

    fn append_chunks(&mut self, tokens: &[u32]) -> Result<(), Error> {
        let mut rest = tokens;
        while let Some(chunk) = self.next_chunk(&mut rest, 0)? {
            self.extend(chunk, 0)?;
        }
        Ok(())
    }

    /// Recomputes the tokens if the states are stale.
    pub(crate) fn recompute(&mut self) -> Result<(), Error> {
        if !self.stale {
            return Ok(());
        }
        let tokens = std::mem::take(&mut self.tokens);
        if let Err(error) = self.append_chunks(&tokens) {
            self.tokens = tokens;
            return Err(error);
        }
        self.stale = false;
        Ok(())
    }

    /// Notes that recurrent states no longer match `tokens`.
    pub(crate) fn invalidate_states(&mut self) {
        self.stale |= self.is_recurrent();
    }

    /// Appends a prompt in chunks; returns the logits `[vocabulary]` after its last token.
    ///
    /// # Errors
    /// If the prompt is empty, a token is not in the vocabulary, the context is full, or the device fails.
    pub fn prefill(&mut self, tokens: &[u32]) -> Result<Vec<f32>, Error> {
        self.check(tokens)?;
        self.recompute()?;
        let (mut rest, mut logits) = (tokens, vec![]);
        while let Some(chunk) = self.next_chunk(&mut rest, 1)? {
            logits = self.extend(chunk, usize::from(rest.is_empty()))?;
        }
        Ok(logits)
    }

    /// Returns the logits `[T, vocabulary]` after each of `tokens`, which start a new sequence.
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
        self.recompute()?;
        let mut logits = Vec::with_capacity(tokens.len() * self.model.config().vocab_size);
        let mut rest = tokens;
        while let Some(chunk) = self.next_chunk(&mut rest, tokens.len())? {
            logits.extend(self.extend(chunk, chunk.len())?);
        }
        Ok(logits)
    }

    /// Returns the hidden states `[T, hidden]` after the last norm for each of `tokens`, which start a new
    /// sequence. Logits and embeddings are computed from them.
    ///
    /// # Errors
    /// As [`Session::prefill`].
    pub fn hidden_states(&mut self, tokens: &[u32]) -> Result<Vec<f32>, Error> {
        self.rewind(0);
        self.check(tokens)?;
        self.recompute()?;
        let mut hidden = Vec::with_capacity(tokens.len() * self.model.config().hidden_size);
        let mut rest = tokens;
        while let Some(chunk) = self.next_chunk(&mut rest, tokens.len())? {
            let rows = self.compute(chunk, chunk.len(), RowOutput::Hidden);
            hidden.extend(self.extended(chunk, rows)?);
        }
        Ok(hidden)
    }

    /// Appends a prompt and starts decoding: the stream returns the tokens after it.
    ///
    /// # Errors
    /// As [`Session::prefill`], or if the settings do not fit on the device.
    pub fn stream(&mut self, prompt: &[u32], settings: &Settings) -> Result<Stream<'_>, Error> {
        self.stream_with(prompt, settings, StepExtras::default())
    }

    /// As [`Session::stream`], with a mask before each token ([`Stream::allow`]).
    pub(crate) fn constrained_stream(&mut self, prompt: &[u32], settings: &Settings) -> Result<Stream<'_>, Error> {
        self.stream_with(prompt, settings, StepExtras::ALLOWED)
    }

    fn stream_with(&mut self, prompt: &[u32], settings: &Settings, extras: StepExtras) -> Result<Stream<'_>, Error> {
        self.check(prompt)?;
        settings.encode()?;
        let Some((&last, before)) = prompt.split_last() else {
            return Err(Error::EmptyPrompt);
        };
        self.append(before)?;
        self.recompute()?;
        self.set_extras(extras)?;
        self.prepare_step(last, settings)?;
        Stream::new(self, last, settings)
    }

    /// Returns the logits `[S, vocabulary]` from which the last token of a stream was sampled.
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
        let logits = self.compute(chunk, wanted, RowOutput::Logits);
        self.extended(chunk, logits)
    }

    /// Adds the tokens of a chunk, if it was computed.
    fn extended(&mut self, chunk: &[u32], rows: Result<Vec<f32>, Error>) -> Result<Vec<f32>, Error> {
        if rows.is_ok() {
            self.tokens.extend(chunk);
        } else {
            // Recurrent states may have changed.
            self.invalidate_states();
        }
        rows
    }

    /// Computes a chunk. Returns the logits or hidden states of its last `wanted` tokens, of the last sequence.
    fn compute(&mut self, chunk: &[u32], wanted: usize, output: RowOutput) -> Result<Vec<f32>, Error> {
        let pages: Vec<u32> = (0..(self.sequences * self.pages.per_sequence) as u32).collect();
        let width = output.width(self.model.config());
        let mut rows = vec![];
        for sequence in 0..self.sequences {
            let piece = PrefillPiece {
                tokens: chunk,
                sequence,
                position: self.tokens.len(),
                next: None,
            };
            let chunk = PrefillChunk::single(piece, wanted, output);
            let function = self.prompts.run(&self.model, &self.states, &chunk, &pages)?;
            if wanted > 0 && sequence + 1 == self.sequences {
                rows = function.read_range(0, 0, wanted * width)?;
            }
        }
        Ok(rows)
    }

    /// Takes the tokens of the next call from the front of `rest`.
    fn next_chunk<'t>(&mut self, rest: &mut &'t [u32], wanted: usize) -> Result<Option<&'t [u32]>, Error> {
        if rest.is_empty() {
            return Ok(None);
        }
        let tokens = self.tokens_of_call(rest.len(), self.tokens.len(), wanted)?;
        let (chunk, later) = rest.split_at(tokens);
        *rest = later;
        Ok(Some(chunk))
    }

    /// Returns how many of `left` tokens after `held` others the next call computes, with outputs for the last `wanted`.
    /// If memory is too short for a long chunk, this one and later ones are shorter.
    fn tokens_of_call(&mut self, left: usize, held: usize, wanted: usize) -> Result<usize, Error> {
        let bound = if wanted > 1 { SHORT_CHUNK } else { MAX_CHUNK };
        let most = self.shorter_chunk.unwrap_or(self.chunk).min(bound);
        let most = max_chunk_tokens(&self.model, most, held);
        let asked = next_chunk(left, most);
        let last = wanted.min(usize::from(asked == left));
        let tokens = self.prompts.fit_to_memory(&self.model, &self.states, asked, last)?;
        if tokens < asked {
            self.shorter_chunk = Some(tokens);
        }
        Ok(tokens)
    }
}

mod decoding;
mod preparing;
