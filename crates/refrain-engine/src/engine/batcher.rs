//! The batch: requests join and leave between submits, and chunks of prompts are computed between the tokens of others.

mod admission;
mod embedding;
mod output;
mod preemption;
mod prefill;
mod preparing;
mod rows;
#[cfg(test)]
mod test_support;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use refrain::{Array, Run, SharedScratch, Write};
use refrain_models::{LayerState, Pages};

use self::preemption::Backpressure;
use self::preparing::Preparation;
use super::checkpoints::StateCheckpoints;
use super::fair_queue::FairQueue;
use super::growth::GrowthEstimate;
use super::pages::{NodeId, PagePool};
use super::request::Waiting;
use super::row_count::RowCount;
use super::step_times::StepTimes;
use super::steps::{DecodeSteps, SlotId};
use super::{EngineLoad, EngineOptions, PAGE_SIZE};
use crate::pace::{MAX_RUNS_PER_SUBMIT, Pace};
use crate::prefill::PrefillPrograms;
use crate::step::page_table;
use crate::{Error, Model};

/// Longest device time of a submit. A new request waits for up to two submits.
const MAX_SUBMIT_TIME: Duration = Duration::from_millis(10);
/// New pages of a request that are written with a submit; more are written before it.
const MAX_INLINE_PAGES: usize = 4;

/// A request with a slot and pages.
struct Running {
    request: Waiting,
    pages: Vec<u32>,
    /// Tokens whose keys and values are computed or submitted.
    prefilled: usize,
    /// Numbers of tokens after which recurrent states are saved, if the model has any.
    save_states_at: Vec<usize>,
    /// The last cached page of its tokens in the prefix tree.
    node: Option<NodeId>,
    /// Tokens at admission.
    prompt: usize,
    /// Runs in flight that continue it.
    ahead: usize,
    /// Pages that the device knows.
    pages_written: usize,
}

impl Running {
    /// Whether all tokens but the last are computed, so that the request decodes.
    fn decodes(&self) -> bool {
        self.prefilled + 1 >= self.request.tokens.len()
    }

    fn slot_id(&self, slot: usize) -> SlotId {
        (slot, self.request.number)
    }
}

/// Runs that were submitted together.
struct InFlight {
    first: u64,
    runs: Vec<Run>,
    rows: Vec<Option<SlotId>>,
    /// Tokens of the prompts computed before them.
    chunk: Option<usize>,
}

/// The requests of an engine, and what they share.
pub(super) struct Batcher {
    model: Model,
    states: Vec<LayerState>,
    /// `None` if the model has no recurrent states, or prefixes are not cached.
    checkpoints: Option<StateCheckpoints>,
    pages: Pages,
    pool: PagePool,
    growth: GrowthEstimate,
    /// The waiting request for which there were no pages, at that version of the pool.
    refused: Option<(u64, u64)>,
    /// u32 `[N, P]` on the device, and as it will be there.
    table: Array,
    known_table: Vec<u32>,
    prompts: PrefillPrograms,
    steps: DecodeSteps,
    queue: VecDeque<Waiting>,
    fair_queue: FairQueue,
    slots: Vec<Option<Running>>,
    in_flight: VecDeque<InFlight>,
    /// Whether a request's logits must not depend on other requests.
    deterministic: bool,
    row_count: RowCount,
    /// The pace of the step in use.
    pace: Pace,
    step_times: StepTimes,
    /// Tokens of the chunk that was submitted since the last runs.
    chunk: Option<usize>,
    /// Number of chunks so far.
    chunks: u64,
    backpressure: Backpressure,
    preparation: Preparation,
    /// Totals so far.
    counted: EngineLoad,
}

impl Batcher {
    /// Creates an empty batch with its KV cache.
    ///
    /// # Errors
    /// If there is too little memory for the cache.
    pub fn new(model: &Model, options: &EngineOptions) -> Result<Batcher, Error> {
        let (slots, context) = (options.streams.max(1), options.context);
        let pages = Pages {
            size: PAGE_SIZE,
            per_sequence: context.div_ceil(PAGE_SIZE),
            context,
        };
        // A single request can always fill its context.
        let each = options.cache_tokens.div_ceil(PAGE_SIZE * slots).max(1);
        let each = each.max(pages.per_sequence.div_ceil(slots));
        let held = Pages {
            per_sequence: each,
            context: each * PAGE_SIZE,
            ..pages
        };
        let device = model.device();
        let states = model
            .decoder()
            .new_states(crate::session::cache_dtype(device), held, slots)?;
        let keeps_prefixes = options.prefix_cache && !options.deterministic;
        let checkpoints = if keeps_prefixes {
            StateCheckpoints::new(&states, device.executors()[0])?
        } else {
            None
        };
        let scratch = SharedScratch::default();
        let pool = PagePool::new(each * slots, PAGE_SIZE, keeps_prefixes);
        Ok(Batcher {
            pool: match &checkpoints {
                Some(checkpoints) => pool.with_checkpoints(checkpoints.count()),
                None => pool,
            },
            checkpoints,
            table: page_table(device, slots, pages)?,
            known_table: vec![0; slots * pages.per_sequence],
            prompts: PrefillPrograms::new(slots, pages).with_scratch(&scratch),
            steps: DecodeSteps::new(model, slots, pages, &scratch)?,
            queue: VecDeque::new(),
            fair_queue: FairQueue::default(),
            slots: (0..slots).map(|_| None).collect(),
            growth: GrowthEstimate::default(),
            refused: None,
            row_count: RowCount::default(),
            in_flight: VecDeque::new(),
            deterministic: options.deterministic,
            pace: Pace::default(),
            step_times: StepTimes::new(options.target_gap),
            chunk: None,
            chunks: 0,
            backpressure: Backpressure::new(device),
            preparation: Preparation::of(options),
            counted: EngineLoad::default(),
            model: model.clone(),
            states,
            pages,
        })
    }

    /// Queues a request.
    pub fn add(&mut self, request: Waiting) {
        self.queue.push_back(request);
    }

    /// Whether there are no requests.
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.in_flight.is_empty() && self.slots.iter().all(Option::is_none)
    }

    /// Returns counters and gauges.
    pub fn load(&self) -> EngineLoad {
        EngineLoad {
            waiting: self.queue.len(),
            running: self.running().count(),
            pages: self.pool.count(),
            pages_in_use: self.pool.count() - self.pool.available(),
            ..self.counted
        }
    }

    /// Returns all requests with their tokens so far, in order of arrival, and the totals. Releases what is on the
    /// device.
    pub fn into_requests(self) -> (VecDeque<Waiting>, EngineLoad) {
        let mut requests: Vec<Waiting> = self
            .slots
            .into_iter()
            .flatten()
            .map(|running| running.request)
            .collect();
        requests.extend(self.queue);
        requests.sort_by_key(|request| request.number);
        (requests.into(), self.counted)
    }

    /// Continues with the requests and totals of another batch.
    pub fn take_over(&mut self, requests: VecDeque<Waiting>, counted: EngineLoad) {
        (self.queue, self.counted) = (requests, counted);
    }

    /// Does one step: admits requests, computes a chunk of their prompts, submits the next runs, and reads the outputs
    /// of the submit before. Without requests, makes the next program that requests will need.
    ///
    /// # Errors
    /// If the device fails.
    pub fn step(&mut self) -> Result<(), Error> {
        if self.is_idle() {
            self.prepare_next();
            return Ok(());
        }
        self.drop_cancelled();
        self.admit()?;
        self.prefill()?;
        self.embed()?;
        let submitted = self.submit()?;
        // The next submit is queued while the device executes one.
        let queued = if self.model.device().is_cpu() { 0 } else { 1 };
        if self.in_flight.len() > queued || !submitted {
            self.poll()?;
        }
        if !submitted && self.in_flight.is_empty() {
            self.step_times.interrupt();
            self.chunk = None;
        }
        Ok(())
    }

    fn running(&self) -> impl Iterator<Item = (usize, &Running)> {
        let slots = self.slots.iter().enumerate();
        slots.filter_map(|(slot, running)| Some((slot, running.as_ref()?)))
    }

    fn drop_cancelled(&mut self) {
        self.queue.retain(|request| !request.is_cancelled());
        let gone = self.running().filter(|(_, running)| running.request.is_cancelled());
        let gone: Vec<usize> = gone.map(|(slot, _)| slot).collect();
        for slot in gone {
            self.vacate(slot);
        }
    }

    /// Submits the next runs of all decoding requests; returns whether there were any.
    fn submit(&mut self) -> Result<bool, Error> {
        if !self.prepare()? {
            return Ok(false);
        }
        let runs = self.runs_per_submit();
        if runs == 0 {
            return Ok(false);
        }
        while !self.grant(runs) {
            // A request must not have tokens in flight when it is preempted.
            self.poll_all()?;
            self.make_room();
            if !self.prepare()? {
                return Ok(false);
            }
        }
        let rows = self.steps.rows().to_vec();
        let table = self.write_pages(&rows)?;
        let (first, runs) = self.steps.play(table, runs)?;
        for &(slot, _) in rows.iter().flatten() {
            self.slots[slot].as_mut().expect("admitted").ahead += runs.len();
        }
        if self.in_flight.is_empty() {
            self.pace.begin(Instant::now());
        }
        let chunk = self.chunk.take();
        self.in_flight.push_back(InFlight {
            first,
            runs,
            rows,
            chunk,
        });
        Ok(true)
    }

    /// Returns how many runs the next submit has: 0 if all remaining tokens are in flight.
    fn runs_per_submit(&self) -> usize {
        // Between chunks of prompts, each text grows by one token at a time, so that tokens come at an even pace.
        let is_prefilling = self.running().any(|(_, running)| !running.decodes());
        let most = if is_prefilling || self.model.device().is_cpu() || self.steps.extras().allowed {
            1
        } else {
            let step = self
                .pace
                .step()
                .map_or(MAX_SUBMIT_TIME, |step| step.max(Duration::from_nanos(1)));
            (MAX_SUBMIT_TIME.as_nanos() / step.as_nanos()).clamp(1, MAX_RUNS_PER_SUBMIT as u128) as usize
        };
        let decoding = self.running().filter(|(_, running)| running.decodes());
        let left = decoding.map(|(_, r)| r.request.limit.saturating_sub(r.request.tokens.len() + r.ahead));
        most.min(left.max().unwrap_or(0))
    }

    /// Gives decoding requests the pages for `runs` more runs; returns whether there were enough.
    fn grant(&mut self, runs: usize) -> bool {
        for running in self.slots.iter_mut().flatten().filter(|running| running.decodes()) {
            let request = &running.request;
            let positions = (request.tokens.len() + running.ahead + runs).min(request.limit);
            while running.pages.len() < self.pool.pages_for(positions) {
                match self.pool.take() {
                    Some(page) => running.pages.push(page),
                    None => return false,
                }
            }
        }
        true
    }

    /// Preempts the request that arrived last: it waits again, and its tokens are recomputed later.
    fn make_room(&mut self) {
        let last = self.running().max_by_key(|(_, r)| r.request.number);
        let Some(slot) = last.map(|(slot, _)| slot) else {
            return;
        };
        if let Some(request) = self.vacate(slot) {
            self.counted.preemptions += 1;
            self.growth.exceeded();
            self.queue.push_front(request);
        }
    }

    /// Returns the writes that bring the device's page table up to date for the requests in rows.
    fn write_pages(&mut self, rows: &[Option<SlotId>]) -> Result<Vec<Write>, Error> {
        let width = self.pages.per_sequence;
        let mut writes = vec![];
        for &(slot, _) in rows.iter().flatten() {
            let running = self.slots[slot].as_mut().expect("admitted");
            let row = slot * width;
            let (at, new) = (row + running.pages_written, &running.pages[running.pages_written..]);
            self.known_table[at..][..new.len()].copy_from_slice(new);
            running.pages_written = running.pages.len();
            match new.len() {
                0 => {}
                1..=MAX_INLINE_PAGES => writes.push(Write {
                    state: self.table.clone(),
                    at,
                    words: new.to_vec(),
                }),
                _ => self.table.write_state(4 * at, bytemuck::cast_slice(new))?,
            }
        }
        Ok(writes)
    }
}
