//! A model of a device, with made-up costs and a token that is a hash of its history.
//!
//! It reads keys and values through the page table, as a device does, so a wrong page gives a wrong token.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use refrain_lm::Logprobs;
use refrain_lm::sample::FINISHED;

use crate::engine::PAGE_SIZE;
use crate::engine::runner::{Runner, StepKind};
use crate::engine::steps::{RowRequest, SlotId};
use crate::pace::Pace;
use crate::prefill::PrefillPiece;
use crate::step::StepExtras;
use crate::{Error, GenerateOptions};

pub const VOCABULARY: u32 = 50;

/// Times of a device in microseconds.
#[derive(Clone, Copy)]
pub struct Costs {
    /// Of a step with so many rows.
    pub step: fn(usize) -> u64,
    /// Of a chunk with so many tokens.
    pub chunk: fn(usize) -> u64,
}

/// How a simulated device behaves.
#[derive(Clone, Copy)]
pub struct Simulation {
    pub costs: Costs,
    pub slots: usize,
    pub pages: usize,
    pub pages_each: usize,
    /// Checkpoints of recurrent states, if it has such states.
    pub checkpoints: Option<usize>,
    pub synchronous: bool,
    /// Memory runs out at one of so many calls; 0 for never.
    pub fails_once_in: u64,
    pub seed: u64,
}

pub struct SimulatedRunner {
    simulation: Simulation,
    start: Instant,
    clock: Duration,
    /// When all submitted work is done.
    busy_until: Duration,
    /// Keys and values, by page and position.
    cells: Vec<u64>,
    states: Vec<u64>,
    saved: Vec<u64>,
    table: Vec<u32>,
    made: HashSet<StepKind>,
    rows: Vec<Option<SlotId>>,
    decoding: Vec<Option<Decoding>>,
    extras: StepExtras,
    outputs: Vec<Vec<u32>>,
    random: u64,
    /// Tokens of prompts that were computed.
    pub prefilled: usize,
    /// Calls that computed them.
    pub chunks: usize,
}

/// A sequence in a row.
struct Decoding {
    token: u32,
    position: usize,
    last_position: usize,
    stop_ids: Vec<u32>,
}

fn mix(hash: u64, word: u64) -> u64 {
    (hash ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23)
}

fn cell(token: u32, position: usize) -> u64 {
    mix(u64::from(token), position as u64)
}

/// Returns what a device makes of tokens: the hash of their cells and of the recurrent state.
fn summary(cells: impl Iterator<Item = u64>, state: u64) -> u64 {
    mix(cells.fold(1, mix), state)
}

fn advance(state: u64, token: u32, position: usize) -> u64 {
    mix(if position == 0 { 7 } else { state }, u64::from(token))
}

/// Returns the hash of a sequence that is computed alone.
pub fn alone(tokens: &[u32], is_recurrent: bool) -> u64 {
    let numbered = || tokens.iter().zip(0..);
    let state = numbered().fold(0, |state, (&token, position)| advance(state, token, position));
    let cells = numbered().map(|(&token, position)| cell(token, position));
    summary(cells, if is_recurrent { state } else { 0 })
}

/// Returns the token with this hash.
pub fn token_of(hash: u64) -> u32 {
    (hash >> 33) as u32 % VOCABULARY
}

impl SimulatedRunner {
    pub fn new(simulation: Simulation) -> SimulatedRunner {
        SimulatedRunner {
            simulation,
            start: Instant::now(),
            clock: Duration::ZERO,
            busy_until: Duration::ZERO,
            cells: vec![0; simulation.pages * PAGE_SIZE],
            states: vec![0; simulation.slots],
            saved: vec![0; simulation.checkpoints.unwrap_or(0)],
            table: vec![0; simulation.slots * simulation.pages_each],
            made: HashSet::new(),
            rows: vec![],
            decoding: vec![],
            extras: StepExtras::default(),
            outputs: vec![],
            random: simulation.seed,
            prefilled: 0,
            chunks: 0,
        }
    }

    /// Returns the time that has passed.
    pub fn elapsed(&self) -> Duration {
        self.clock
    }

    fn work(&mut self, micros: u64) -> Duration {
        self.busy_until = self.busy_until.max(self.clock) + Duration::from_micros(micros);
        if self.simulation.synchronous {
            self.clock = self.busy_until;
        }
        self.busy_until
    }

    fn allocate(&mut self) -> Result<(), Error> {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let once_in = self.simulation.fails_once_in;
        if once_in > 0 && (self.random >> 33).is_multiple_of(once_in) {
            let (requested, limit) = (2, 1);
            let full = refrain_vulkan::Error::BufferTooLarge { requested, limit };
            return Err(refrain::Error::from(full).into());
        }
        Ok(())
    }

    fn cell_at(&mut self, table: &[u32], slot: usize, position: usize) -> &mut u64 {
        let page = table[slot * self.simulation.pages_each + position / PAGE_SIZE] as usize;
        &mut self.cells[page * PAGE_SIZE + position % PAGE_SIZE]
    }

    /// Computes a token into its page and the recurrent state.
    fn compute(&mut self, table: &[u32], slot: usize, token: u32, position: usize) {
        *self.cell_at(table, slot, position) = cell(token, position);
        self.states[slot] = advance(self.states[slot], token, position);
    }

    fn hash(&mut self, table: &[u32], slot: usize, position: usize) -> u64 {
        let is_recurrent = self.simulation.checkpoints.is_some();
        let state = if is_recurrent { self.states[slot] } else { 0 };
        let cells: Vec<u64> = (0..=position)
            .map(|position| *self.cell_at(table, slot, position))
            .collect();
        summary(cells.into_iter(), state)
    }

    fn run(&mut self) {
        let table = self.table.clone();
        let mut output = vec![FINISHED; self.rows.len()];
        for (row, output) in output.iter_mut().enumerate() {
            let (Some((slot, _)), Some(mut decoding)) = (self.rows[row], self.decoding[row].take()) else {
                continue;
            };
            self.compute(&table, slot, decoding.token, decoding.position);
            let next = token_of(self.hash(&table, slot, decoding.position));
            *output = next;
            decoding.token = next;
            decoding.position += 1;
            if decoding.position < decoding.last_position && !decoding.stop_ids.contains(&next) {
                self.decoding[row] = Some(decoding);
            }
        }
        self.outputs.push(output);
    }
}

impl Runner for SimulatedRunner {
    type Run = Duration;

    fn is_synchronous(&self) -> bool {
        self.simulation.synchronous
    }

    fn now(&self) -> Instant {
        self.start + self.clock
    }

    fn vocabulary(&self) -> usize {
        VOCABULARY as usize
    }

    fn default_chunk(&self) -> usize {
        512
    }

    fn max_chunk_tokens(&self, max: usize, _depth: usize) -> usize {
        max
    }

    fn is_recurrent(&self) -> bool {
        self.simulation.checkpoints.is_some()
    }

    fn checkpoints(&self) -> Option<usize> {
        self.simulation.checkpoints
    }

    fn save_states(&mut self, slot: usize, checkpoint: u32) -> Result<(), Error> {
        self.saved[checkpoint as usize] = self.states[slot];
        Ok(())
    }

    fn restore_states(&mut self, slot: usize, checkpoint: u32) -> Result<(), Error> {
        self.states[slot] = self.saved[checkpoint as usize];
        Ok(())
    }

    fn fit_chunk(&mut self, tokens: usize) -> Result<usize, Error> {
        Ok(tokens)
    }

    fn prepare_chunk(&mut self, _tokens: usize) -> Result<(), Error> {
        Ok(())
    }

    fn prefill(&mut self, pieces: Vec<PrefillPiece<'_>>, table: &[u32]) -> Result<bool, Error> {
        self.allocate()?;
        let mut tokens = 0;
        for piece in pieces {
            for (&token, position) in piece.tokens.iter().zip(piece.position..) {
                self.compute(table, piece.sequence, token, position);
            }
            tokens += piece.tokens.len();
        }
        (self.prefilled, self.chunks) = (self.prefilled + tokens, self.chunks + 1);
        self.work((self.simulation.costs.chunk)(tokens));
        Ok(false)
    }

    fn hidden_states(&mut self, pieces: Vec<PrefillPiece<'_>>, table: &[u32]) -> Result<Vec<Vec<f32>>, Error> {
        self.allocate()?;
        self.clock = self.work((self.simulation.costs.chunk)(pieces.len()));
        let hidden = |piece: PrefillPiece<'_>| {
            self.compute(table, piece.sequence, piece.tokens[0], piece.position);
            vec![token_of(self.hash(table, piece.sequence, piece.position)) as f32]
        };
        Ok(pieces.into_iter().map(hidden).collect())
    }

    fn rows(&self) -> &[Option<SlotId>] {
        &self.rows
    }

    fn extras(&self) -> StepExtras {
        self.extras
    }

    fn has_step(&self, kind: StepKind) -> bool {
        self.made.contains(&kind)
    }

    fn prepare_step(&mut self, kind: StepKind) -> Result<(), Error> {
        self.allocate()?;
        self.made.insert(kind);
        Ok(())
    }

    fn use_step(&mut self, kind: StepKind) -> Result<(), Error> {
        self.prepare_step(kind)?;
        (self.rows, self.extras) = (vec![None; kind.0], kind.1);
        self.decoding = self.rows.iter().map(|_| None).collect();
        Ok(())
    }

    fn join(&mut self, request: &RowRequest<'_>) -> Result<(), Error> {
        let row = self.rows.iter().position(Option::is_none).expect("a row for each");
        self.rows[row] = Some(request.slot_id);
        let GenerateOptions { stop_ids, .. } = request.options;
        self.decoding[row] = Some(Decoding {
            token: *request.tokens.last().expect("tokens"),
            position: request.tokens.len() - 1,
            last_position: request.settings.last_position as usize,
            stop_ids: stop_ids.clone(),
        });
        Ok(())
    }

    fn forget(&mut self, _slot_id: SlotId) {}

    fn leave(&mut self, slot_id: SlotId) {
        if let Some(row) = self.rows.iter().position(|other| *other == Some(slot_id)) {
            (self.rows[row], self.decoding[row]) = (None, None);
        }
    }

    fn allow(&mut self, _row: usize, _bits: &[u32]) -> Result<(), Error> {
        unreachable!("no request is constrained")
    }

    fn play(&mut self, pages: Vec<(usize, Vec<u32>)>, runs: usize) -> Result<(u64, Vec<Duration>), Error> {
        self.allocate()?;
        for (at, words) in pages {
            self.table[at..][..words.len()].copy_from_slice(&words);
        }
        let first = self.outputs.len() as u64;
        let cost = (self.simulation.costs.step)(self.rows.len());
        let ends = (0..runs).map(|_| {
            self.run();
            self.work(cost)
        });
        Ok((first, ends.collect()))
    }

    fn wait(&mut self, run: &Duration, _pace: &Pace) -> Result<u32, Error> {
        self.clock = self.clock.max(*run);
        Ok(1)
    }

    fn reported(&mut self, run: u64, row: usize) -> Result<u32, Error> {
        Ok(self.outputs[run as usize][row])
    }

    fn logprobs(&mut self, _run: u64, _row: usize) -> Result<Option<Logprobs>, Error> {
        Ok(None)
    }

    fn release(&mut self) {
        self.made.clear();
        self.rows.clear();
        self.decoding.clear();
    }
}
