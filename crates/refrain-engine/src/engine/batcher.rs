//! Requests in one batch: they join and leave between submits, their prompts are taken in between the tokens of others.

mod admission;
mod embedding;
mod output;
mod preemption;
mod prefill;
mod preparing;
#[cfg(test)]
mod test_support;

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use refrain::{Array, Run, Write};
use refrain_models::{LayerState, Pages};

use self::preemption::Backpressure;
use self::preparing::Preparation;
use super::checkpoints::StateCheckpoints;
use super::fair_queue::FairQueue;
use super::pages::PagePool;
use super::request::Waiting;
use super::step_times::StepTimes;
use super::steps::{DecodeSteps, SlotId};
use super::{EngineLoad, EngineOptions, PAGE_SIZE};
use crate::pace::{MAX_RUNS_PER_SUBMIT, Pace};
use crate::prefill::PrefillPrograms;
use crate::step::page_table;
use crate::{Error, Model};

/// The longest that a submit takes: who comes waits for two of them.
const MAX_SUBMIT_TIME: Duration = Duration::from_millis(10);
/// New pages of a request that come with a submit; more are written before it.
const MAX_INLINE_PAGES: usize = 4;

/// A request that has pages and a slot.
struct Running {
    request: Waiting,
    pages: Vec<u32>,
    /// Tokens that are in the cache, or on their way into it.
    prefilled: usize,
    /// Numbers of tokens at which its states are copied for others, where they have to be.
    copied_at: [usize; 2],
    /// Runs in flight that will go on with it.
    ahead: usize,
    /// Those of them whose tokens are dropped: they were sampled before its constraint began to restrict them.
    dropped: usize,
    /// Pages that the device knows of.
    pages_written: usize,
}

impl Running {
    /// Whether all but its last token are in the cache: it decodes.
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
    /// Tokens of the chunk that is taken in before them.
    chunk: Option<usize>,
}

/// All requests of an engine, and what they share.
pub(super) struct Batcher {
    model: Model,
    states: Vec<LayerState>,
    /// `None` where keys and values are all that there is to know of a prefix, or none is kept.
    checkpoints: Option<StateCheckpoints>,
    pages: Pages,
    pool: PagePool,
    /// u32 `[N, P]` on the device, and as the device will know it.
    table: Array,
    known_table: Vec<u32>,
    prompts: PrefillPrograms,
    steps: DecodeSteps,
    queue: VecDeque<Waiting>,
    fair_queue: FairQueue,
    slots: Vec<Option<Running>>,
    in_flight: VecDeque<InFlight>,
    /// Whether nothing that others do may change a bit.
    deterministic: bool,
    /// Of the step in use.
    pace: Pace,
    step_times: StepTimes,
    /// Tokens of a chunk that was submitted since the last runs were.
    chunk: Option<usize>,
    /// Chunks so far.
    chunks: u64,
    backpressure: Backpressure,
    preparation: Preparation,
    /// Tokens and steps so far.
    counted: EngineLoad,
}

impl Batcher {
    /// # Errors
    /// Too little memory for the cache.
    pub fn new(model: &Model, options: &EngineOptions) -> Result<Batcher, Error> {
        let (slots, context) = (options.streams.max(1), options.context);
        let pages = Pages {
            size: PAGE_SIZE,
            per_sequence: context.div_ceil(PAGE_SIZE),
            context,
        };
        // One request at least may fill its context.
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
        let pool = PagePool::new(each * slots, PAGE_SIZE, keeps_prefixes);
        Ok(Batcher {
            pool: match &checkpoints {
                Some(checkpoints) => pool.with_copies(checkpoints.count()),
                None => pool,
            },
            checkpoints,
            table: page_table(device, slots, pages)?,
            known_table: vec![0; slots * pages.per_sequence],
            prompts: PrefillPrograms::new(slots, pages),
            steps: DecodeSteps::new(pages, device.executors()[0]),
            queue: VecDeque::new(),
            fair_queue: FairQueue::default(),
            slots: (0..slots).map(|_| None).collect(),
            in_flight: VecDeque::new(),
            deterministic: options.deterministic,
            pace: Pace::default(),
            step_times: StepTimes::default(),
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

    /// Lets a request wait for its turn.
    pub fn add(&mut self, request: Waiting) {
        self.queue.push_back(request);
    }

    /// Whether there is anything to do.
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.in_flight.is_empty() && self.slots.iter().all(Option::is_none)
    }

    /// How much is going on.
    pub fn load(&self) -> EngineLoad {
        EngineLoad {
            waiting: self.queue.len(),
            running: self.running().count(),
            pages: self.pool.count(),
            pages_in_use: self.pool.count() - self.pool.available(),
            ..self.counted
        }
    }

    /// All requests, in the order in which they came and with the tokens that they have, and what was counted. What it
    /// had on the device is let go.
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

    /// Goes on with what another had to do.
    pub fn take_over(&mut self, requests: VecDeque<Waiting>, counted: EngineLoad) {
        (self.queue, self.counted) = (requests, counted);
    }

    /// One round: requests join, a chunk of one prompt is taken in, as wide as those allow who wait for their next tokens;
    /// these are submitted, and those of the submit before are heard. Where nobody asks, the next program is made.
    ///
    /// # Errors
    /// A device that fails.
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
        // While the device works at one submit, the next is queued.
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

    /// Gives waiting requests slots and the pages of their prompts; clients take turns.
    fn admit(&mut self) -> Result<(), Error> {
        while let Some(slot) = self.slots.iter().position(Option::is_none) {
            let running: Vec<u64> = self.running().map(|(_, running)| running.request.client).collect();
            if running.len() >= self.backpressure.streams(self.slots.len()) {
                return Ok(());
            }
            let waiting = || self.queue.iter().map(|request| request.client);
            let Some(at) = self.fair_queue.next(waiting(), &running) else {
                return Ok(());
            };
            let present: Vec<u64> = waiting().chain(running).collect();
            let first = &self.queue[at];
            let tokens = first.tokens.len();
            // The last token is run for its logits, known or not.
            let prefix = self.pool.known(&first.tokens[..tokens - 1]);
            let mut pages = prefix.pages;
            // Who has all from the beginning never has to make room.
            let positions = if self.deterministic { first.limit } else { tokens };
            let (known, needed) = (pages.len() * PAGE_SIZE, self.pool.pages_of(positions));
            while pages.len() < needed {
                match self.pool.take() {
                    Some(page) => pages.push(page),
                    None => {
                        self.pool.give_back(&pages);
                        return Ok(());
                    }
                }
            }
            let mut request = self.queue.remove(at).expect("looked at");
            if let Some(cached_tokens) = request.cached_tokens.take() {
                cached_tokens.store(known, Ordering::Relaxed);
            }
            self.fair_queue.take(request.client, &present);
            self.counted.cached_tokens += known as u64;
            self.counted.prompt_tokens += tokens as u64;
            let row = slot * self.pages.per_sequence;
            self.known_table[row..][..pages.len()].copy_from_slice(&pages);
            self.slots[slot] = Some(Running {
                request,
                pages,
                prefilled: known,
                copied_at: [prefix.length, (tokens - 1) / PAGE_SIZE].map(|pages| pages * PAGE_SIZE),
                ahead: 0,
                dropped: 0,
                pages_written: 0,
            });
            if let (Some(checkpoints), Some(copy)) = (&self.checkpoints, prefix.copy) {
                checkpoints.restore(slot, copy)?;
            }
        }
        Ok(())
    }

    /// Submits the next runs for all that decode; whether there were any.
    fn submit(&mut self) -> Result<bool, Error> {
        if !self.prepare()? {
            return Ok(false);
        }
        let runs = self.runs_per_submit();
        if runs == 0 {
            return Ok(false);
        }
        while !self.grant(runs) {
            // Nobody's tokens are under way when somebody has to make room.
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

    /// None, if all tokens that there may be are under way.
    fn runs_per_submit(&self) -> usize {
        // Between the chunks of a prompt each text goes on by a token: its reader sees one pace, not leaps.
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

    /// Gives all that decode the pages for `runs` more runs; whether there were enough.
    fn grant(&mut self, runs: usize) -> bool {
        for running in self.slots.iter_mut().flatten().filter(|running| running.decodes()) {
            let request = &running.request;
            let positions = (request.tokens.len() + running.ahead + runs).min(request.limit);
            while running.pages.len() < self.pool.pages_of(positions) {
                match self.pool.take() {
                    Some(page) => running.pages.push(page),
                    None => return false,
                }
            }
        }
        true
    }

    /// Lets the request that came last wait again; its tokens are taken in anew later.
    fn make_room(&mut self) {
        let last = self.running().max_by_key(|(_, r)| r.request.number);
        let Some(slot) = last.map(|(slot, _)| slot) else {
            return;
        };
        if let Some(request) = self.vacate(slot) {
            self.counted.preemptions += 1;
            self.queue.push_front(request);
        }
    }

    /// What brings the table of pages on the device up to date for those in rows.
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
