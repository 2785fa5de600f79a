//! A model's compiled programs: to look at them, to measure their steps, and to compare executors.

use refrain::{Array, Function, LowerOptions};
use refrain_lm::sample::Settings;
use refrain_models::{LayerState, Pages};

use crate::engine::{MAX_DRAFTS, PAGE_SIZE};
use crate::prefill::{
    MAX_CHUNK, PrefillChunk, PrefillPiece, PrefillPrograms, RowOutput, default_chunk, max_chunk_tokens, next_chunk,
};
use crate::step::{DecodeStep, SlotStates, StepExtras, StepOptions, page_table};
use crate::{Error, Model};

/// The decode step and the prompts' programs of a model, for some sequences with a KV cache of their own. They are the
/// programs of an [`Engine`](crate::Engine), which answers requests. They keep the model's weights alive.
pub struct Programs {
    model: Model,
    states: Vec<LayerState>,
    pages: Pages,
    sequences: usize,
    lowering: LowerOptions,
    prompts: PrefillPrograms,
    step: Option<DecodeStep>,
}

impl Programs {
    /// Allocates the KV cache of `sequences` sequences with up to `context` tokens each.
    ///
    /// # Errors
    /// If the context exceeds the model's limit, or there is too little memory for the KV cache.
    pub fn new(model: &Model, context: usize, sequences: usize) -> Result<Programs, Error> {
        let limit = model.config().max_position;
        if context == 0 || context > limit {
            let requested = context;
            return Err(Error::ContextRange { requested, limit });
        }
        let pages = Pages {
            size: PAGE_SIZE,
            per_sequence: context.div_ceil(PAGE_SIZE),
            context,
        };
        Ok(Programs {
            model: model.clone(),
            states: model.decoder().new_states(model.cache_types(), pages, sequences)?,
            pages,
            sequences,
            lowering: LowerOptions::default(),
            prompts: PrefillPrograms::new(sequences, pages),
            step: None,
        })
    }

    /// Sets how programs are lowered, and discards existing ones.
    pub fn set_lowering(&mut self, options: LowerOptions) {
        self.lowering = options;
        self.prompts.set_lowering(options);
        self.step = None;
    }

    /// Returns the program of the decode step.
    ///
    /// # Errors
    /// If it cannot be lowered, or there is too little memory.
    pub fn decode_function(&mut self) -> Result<&Function, Error> {
        Ok(self.step()?.function())
    }

    /// Prints the program of the decode step after a pass, one of [`refrain::passes::STAGE_NAMES`].
    ///
    /// # Errors
    /// As [`Programs::decode_function`], or if there is no such pass.
    pub fn decode_program(&mut self, after: &str) -> Result<String, Error> {
        Ok(self.step()?.print_after(after)?)
    }

    /// Makes the decode step verify a draft of `tokens` tokens, at most [`MAX_DRAFTS`], in each sequence. If the model was
    /// loaded with a multi-token prediction head, it drafts as many.
    ///
    /// # Errors
    /// As [`Programs::decode_function`].
    pub fn verify_drafts(&mut self, tokens: usize) -> Result<(), Error> {
        let (model, types) = (&self.model, self.model.cache_types());
        let has_state = self.states.len() > model.config().layers;
        if let Some(head) = model.decoder().mtp_head().filter(|_| !has_state) {
            self.states.push(head.new_state(types, self.pages, self.sequences)?);
        }
        let extras = StepExtras {
            draft_tokens: tokens.min(MAX_DRAFTS),
            ..StepExtras::default()
        };
        self.step()?;
        let plain = self.step.as_ref().expect("just traced");
        self.step = Some(plain.trace_with_extras(&self.model, &self.states, self.pages, extras, None)?);
        Ok(())
    }

    /// Returns the program that prefills a chunk of `tokens` tokens, padded to its shape class, and computes the
    /// logits after the last one.
    ///
    /// # Errors
    /// As [`Programs::decode_function`].
    pub fn prefill_function(&mut self, tokens: usize) -> Result<&Function, Error> {
        let tokens = tokens.clamp(1, MAX_CHUNK);
        self.prompts.function(&self.model, &self.states, tokens, 1)
    }

    /// Prints that program after a pass, one of [`refrain::passes::STAGE_NAMES`].
    ///
    /// # Errors
    /// As [`Programs::decode_function`], or if there is no such pass.
    pub fn prefill_program(&mut self, tokens: usize, after: &str) -> Result<String, Error> {
        let tokens = tokens.clamp(1, MAX_CHUNK);
        self.prompts.print_after(&self.model, &self.states, tokens, 1, after)
    }

    /// Returns the decode step, traced on first use.
    pub(crate) fn step(&mut self) -> Result<&mut DecodeStep, Error> {
        if self.step.is_none() {
            let (device, config) = (self.model.device(), self.model.config());
            let table = page_table(device, self.sequences, self.pages)?;
            table.write_state(0, bytemuck::cast_slice(&self.page_numbers()))?;
            let slots = SlotStates::new(device, self.sequences, config.vocab_size, self.pages.context)?;
            let options = StepOptions {
                lower: self.lowering,
                scratch: None,
            };
            let sequences = (self.sequences, &slots);
            let step = DecodeStep::trace(&self.model, &self.states, sequences, &table, self.pages, options)?;
            self.step = Some(step);
        }
        Ok(self.step.as_mut().expect("just traced"))
    }

    /// The pages of the sequences, in order: those of the first come first.
    fn page_numbers(&self) -> Vec<u32> {
        (0..(self.sequences * self.pages.per_sequence) as u32).collect()
    }

    /// Computes the first tokens of the first sequence.
    pub(crate) fn prefill(&mut self, tokens: &[u32]) -> Result<(), Error> {
        let (mut rest, mut position) = (tokens, 0);
        while !rest.is_empty() {
            let most = max_chunk_tokens(&self.model, default_chunk(self.model.device()), position);
            let (chunk, later) = rest.split_at(next_chunk(rest.len(), most));
            self.prefill_chunk(chunk, position, later.first().copied(), 0)?;
            (position, rest) = (position + chunk.len(), later);
        }
        Ok(())
    }

    /// Computes a prompt of the first sequence, its last token by the decode step, whose next run sees the most likely token
    /// behind it. Returns the logits `[vocabulary]` after the prompt.
    ///
    /// # Errors
    /// If the prompt is empty, or the device fails.
    pub fn begin(&mut self, prompt: &[u32]) -> Result<Vec<f32>, Error> {
        let (&last, before) = prompt.split_last().ok_or(Error::EmptyPrompt)?;
        self.prefill(before)?;
        self.place(last, before.len())?;
        let (executor, vocabulary) = (self.model.device().executors()[0], self.model.config().vocab_size);
        let step = self.step()?;
        for run in step.play(executor, &[], 1)? {
            step.tape(executor)?.wait(&run)?;
        }
        Ok(step.function().read_range(1, 0, vocabulary)?)
    }

    /// Makes the next run of the decode step see a token at a position of each sequence.
    pub(crate) fn place(&mut self, token: u32, position: usize) -> Result<(), Error> {
        self.check(position + 1)?;
        let step = self.step()?;
        let settings = step.settings_writes(&Settings::default())?;
        for write in [step.position_writes(token, position), settings].concat() {
            write
                .state
                .write_state(4 * write.at, bytemuck::cast_slice(&write.words))?;
        }
        Ok(())
    }

    /// Fails if so many tokens do not fit.
    fn check(&self, tokens: usize) -> Result<(), Error> {
        let context = self.pages.context;
        if tokens > context {
            return Err(Error::ContextFull { tokens, context });
        }
        Ok(())
    }

    /// Computes a chunk of the first sequence from `position` on, before token `next` if it is known, with the logits of the
    /// last `wanted` tokens: 0 or 1.
    pub(crate) fn prefill_chunk(
        &mut self,
        tokens: &[u32],
        position: usize,
        next: Option<u32>,
        wanted: usize,
    ) -> Result<(), Error> {
        self.check(position + tokens.len())?;
        let pages = self.page_numbers();
        let piece = PrefillPiece {
            tokens,
            sequence: 0,
            position,
            next,
        };
        let chunk = PrefillChunk::single(piece, wanted, RowOutput::default());
        self.prompts.run(&self.model, &self.states, &chunk, &pages)?;
        Ok(())
    }

    /// Writes what sampling needs to know of the first sequence: `tokens`, and the bias.
    pub(crate) fn load(&mut self, tokens: &[u32], settings: &Settings, bias: &[f32]) -> Result<(), Error> {
        let vocabulary = self.model.config().vocab_size;
        let slots = &self.step()?.control.slots;
        if settings.penalises() {
            let counts = refrain_lm::sample::initial_counts(tokens, settings, vocabulary);
            slots.history.write_state(0, bytemuck::cast_slice(tokens))?;
            slots.counts.write_state(0, bytemuck::cast_slice(&counts))?;
        }
        if settings.biased {
            slots.bias.write_state(0, bytemuck::cast_slice(bias))?;
        }
        Ok(())
    }

    /// Reads the keys, values and recurrent states of `tokens` tokens of a single sequence.
    pub(crate) fn read_states(&self, tokens: usize) -> Result<Vec<Vec<u8>>, Error> {
        let read = |(state, array): (&LayerState, &Array)| {
            // Pages are in order, so that rows are positions.
            let rows = match state {
                LayerState::Attention(_) => tokens,
                LayerState::Recurrent(_) => array.dim(0),
            };
            let mut bytes = vec![0; rows * array.shape()[1..].iter().product::<usize>() * array.dtype().size()];
            array.read_state(0, &mut bytes)?;
            Ok(bytes)
        };
        self.arrays().map(read).collect()
    }

    /// Writes what [`Programs::read_states`] returned.
    pub(crate) fn write_states(&self, states: &[Vec<u8>]) -> Result<(), Error> {
        let mut pairs = self.arrays().zip(states);
        pairs.try_for_each(|((_, array), bytes)| Ok(array.write_state(0, bytes)?))
    }

    fn arrays(&self) -> impl Iterator<Item = (&LayerState, &Array)> {
        let states = self.states.iter();
        states.flat_map(|state| state.arrays().map(move |array| (state, array)))
    }
}
