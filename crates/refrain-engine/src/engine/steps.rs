//! The decode steps of an engine: one for each number of rows and each set of optional parts. One of them is in use.
//!
//! What sampling keeps of a request lies at the request's slot, once for all steps. A row holds only the number of a
//! slot with its token and position, so that requests move between steps of different widths by a few words.

mod device_times;
mod masks;
mod outputs;

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};

use refrain::{Array, Executor, LowerOptions, MAX_INBOX_WORDS, Run, SharedScratch, Write};
use refrain_lm::sample::Settings;
use refrain_models::{LayerState, Pages};

use self::device_times::DeviceTimes;
use self::masks::Masks;
use super::row_count::rounded;
use super::runner::StepKind;
use super::speculation::{Draft, MAX_VERIFIED_TOKENS};
use crate::masks::MaskStates;
use crate::pace::Pace;
use crate::prefill::PrefillPiece;
use crate::step::{DecodeStep, SlotStates, StepExtras, StepOptions};
use crate::{Error, Model};

/// A slot, and the number of the request in it.
pub(super) type SlotId = (usize, u64);

/// Rows of all steps per slot, at most: each step keeps the logits of its rows.
pub(super) const MAX_STEP_ROWS: usize = 5;
/// Rows of all steps with drafts beyond those, at most: each token of a draft keeps logits too.
pub(super) const MAX_DRAFT_ROWS: usize = 2 * MAX_VERIFIED_TOKENS;

/// Tokens of a mixed step, rows included: matrix cores multiply by 128 rows or more at once, and more tokens would take
/// longer than running texts wait.
const MAX_MIXED_TOKENS: usize = 512;

/// Decode steps over the same states, pages and slots.
pub(super) struct DecodeSteps {
    by_kind: HashMap<StepKind, DecodeStep>,
    /// Their kinds, the least recently used first.
    recent: Vec<StepKind>,
    pages: Pages,
    /// Executes the steps.
    pub executor: &'static dyn Executor,
    scratch: SharedScratch,
    slots: SlotStates,
    /// The request whose settings, tokens and bias each slot has.
    loaded: Vec<Option<u64>>,
    /// The requests in the rows of the step in use.
    rows: Vec<Option<SlotId>>,
    masks: Masks,
    /// Where the device has them, once a step with masks was made.
    mask_states: Option<MaskStates>,
    extras: StepExtras,
    device_times: DeviceTimes,
    /// Words that the next submit writes to rows.
    changed: BTreeMap<(RowWord, usize), u32>,
    /// Whether the next submit writes the number of the next run.
    is_switched: bool,
    /// Settings that the next submit writes, by slot.
    settings: BTreeMap<usize, Vec<u32>>,
}

/// A word of a row.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum RowWord {
    Token,
    Position,
    Slot,
}

/// The position of an empty row: -1.
const EMPTY: u32 = u32::MAX;

/// A request that gets a row.
pub(super) struct RowRequest<'t> {
    pub slot_id: SlotId,
    pub tokens: &'t [u32],
    pub settings: &'t Settings,
    pub options: &'t crate::GenerateOptions,
}

impl DecodeSteps {
    /// Creates the state of `slots` slots, without any step.
    ///
    /// # Errors
    /// If there is too little memory.
    pub fn new(model: &Model, slots: usize, pages: Pages, scratch: &SharedScratch) -> Result<DecodeSteps, Error> {
        let (device, vocabulary) = (model.device(), model.config().vocab_size);
        Ok(DecodeSteps {
            by_kind: HashMap::new(),
            recent: vec![],
            pages,
            executor: device.executors()[0],
            scratch: scratch.clone(),
            slots: SlotStates::new(device, slots, vocabulary, pages.context)?,
            loaded: vec![None; slots],
            rows: vec![],
            masks: Masks::default(),
            mask_states: None,
            extras: StepExtras::default(),
            device_times: DeviceTimes::default(),
            changed: BTreeMap::new(),
            is_switched: false,
            settings: BTreeMap::new(),
        })
    }

    /// Returns the requests in the rows of the step in use.
    pub fn rows(&self) -> &[Option<SlotId>] {
        &self.rows
    }

    /// Returns the optional parts of the step in use.
    pub fn extras(&self) -> StepExtras {
        self.extras
    }

    /// Whether a step was made.
    pub fn has(&self, kind: StepKind) -> bool {
        self.by_kind.contains_key(&kind)
    }

    /// Makes the step of `rows` rows with `extras` the one in use, with empty rows. Nothing may be in flight.
    ///
    /// # Errors
    /// If the step cannot be made.
    pub fn use_rows(
        &mut self,
        (rows, extras): StepKind,
        model: &Model,
        states: &[LayerState],
        table: &Array,
    ) -> Result<(), Error> {
        self.prepare((rows, extras), model, states, table)?;
        self.recent.retain(|kind| *kind != (rows, extras));
        self.recent.push((rows, extras));
        (self.rows, self.extras) = (vec![None; rows], extras);
        self.device_times = DeviceTimes::default();
        self.masks = Masks::of(if extras.allowed { rows } else { 0 }, self.slots.counts.dim(1));
        self.changed = (0..rows).map(|row| ((RowWord::Position, row), EMPTY)).collect();
        self.is_switched = true;
        Ok(())
    }

    /// Makes the step of `rows` rows with `extras`, unless it is made.
    ///
    /// # Errors
    /// If it cannot be lowered, or there is too little memory.
    pub fn prepare(
        &mut self,
        (rows, extras): StepKind,
        model: &Model,
        states: &[LayerState],
        table: &Array,
    ) -> Result<(), Error> {
        let plain = (rows, StepExtras::default());
        self.make_room((rows, extras));
        if let Entry::Vacant(entry) = self.by_kind.entry(plain) {
            let options = StepOptions {
                lower: LowerOptions::default(),
                scratch: Some(self.scratch.clone()),
            };
            let slots = &self.slots;
            entry.insert(DecodeStep::trace(
                model,
                states,
                (rows, slots),
                table,
                self.pages,
                options,
            )?);
        }
        if extras.allowed && self.mask_states.is_none() {
            let (slots, vocabulary) = (self.loaded.len(), self.slots.counts.dim(1));
            self.mask_states = Some(MaskStates::new(model.device(), rounded(slots), vocabulary)?);
        }
        if !self.by_kind.contains_key(&(rows, extras)) {
            let step =
                self.by_kind[&plain].trace_with_extras(model, states, self.pages, extras, self.mask_states.as_ref())?;
            self.by_kind.insert((rows, extras), step);
        }
        for kind in [plain, (rows, extras)] {
            if !self.recent.contains(&kind) {
                self.recent.push(kind);
            }
        }
        let step = self.by_kind.get_mut(&(rows, extras)).expect("just made");
        Ok(step.prepare(self.executor)?)
    }

    /// Returns how many tokens of prompts the step in use can compute beside its rows.
    pub fn mixed_tokens(&self) -> usize {
        MAX_MIXED_TOKENS.saturating_sub(self.rows.len())
    }

    /// Whether the step in use can compute tokens of prompts.
    pub fn is_mixed(&self) -> bool {
        let kind = (self.rows.len(), self.extras);
        self.by_kind.get(&kind).is_some_and(DecodeStep::is_mixed)
    }

    /// Makes the program that computes tokens of prompts beside the rows of the step in use, unless it is made.
    ///
    /// # Errors
    /// If it cannot be lowered, or there is too little memory.
    pub fn prepare_mixed(&mut self, model: &Model, states: &[LayerState]) -> Result<(), Error> {
        let (pages, tokens, executor) = (self.pages, self.mixed_tokens(), self.executor);
        Ok(self.step().prepare_mixed(model, states, pages, tokens, executor)?)
    }

    /// Discards the least recently used steps if they would have too many rows together with a new one.
    fn make_room(&mut self, (rows, extras): StepKind) {
        let in_use = (self.rows.len(), self.extras);
        let needed = [(rows, StepExtras::default()), (rows, extras)];
        let has_drafts = extras.draft_tokens > 0 || self.recent.iter().any(|kind| kind.1.draft_tokens > 0);
        let draft_rows = if has_drafts { MAX_DRAFT_ROWS } else { 0 };
        let max = MAX_STEP_ROWS * rounded(self.loaded.len()) + draft_rows;
        let logits = |(rows, extras): &StepKind| rows * (1 + extras.draft_tokens);
        loop {
            let missing = needed.iter().filter(|kind| !self.by_kind.contains_key(kind));
            let new: usize = missing.map(logits).sum();
            let made: usize = self.by_kind.keys().map(logits).sum();
            let is_spare = |kind: &StepKind| *kind != in_use && !needed.contains(kind);
            let Some(index) = self
                .recent
                .iter()
                .position(is_spare)
                .filter(|_| new > 0 && made + new > max)
            else {
                return;
            };
            self.by_kind.remove(&self.recent.remove(index));
        }
    }

    /// Discards all steps. None is in use then.
    pub fn release(&mut self) {
        self.by_kind.clear();
        self.recent.clear();
        self.rows.clear();
        self.masks = Masks::default();
        self.mask_states = None;
        self.changed.clear();
    }

    fn step(&mut self) -> &mut DecodeStep {
        let kind = (self.rows.len(), self.extras);
        self.by_kind.get_mut(&kind).expect("made before it is used")
    }

    /// Gives a request a free row. Its state is written to its slot unless it is there already.
    ///
    /// # Errors
    /// If the device fails.
    pub fn join(&mut self, request: &RowRequest<'_>) -> Result<(), Error> {
        let (slot, number) = request.slot_id;
        if self.loaded[slot] != Some(number) {
            self.load(request)?;
            self.loaded[slot] = Some(number);
        }
        let row = self.rows.iter().position(Option::is_none).expect("a row for each");
        self.rows[row] = Some(request.slot_id);
        if self.extras.allowed {
            self.masks.set(row, None);
        }
        let last = *request.tokens.last().expect("a request has tokens");
        let position = (request.tokens.len() - 1) as u32;
        self.changed.insert((RowWord::Token, row), last);
        self.changed.insert((RowWord::Position, row), position);
        self.changed.insert((RowWord::Slot, row), slot as u32);
        Ok(())
    }

    /// Writes what sampling needs to know of a request to its slot.
    fn load(&mut self, request: &RowRequest<'_>) -> Result<(), Error> {
        let ((slot, _), tokens, settings) = (request.slot_id, request.tokens, request.settings);
        let (slots, vocabulary) = (&self.slots, self.slots.counts.dim(1));
        if settings.penalises() {
            let counts = refrain_lm::sample::initial_counts(tokens, settings, vocabulary);
            let history = 4 * slot * (self.pages.context + 1);
            slots.history.write_state(history, bytemuck::cast_slice(tokens))?;
            let row = 4 * slot * vocabulary;
            slots.counts.write_state(row, bytemuck::cast_slice(&counts))?;
        }
        if settings.biased {
            let bias = request.options.sampler.bias(vocabulary);
            let row = 4 * slot * vocabulary;
            slots.bias.write_state(row, bytemuck::cast_slice(&bias))?;
        }
        self.settings.insert(slot, settings.encode()?.to_vec());
        Ok(())
    }

    /// Has a request's state written to its slot again when it next gets a row.
    pub fn forget(&mut self, (slot, _): SlotId) {
        self.loaded[slot] = None;
    }

    /// Removes a request from its slot, and from its row if it has one.
    pub fn leave(&mut self, slot_id: SlotId) {
        self.loaded[slot_id.0] = None;
        let Some(row) = self.rows.iter().position(|other| *other == Some(slot_id)) else {
            return;
        };
        self.rows[row] = None;
        self.changed.insert((RowWord::Position, row), EMPTY);
    }

    /// Restricts the next token of a row to those whose bits are set; `None` allows all.
    pub fn allow(&mut self, row: usize, mask: Option<&[u32]>) {
        self.masks.set(row, mask);
    }

    /// Carries out the writes so far and `more`, and runs the step `runs` times. Returns the number of the first output.
    ///
    /// # Errors
    /// If the device fails.
    pub fn play(&mut self, more: Vec<Write>, runs: usize) -> Result<(u64, Vec<Run>), Error> {
        let writes = self.writes(more)?;
        let executor = self.executor;
        let step = self
            .by_kind
            .get_mut(&(self.rows.len(), self.extras))
            .expect("made before it is used");
        self.device_times.read(step, executor);
        let first = step.reports();
        Ok((first, step.play(executor, &writes, runs)?))
    }

    /// As `play`, but runs the step once together with pieces of prompts. [`DecodeSteps::prepare_mixed`] made the program.
    ///
    /// # Errors
    /// If the device fails.
    pub fn mix(&mut self, mut more: Vec<Write>, pieces: &[PrefillPiece<'_>]) -> Result<(u64, Vec<Run>), Error> {
        more.extend(self.step().chunk_writes(pieces));
        let writes = self.writes(more)?;
        let executor = self.executor;
        let step = self.step();
        let first = step.reports();
        Ok((first, step.play_mixed(executor, &writes)?))
    }

    /// As `play`, but runs a step with drafts once, with this draft of each row.
    ///
    /// # Errors
    /// If the device fails.
    pub fn verify(&mut self, mut more: Vec<Write>, drafts: &[Draft]) -> Result<(u64, Vec<Run>), Error> {
        let width = self.extras.draft_tokens;
        let states = self.step().control.drafts.as_ref().expect("a step with drafts");
        let row = |draft: &Draft| {
            let counts = [draft.tokens.len() as u32, draft.forced as u32];
            let padding = std::iter::repeat_n(0, width - draft.tokens.len());
            let tokens = draft.tokens.iter().copied().chain(padding);
            counts.into_iter().chain(tokens).collect::<Vec<u32>>()
        };
        more.push(write(&states.drafts, 0, drafts.iter().flat_map(row).collect()));
        self.play(more, 1)
    }

    /// Carries out the writes so far and `more`, and runs the step in use up to the logits. It is one with masks.
    ///
    /// # Errors
    /// If the device fails.
    pub fn forward(&mut self, more: Vec<Write>) -> Result<(), Error> {
        let writes = self.writes(more)?;
        let executor = self.executor;
        Ok(self.step().forward(executor, &writes)?)
    }

    /// Carries out the writes since [`DecodeSteps::forward`], and samples from its logits. Returns the number of the
    /// output, and the run.
    ///
    /// # Errors
    /// If the device fails.
    pub fn sample(&mut self) -> Result<(u64, Vec<Run>), Error> {
        let states = self.mask_states.as_ref().expect("a step with masks");
        self.masks.write_to(&states.allowed)?;
        let writes = self.writes(vec![])?;
        let executor = self.executor;
        let step = self.step();
        let first = step.reports();
        Ok((first, step.sample(executor, &writes)?))
    }

    /// Returns the writes so far and `more` that fit into a message. Others are carried out.
    fn writes(&mut self, more: Vec<Write>) -> Result<Vec<Write>, Error> {
        let mut writes = self.row_writes();
        writes.extend(more);
        let mut left = MAX_INBOX_WORDS.saturating_sub(writes.iter().map(|write| write.words.len()).sum());
        // Settings that do not fit into the message are written before it.
        for (slot, words) in std::mem::take(&mut self.settings) {
            let (state, at) = (&self.slots.settings, slot * words.len());
            match left.checked_sub(words.len()) {
                Some(less) => {
                    left = less;
                    writes.push(write(state, at, words));
                }
                None => state.write_state(4 * at, bytemuck::cast_slice(&words))?,
            }
        }
        Ok(writes)
    }

    /// Returns the writes of the rows that changed: at most four words a row.
    fn row_writes(&mut self) -> Vec<Write> {
        let changed = std::mem::take(&mut self.changed);
        let is_switched = std::mem::take(&mut self.is_switched);
        let step = self.step();
        let mut writes = if is_switched { step.run_number_writes() } else { vec![] };
        writes.extend(changed.into_iter().map(|((word, row), value)| {
            let state = match word {
                RowWord::Token => &step.control.tokens,
                RowWord::Position => &step.control.positions,
                RowWord::Slot => &step.control.sequences,
            };
            write(state, row, vec![value])
        }));
        writes
    }

    /// Waits until a run is over; returns how often it was polled.
    ///
    /// # Errors
    /// If the device fails.
    pub fn wait(&mut self, run: &Run, pace: &Pace) -> Result<u32, Error> {
        let executor = self.executor;
        let polls = pace.wait(self.step().tape(executor)?, run)?;
        self.device_times.add(run);
        Ok(polls)
    }
}

fn write(state: &Array, at: usize, words: Vec<u32>) -> Write {
    Write {
        state: state.clone(),
        at,
        words,
    }
}
