//! The decode steps of an engine, one for each number of rows and what is done beside, and who sits in their rows.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use refrain::{Array, Executor, LowerOptions, Run, Write};
use refrain_lm::Logprobs;
use refrain_lm::sample::Settings;
use refrain_models::{LayerState, Pages};

use crate::pace::Pace;
use crate::step::{DecodeStep, StepExtras};
use crate::{Error, Model};

/// Who sits in a row: a slot, and the number of its request.
pub(super) type SlotId = (usize, u64);

/// Steps of 1, 2, 4 … rows over the same states and pages, with what they do beside. One of them is in use.
pub(super) struct DecodeSteps {
    by_kind: HashMap<(usize, StepExtras), DecodeStep>,
    pages: Pages,
    executor: &'static dyn Executor,
    /// Seats of the step in use.
    rows: Vec<Option<SlotId>>,
    extras: StepExtras,
    /// Writes that the next submit begins with.
    writes: Vec<Write>,
}

/// What a sequence that takes a row brings along.
pub(super) struct Admission<'t> {
    pub slot_id: SlotId,
    pub tokens: &'t [u32],
    pub settings: &'t Settings,
    /// Added to its logits, `[V]`; empty if nothing is.
    pub bias: Vec<f32>,
}

impl DecodeSteps {
    pub fn new(pages: Pages, executor: &'static dyn Executor) -> DecodeSteps {
        DecodeSteps {
            by_kind: HashMap::new(),
            pages,
            executor,
            rows: vec![],
            extras: StepExtras::default(),
            writes: vec![],
        }
    }

    /// Seats by row.
    pub fn rows(&self) -> &[Option<SlotId>] {
        &self.rows
    }

    /// What the step in use does beside.
    pub fn extras(&self) -> StepExtras {
        self.extras
    }

    /// Makes the step of so many rows with `extras` the one in use, all rows empty. Nothing may be in flight.
    pub fn use_rows(
        &mut self,
        (rows, extras): (usize, StepExtras),
        model: &Model,
        states: &[LayerState],
        table: &Array,
    ) -> Result<(), Error> {
        self.prepare((rows, extras), model, states, table)?;
        (self.rows, self.extras) = (vec![None; rows], extras);
        self.writes.clear();
        let step = self.step();
        let leave = write(&step.control.positions, 0, vec![-1i32 as u32; rows]);
        let number = step.run_number_writes();
        self.writes.push(leave);
        self.writes.extend(number);
        Ok(())
    }

    /// Makes the step of so many rows with `extras`, if there is none yet.
    pub fn prepare(
        &mut self,
        (rows, extras): (usize, StepExtras),
        model: &Model,
        states: &[LayerState],
        table: &Array,
    ) -> Result<(), Error> {
        let plain = (rows, StepExtras::default());
        if let Entry::Vacant(place) = self.by_kind.entry(plain) {
            let options = LowerOptions::default();
            place.insert(DecodeStep::trace(model, states, rows, table, self.pages, options)?);
        }
        if !self.by_kind.contains_key(&(rows, extras)) {
            let step = self.by_kind[&plain].trace_with_extras(model, states, self.pages, extras)?;
            self.by_kind.insert((rows, extras), step);
        }
        let step = self.by_kind.get_mut(&(rows, extras)).expect("just made");
        Ok(step.tape(self.executor)?.prepare_writes()?)
    }

    /// Lets go of all steps; none is in use then.
    pub fn release(&mut self) {
        self.by_kind.clear();
        self.rows.clear();
        self.writes.clear();
    }

    fn step(&mut self) -> &mut DecodeStep {
        self.by_kind
            .get_mut(&(self.rows.len(), self.extras))
            .expect("traced before it is used")
    }

    /// Puts a sequence into a free row.
    pub fn join(&mut self, admission: Admission<'_>) -> Result<(), Error> {
        let row = self.rows.iter().position(Option::is_none).expect("rows for all");
        self.rows[row] = Some(admission.slot_id);
        let (tokens, settings) = (admission.tokens, admission.settings);
        let last = *tokens.last().expect("a token at least");
        let context = self.pages.context;
        let control = &self.step().control;
        if settings.penalises() {
            let vocabulary = control.counts.shape()[1];
            let counts = refrain_lm::sample::initial_counts(tokens, settings, vocabulary);
            let history = 4 * row * (context + 1);
            control.history.write_state(history, bytemuck::cast_slice(tokens))?;
            control
                .counts
                .write_state(4 * row * vocabulary, bytemuck::cast_slice(&counts))?;
        }
        if settings.biased {
            let at = 4 * row * admission.bias.len();
            control.bias.write_state(at, bytemuck::cast_slice(&admission.bias))?;
        }
        if let Some(allowed) = self.step().control.allowed.clone() {
            let words = allowed.shape()[1];
            allowed.write_state(4 * row * words, &vec![u8::MAX; 4 * words])?;
        }
        let control = &self.step().control;
        let words = settings.encode()?.to_vec();
        let writes = [
            write(&control.tokens, row, vec![last]),
            write(&control.positions, row, vec![(tokens.len() - 1) as u32]),
            write(&control.sequences, row, vec![admission.slot_id.0 as u32]),
            write(&control.settings, row * words.len(), words),
        ];
        self.writes.extend(writes);
        Ok(())
    }

    /// Empties the row of a sequence, if it has one.
    pub fn leave(&mut self, slot_id: SlotId) {
        let Some(row) = self.rows.iter().position(|other| *other == Some(slot_id)) else {
            return;
        };
        self.rows[row] = None;
        let leave = write(&self.step().control.positions, row, vec![-1i32 as u32]);
        self.writes.push(leave);
    }

    /// Lets the next run pick only the tokens of a sequence whose bits are set.
    pub fn allow(&mut self, row: usize, bits: &[u32]) -> Result<(), Error> {
        let allowed = self.step().control.allowed.as_ref().expect("a step that asks");
        Ok(allowed.write_state(4 * row * bits.len(), bytemuck::cast_slice(bits))?)
    }

    /// Carries out what changed, `more` besides, and runs the step `runs` times; the number of the first.
    pub fn play(&mut self, more: Vec<Write>, runs: usize) -> Result<(u64, Vec<Run>), Error> {
        let mut writes = std::mem::take(&mut self.writes);
        writes.extend(more);
        let executor = self.executor;
        let step = self.step();
        let first = step.runs();
        Ok((first, step.play(executor, None, &writes, runs)?))
    }

    /// Blocks until a run is over; how often it was looked at.
    pub fn wait(&mut self, run: &Run, pace: &Pace) -> Result<u32, Error> {
        let executor = self.executor;
        pace.wait(self.step().tape(executor)?, run, 1)
    }

    /// What run number `run` reported of a row, once it is over.
    pub fn reported(&mut self, run: u64, row: usize) -> Result<u32, Error> {
        Ok(self.step().reported(run, row)?)
    }

    /// How likely the token was that run number `run` picked in a row, and others, once it is over; `None` if the step in
    /// use does not say.
    pub fn logprobs(&mut self, run: u64, row: usize) -> Result<Option<Logprobs>, Error> {
        let ring = self.step().control.logprobs.clone();
        let ring = ring.filter(|_| self.extras.logprobs);
        Ok(ring.map(|ring| ring.read(row, run)).transpose()?)
    }
}

fn write(state: &Array, at: usize, words: Vec<u32>) -> Write {
    Write {
        state: state.clone(),
        at,
        words,
    }
}
