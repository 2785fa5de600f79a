//! A model of a device, with made-up costs and a token that is a hash of its history.
//!
//! It reads keys and values through the page table, as a device does, so a wrong page gives a wrong token.

mod computing;
mod hashes;

use std::collections::HashSet;
use std::time::{Duration, Instant};

use refrain_formats::Plane;
use refrain_lm::Logprobs;
use refrain_lm::sample::FINISHED;

pub use self::hashes::{VOCABULARY, alone, token_of};
use self::hashes::{fill, plane};
use crate::engine::PAGE_SIZE;
use crate::engine::runner::{NewPages, Runner, StepKind};
use crate::engine::speculation::Draft;
use crate::engine::steps::{RowRequest, SlotId};
use crate::pace::Pace;
use crate::prefill::{PrefillPiece, RowOutput};
use crate::step::StepExtras;
use crate::{Error, GenerateOptions};

/// Time of sampling by itself, in microseconds.
const SAMPLING: u64 = 50;

/// Times of a device in microseconds.
#[derive(Clone, Copy)]
pub struct Costs {
    /// Of a step with so many rows, or tokens of drafts in them.
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
    /// Tokens of a mixed step, rows included.
    pub mixed_tokens: usize,
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
    /// Rows of the steps that can be mixed.
    made_mixed: HashSet<usize>,
    rows: Vec<Option<SlotId>>,
    decoding: Vec<Option<Decoding>>,
    extras: StepExtras,
    /// Of each row, between the model and sampling.
    hashes: Vec<Option<u64>>,
    masks: Vec<Option<Vec<u32>>>,
    outputs: Vec<Vec<u32>>,
    random: u64,
    /// Tokens of prompts that were computed.
    pub prefilled: usize,
    /// Calls that computed them.
    pub chunks: usize,
    /// Pages that were written from outside.
    pub pages_written: usize,
}

/// A sequence in a row.
struct Decoding {
    token: u32,
    position: usize,
    last_position: usize,
    stop_ids: Vec<u32>,
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
            made_mixed: HashSet::new(),
            rows: vec![],
            decoding: vec![],
            extras: StepExtras::default(),
            hashes: vec![],
            masks: vec![],
            outputs: vec![],
            random: simulation.seed,
            prefilled: 0,
            chunks: 0,
            pages_written: 0,
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
}

impl Runner for SimulatedRunner {
    type Run = Duration;

    fn is_synchronous(&self) -> bool {
        self.simulation.synchronous
    }

    fn batches_runs(&self) -> bool {
        !self.simulation.synchronous
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
        self.allocate()?;
        self.saved[checkpoint as usize] = self.states[slot];
        Ok(())
    }

    fn restore_states(&mut self, slot: usize, checkpoint: u32) -> Result<(), Error> {
        self.states[slot] = self.saved[checkpoint as usize];
        Ok(())
    }

    fn fork(&mut self, pages: [u32; 2], slots: [usize; 2]) -> Result<(), Error> {
        let [from, to] = pages.map(|page| page as usize * PAGE_SIZE);
        self.cells.copy_within(from..from + PAGE_SIZE, to);
        self.states[slots[1]] = self.states[slots[0]];
        Ok(())
    }

    fn prepare_fork(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn read_page(&mut self, page: u32) -> Result<Vec<Plane>, Error> {
        Ok(vec![plane(&self.cells[page as usize * PAGE_SIZE..][..PAGE_SIZE])])
    }

    fn write_page(&mut self, page: u32, planes: &[Plane]) -> Result<bool, Error> {
        self.pages_written += 1;
        let cells = &mut self.cells[page as usize * PAGE_SIZE..][..PAGE_SIZE];
        Ok(fill(cells, planes))
    }

    fn read_states(&mut self, checkpoint: u32) -> Result<Vec<Plane>, Error> {
        Ok(vec![plane(&self.saved[checkpoint as usize..][..1])])
    }

    fn write_states(&mut self, checkpoint: u32, planes: &[Plane]) -> Result<bool, Error> {
        Ok(fill(&mut self.saved[checkpoint as usize..][..1], planes))
    }

    fn fit_chunk(&mut self, tokens: usize, _wanted: usize) -> Result<usize, Error> {
        Ok(tokens)
    }

    fn prepare_chunk(&mut self, _tokens: usize) -> Result<(), Error> {
        Ok(())
    }

    fn prefill(&mut self, pieces: Vec<PrefillPiece<'_>>, table: &[u32]) -> Result<bool, Error> {
        self.allocate()?;
        let tokens = self.run_pieces(&pieces, table);
        self.work((self.simulation.costs.chunk)(tokens));
        Ok(false)
    }

    /// The last number of a row is the token that would follow.
    fn rows_after(
        &mut self,
        pieces: Vec<PrefillPiece<'_>>,
        wanted: usize,
        output: RowOutput,
        table: &[u32],
    ) -> Result<Vec<f32>, Error> {
        self.allocate()?;
        let mut rows = vec![];
        for piece in &pieces {
            for (&token, position) in piece.tokens.iter().zip(piece.position..) {
                self.compute(table, piece.sequence, token, position);
                let token = token_of(self.hash(table, piece.sequence, position), None) as f32;
                rows.push(match output {
                    RowOutput::Hidden | RowOutput::Logits => vec![token],
                    RowOutput::Logprobs => vec![0.0, token],
                });
            }
        }
        self.clock = self.work((self.simulation.costs.chunk)(rows.len()));
        Ok(rows.split_off(rows.len() - wanted).concat())
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
        (self.hashes, self.masks) = (vec![None; kind.0], vec![None; kind.0]);
        Ok(())
    }

    fn join(&mut self, request: &RowRequest<'_>) -> Result<(), Error> {
        let row = self.rows.iter().position(Option::is_none).expect("a row for each");
        self.rows[row] = Some(request.slot_id);
        self.masks[row] = None;
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

    fn allow(&mut self, row: usize, mask: Option<&[u32]>) {
        assert!(self.extras.allowed, "a step with masks");
        self.masks[row] = mask.map(<[u32]>::to_vec);
    }

    fn play(&mut self, pages: NewPages, runs: usize) -> Result<(u64, Vec<Duration>), Error> {
        self.allocate()?;
        assert!(!self.extras.allowed, "masks come after the model");
        self.write_pages(pages);
        let first = self.outputs.len() as u64;
        let cost = (self.simulation.costs.step)(self.rows.len());
        let ends = (0..runs).map(|_| {
            self.run_model();
            self.run_sampling();
            self.work(cost)
        });
        Ok((first, ends.collect()))
    }

    fn verify(&mut self, pages: NewPages, drafts: &[Draft]) -> Result<(u64, Vec<Duration>), Error> {
        self.allocate()?;
        self.write_pages(pages);
        let (rows, width) = (self.rows.len(), 1 + self.extras.draft_tokens);
        assert!(drafts.len() == rows && !self.extras.allowed);
        assert!(
            drafts.iter().all(|draft| draft.tokens.len() < width),
            "{width}: {drafts:?}"
        );
        let first = self.outputs.len() as u64;
        let mut outputs = vec![vec![FINISHED; rows]; width];
        for (row, draft) in drafts.iter().enumerate() {
            self.verify_row(row, draft, &mut outputs);
        }
        self.outputs.extend(outputs);
        Ok((first, vec![self.work((self.simulation.costs.step)(rows * width))]))
    }

    fn forward(&mut self, pages: NewPages) -> Result<(), Error> {
        self.allocate()?;
        self.write_pages(pages);
        self.run_model();
        self.work((self.simulation.costs.step)(self.rows.len()));
        Ok(())
    }

    fn sample(&mut self) -> Result<(u64, Vec<Duration>), Error> {
        self.allocate()?;
        let first = self.outputs.len() as u64;
        self.run_sampling();
        Ok((first, vec![self.work(SAMPLING)]))
    }

    fn mixed_tokens(&self) -> usize {
        self.simulation.mixed_tokens.saturating_sub(self.rows.len())
    }

    fn has_mixed_step(&self) -> bool {
        self.made_mixed.contains(&self.rows.len())
    }

    fn prepare_mixed_step(&mut self) -> Result<(), Error> {
        self.allocate()?;
        self.made_mixed.insert(self.rows.len());
        Ok(())
    }

    fn mix(&mut self, pages: NewPages, pieces: &[PrefillPiece<'_>]) -> Result<(u64, Vec<Duration>), Error> {
        self.allocate()?;
        assert!(self.has_mixed_step() && self.extras == StepExtras::default());
        self.write_pages(pages);
        let first = self.outputs.len() as u64;
        let table = self.table.clone();
        let tokens = self.run_pieces(pieces, &table);
        assert!((1..=self.mixed_tokens()).contains(&tokens), "{tokens}");
        self.run_model();
        self.run_sampling();
        Ok((
            first,
            vec![self.work((self.simulation.costs.chunk)(tokens + self.rows.len()))],
        ))
    }

    fn wait(&mut self, run: &Duration, _pace: &Pace) -> Result<u32, Error> {
        self.clock = self.clock.max(*run);
        Ok(1)
    }

    fn reported(&mut self, run: u64, row: usize) -> Result<u32, Error> {
        Ok(self.outputs[run as usize][row])
    }

    fn drafted(&mut self, _row: usize) -> Result<Vec<u32>, Error> {
        Ok(vec![])
    }

    fn logprobs(&mut self, _run: u64, _row: usize) -> Result<Option<Logprobs>, Error> {
        Ok(None)
    }

    fn release(&mut self) {
        self.made.clear();
        self.made_mixed.clear();
        self.rows.clear();
        self.decoding.clear();
    }
}
