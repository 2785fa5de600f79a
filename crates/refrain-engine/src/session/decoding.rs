//! The decode step of a session, which its streams run.

use super::*;
use crate::engine::MAX_DRAFTS;
use crate::step::{SlotStates, StepExtras, StepOptions, page_table};

/// Maximum number of pages that are written with a submit. More, after a long prompt, are written before it.
const MAX_INLINE_PAGES: usize = refrain::MAX_INBOX_WORDS / 4;

impl Session {
    /// Sets how tokens are decoded; [`Mode::Auto`] is what `cache` has of the model.
    pub fn set_mode(&mut self, mode: Mode, cache: Option<ModeCache>) {
        self.decoding.mode = mode;
        self.decoding.choice = cache.and_then(|cache| cache.choice(&self.model));
    }

    /// Sets how many tokens one submit decodes; `None` for as many as fit in 50 ms, at most 32.
    pub fn set_tokens_per_submit(&mut self, tokens: Option<usize>) {
        self.decoding.tokens_per_submit = tokens.map(|tokens| tokens.clamp(1, 64));
    }

    /// Sets how programs are lowered, and discards existing programs.
    pub fn set_lowering(&mut self, options: LowerOptions) {
        self.decoding.options = options;
        self.prompts.set_lowering(options);
        self.step = None;
    }

    /// Returns the current executor, and the measurement that chose it, if any.
    pub fn mode(&self) -> (&'static dyn Executor, Option<ModeChoice>) {
        let choice = self.decoding.choice.clone();
        (self.executor(), choice.filter(|_| self.decoding.mode == Mode::Auto))
    }

    /// Returns the decode step's program, for `explain` and profiles.
    ///
    /// # Errors
    /// As [`Session::prepare`].
    pub fn decode_function(&mut self) -> Result<&Function, Error> {
        Ok(self.step()?.function())
    }

    /// Makes the decode step verify a draft of `tokens` tokens, at most [`MAX_DRAFTS`], in each sequence, for `explain` and
    /// profiles. If the model was loaded with a multi-token prediction head, it drafts as many. The next stream decodes
    /// without drafts again.
    ///
    /// # Errors
    /// As [`Session::prepare`].
    pub fn verify_drafts(&mut self, tokens: usize) -> Result<(), Error> {
        let (model, types) = (&self.model, self.model.cache_types());
        let has_state = self.states.len() > model.config().layers;
        if let Some(head) = model.decoder().mtp_head().filter(|_| !has_state) {
            self.states.push(head.new_state(types, self.pages, self.sequences)?);
        }
        self.set_extras(StepExtras {
            draft_tokens: tokens.min(MAX_DRAFTS),
            ..StepExtras::default()
        })
    }

    /// Runs the decode step once more for the last token of the last stream. Returns the microseconds of each step
    /// of its plan.
    ///
    /// # Errors
    /// As [`Session::prepare`], or if the device has no timestamps.
    pub fn profile(&mut self) -> Result<Vec<f64>, Error> {
        self.invalidate_states();
        Ok(self.step()?.profile()?)
    }

    /// Prints the decode step's program after a pass, one of [`refrain::passes::STAGE_NAMES`].
    ///
    /// # Errors
    /// As [`Session::prepare`], or if there is no such pass.
    pub fn decode_program(&mut self, after: &str) -> Result<String, Error> {
        Ok(self.step()?.print_after(after)?)
    }

    /// Returns the program that prefills a chunk of `tokens` tokens, padded to its shape class, and computes the
    /// logits after the last one.
    ///
    /// # Errors
    /// As [`Session::prepare`].
    pub fn prefill_function(&mut self, tokens: usize) -> Result<&Function, Error> {
        let tokens = tokens.clamp(1, MAX_CHUNK);
        self.prompts.function(&self.model, &self.states, tokens, 1)
    }

    /// Prints that program after a pass, one of [`refrain::passes::STAGE_NAMES`].
    ///
    /// # Errors
    /// As [`Session::prepare`], or if there is no such pass.
    pub fn prefill_program(&mut self, tokens: usize, after: &str) -> Result<String, Error> {
        let tokens = tokens.clamp(1, MAX_CHUNK);
        self.prompts.print_after(&self.model, &self.states, tokens, 1, after)
    }

    /// Copies the decoding settings of another session, except the bias.
    pub(crate) fn decode_like(&mut self, other: &Session) {
        (self.chunk, self.shorter_chunk) = (other.chunk, other.shorter_chunk);
        self.prompts.set_lowering(other.decoding.options);
        self.decoding = other.decoding.clone();
    }

    /// Returns the pace of the last stream.
    pub(crate) fn pace(&self) -> Pace {
        self.decoding.pace.clone()
    }

    pub(crate) fn keep_pace(&mut self, pace: Pace) {
        self.decoding.pace = pace;
    }

    /// Returns the current executor.
    pub(crate) fn executor(&self) -> &'static dyn Executor {
        let executors = self.model.device().executors();
        match (self.decoding.mode, &self.decoding.choice) {
            (Mode::Fixed(executor), _) => executor,
            (Mode::Auto, Some(choice)) => choice.executor(executors),
            (Mode::Auto, None) => executors[0],
        }
    }

    pub(crate) fn tokens_per_submit(&self) -> Option<usize> {
        self.decoding.tokens_per_submit
    }

    /// Replaces the decode step by one with these optional parts.
    pub(crate) fn set_extras(&mut self, extras: StepExtras) -> Result<(), Error> {
        if self.step()?.extras != extras {
            let step = self.step.as_ref().expect("traced");
            let other = step.trace_with_extras(&self.model, &self.states, self.pages, extras, None)?;
            self.model_calls += 1;
            self.step = Some(other);
        }
        Ok(())
    }

    /// Returns the decode step, traced on first use.
    pub(crate) fn step(&mut self) -> Result<&mut DecodeStep, Error> {
        if self.step.is_none() {
            let (device, vocabulary) = (self.model.device(), self.vocabulary());
            let table = page_table(device, self.sequences, self.pages)?;
            let slots = SlotStates::new(device, self.sequences, vocabulary, self.context)?;
            let step = DecodeStep::trace(
                &self.model,
                &self.states,
                (self.sequences, &slots),
                &table,
                self.pages,
                StepOptions {
                    lower: self.decoding.options,
                    scratch: None,
                },
            )?;
            self.model_calls += 1;
            self.rollback = Rollback::new(&self.states, self.model.device().executors()[0])?;
            self.step = Some(step);
        }
        Ok(self.step.as_mut().expect("just traced"))
    }

    /// Writes the history and counts of the tokens so far and of `last` to the device, if the settings need them.
    pub(crate) fn prepare_step(&mut self, last: u32, settings: &Settings) -> Result<(), Error> {
        let vocabulary = self.model.config().vocab_size;
        let tokens: Vec<u32> = self.tokens.iter().copied().chain([last]).collect();
        let (sequences, context) = (self.sequences, self.context);
        self.clear_history();
        let step = self.step()?;
        if settings.penalises() {
            let counts = refrain_lm::sample::initial_counts(&tokens, settings, vocabulary);
            for sequence in 0..sequences {
                let (history, row) = (&step.control.slots.history, 4 * sequence * (context + 1));
                history.write_state(row, bytemuck::cast_slice(&tokens))?;
                let row = 4 * sequence * vocabulary;
                step.control
                    .slots
                    .counts
                    .write_state(row, bytemuck::cast_slice(&counts))?;
            }
        }
        Ok(())
    }

    /// Discards copies of earlier states.
    pub(crate) fn clear_history(&mut self) {
        self.stale = false;
        if let Some(rollback) = &mut self.rollback {
            rollback.clear();
        }
    }

    /// Sets the values that are added to the logits, for settings with a bias.
    ///
    /// # Errors
    /// If the number of values is not the vocabulary size, or the device fails.
    pub fn set_bias(&mut self, bias: &[f32]) -> Result<(), Error> {
        let (sequences, vocabulary) = (self.sequences, self.vocabulary());
        if bias.len() != vocabulary {
            let found = bias.len();
            return Err(Error::BiasLength { found, vocabulary });
        }
        let step = self.step()?;
        for sequence in 0..sequences {
            let row = 4 * sequence * bias.len();
            step.control.slots.bias.write_state(row, bytemuck::cast_slice(bias))?;
        }
        Ok(())
    }

    /// Returns writes of the pages that positions below `last` need and the device does not know yet, and how many pages
    /// of each sequence it knows after them.
    fn grant(&mut self, last: usize) -> Result<(Vec<Write>, usize), Error> {
        let (table, sequences) = (self.pages.per_sequence, self.sequences);
        let needed = last.div_ceil(self.pages.size).min(table);
        let step = self.step()?;
        let new = step.granted..needed;
        if new.is_empty() {
            return Ok((vec![], step.granted));
        }
        let pages = &step.control.pages;
        let row = |sequence: usize| Write {
            state: pages.clone(),
            at: sequence * table + new.start,
            words: new.clone().map(|page| (sequence * table + page) as u32).collect(),
        };
        let rows: Vec<Write> = (0..sequences).map(row).collect();
        if sequences * new.len() <= MAX_INLINE_PAGES {
            return Ok((rows, needed));
        }
        for row in rows {
            pages.write_state(4 * row.at, bytemuck::cast_slice(&row.words))?;
        }
        Ok((vec![], needed))
    }

    /// Blocks until a run is over.
    pub(crate) fn wait(&mut self, run: &Run) -> Result<(), Error> {
        let executor = self.executor();
        Ok(self.step()?.tape(executor)?.wait(run)?)
    }

    /// Carries out writes and runs the decode step, for positions below `last`. After a failure, the writes may or may
    /// not have happened, so the next call repeats them.
    pub(crate) fn play(&mut self, writes: &[Write], last: usize, runs: usize) -> Result<Vec<Run>, Error> {
        let executor = self.executor();
        let number = self.step()?.reports();
        let (pages, granted) = self.grant(last)?;
        let writes = [writes, &pages[..]].concat();
        let (step, rollback) = (self.step.as_mut().expect("traced"), &mut self.rollback);
        let before: Option<&Tape> = rollback.as_ref().map(Rollback::save);
        let played = step.play(executor, before, &writes, runs);
        step.granted = if played.is_ok() { granted } else { 0 };
        if let Some(rollback) = rollback {
            rollback.saved(played.is_ok().then_some(number));
        }
        Ok(played?)
    }

    /// Appends `seen` to the session's tokens: the inputs of the runs from number `first_run` on. `beyond` says that the
    /// device ran further steps after them.
    pub(crate) fn settle(&mut self, seen: &[u32], first_run: u64, beyond: bool) -> Result<(), Error> {
        let base = self.tokens.len();
        self.tokens.extend(seen);
        if beyond && self.is_recurrent() {
            self.go_back(seen, base, first_run)?;
        } else {
            self.stale = false;
        }
        Ok(())
    }

    /// Brings recurrent states back to the end of `seen`: the tokens from position `base` on, the first of them the input
    /// of run number `first_run`.
    fn go_back(&mut self, seen: &[u32], base: usize, first_run: u64) -> Result<(), Error> {
        let end = first_run + seen.len() as u64;
        let copied = match &mut self.rollback {
            Some(rollback) => rollback.restore(end)?,
            None => None,
        };
        // Without a copy, the states are recomputed later.
        let Some(copied) = copied else { return Ok(()) };
        // The tokens since are run again, with the same program on the same numbers.
        let executor = self.executor();
        for run in copied..end {
            let number = (run - first_run) as usize;
            let (token, position) = (seen[number], base + number);
            let step = self.step.as_mut().expect("a stream has a step");
            let writes = step.position_writes(token, position);
            step.play(executor, None, &writes, 1)?;
        }
        self.stale = false;
        Ok(())
    }
}
