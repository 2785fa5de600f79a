//! The batch: requests join and leave between submits, and chunks of prompts are computed between the tokens of others.

mod admission;
#[cfg(test)]
mod computed_tests;
#[cfg(test)]
mod demo_tests;
#[cfg(test)]
mod draft_tests;
mod drafts;
mod embedding;
mod granting;
#[cfg(test)]
mod mixed_tests;
mod mixing;
#[cfg(test)]
mod mtp_tests;
mod output;
mod preemption;
mod prefill;
mod preparing;
mod prompt_outputs;
mod rows;
mod running;
#[cfg(test)]
mod simulated_tests;
#[cfg(test)]
mod simulation;
mod snapshots;
mod stored_prefixes;
#[cfg(test)]
pub(super) mod test_support;
mod text_states;

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use refrain_lm::token_bitmask_words;
use refrain_models::Pages;

use self::drafts::Speculator;
use self::mixing::Mixing;
use self::preemption::Backpressure;
use self::preparing::Preparation;
use self::running::Running;
use self::stored_prefixes::AttachedStore;
use super::constraint::MaskThreads;
use super::fair_queue::FairQueue;
use super::growth::GrowthEstimate;
use super::pages::PagePool;
use super::prefix_store::{PrefixStore, StoredPrefix};
use super::request::Waiting;
use super::row_count::RowCount;
use super::runner::{DeviceRunner, Runner, StepKind};
use super::speculation::{Draft, Speculation, new_proposer};
use super::step_times::StepTimes;
use super::steps::SlotId;
use super::{EngineLoad, EngineMemory, EngineOptions, PAGE_SIZE, StepCost};
use crate::pace::{MAX_REQUESTED_RUNS, MAX_RUNS_PER_SUBMIT, Pace};
use crate::{Error, Model};

/// Longest device time of a submit. A new request waits for up to two submits.
const MAX_SUBMIT_TIME: Duration = Duration::from_millis(10);

/// Runs that were submitted together.
struct InFlight<T> {
    /// When they were about to be submitted.
    begun: Instant,
    /// Number of the first output.
    first: u64,
    runs: Vec<T>,
    rows: Vec<Option<SlotId>>,
    /// The drafts that the only run verifies, by row; none if it verifies none.
    drafts: Vec<Draft>,
    /// Tokens of the prompts computed before them.
    chunk: Option<usize>,
    /// Tokens of the prompts computed in the only run; 0 if it is not mixed.
    mixed: usize,
}

/// The requests of an engine, and what they share: decides who runs, and has it computed by a [`Runner`].
pub(super) struct Batcher<R: Runner> {
    runner: R,
    /// Pages of a request's context.
    pages_each: usize,
    pool: PagePool,
    store: Option<AttachedStore>,
    growth: GrowthEstimate,
    /// The waiting request for which there were no pages, at that version of the pool.
    refused: Option<(u64, u64)>,
    /// The page table of all slots, `[N, P]`, as it will be on the device.
    known_table: Vec<u32>,
    queue: VecDeque<Waiting>,
    fair_queue: FairQueue,
    slots: Vec<Option<Running>>,
    in_flight: VecDeque<InFlight<R::Run>>,
    /// Whether a request's logits must not depend on other requests.
    deterministic: bool,
    row_count: RowCount,
    /// Limit of the runs of a submit, if one is requested.
    requested_runs: Option<usize>,
    /// The pace of the step in use, and those of others.
    pace: Pace,
    paces: HashMap<StepKind, Pace>,
    /// When the last run was seen to be done.
    last_end: Option<Instant>,
    /// `None` if texts are computed token by token.
    speculator: Option<Speculator>,
    step_times: StepTimes,
    /// Tokens of the chunk that was submitted since the last runs.
    chunk: Option<usize>,
    /// Number of chunks so far.
    chunks: u64,
    /// Whether the last step computed outputs of a prompt, and the time that this took per token.
    reported_prompt: bool,
    output_time: Option<Duration>,
    /// See [`EngineOptions::target_gap`].
    target_gap: Duration,
    mixing: Mixing,
    backpressure: Backpressure,
    preparation: Preparation,
    mask_threads: MaskThreads,
    /// Totals so far.
    counted: EngineLoad,
}

/// Pages of the KV cache for each request's slot.
fn pages_per_slot(options: &EngineOptions) -> usize {
    let slots = options.streams.max(1);
    let each = options.cache_tokens.div_ceil(PAGE_SIZE * slots).max(1);
    // A single request can always fill its context.
    each.max(options.context.div_ceil(PAGE_SIZE).div_ceil(slots))
}

impl Batcher<DeviceRunner> {
    /// Creates an empty batch with its KV cache.
    ///
    /// # Errors
    /// If there is too little memory for the cache.
    pub fn new(model: &Model, options: &EngineOptions) -> Result<Batcher<DeviceRunner>, Error> {
        let pages = Pages {
            size: PAGE_SIZE,
            per_sequence: options.context.div_ceil(PAGE_SIZE),
            context: options.context,
        };
        let caches = options.prefix_cache && !options.deterministic;
        let has_head = model.decoder().mtp_head().is_some();
        let drafts = options.speculation.uses_mtp_head() && has_head && !options.deterministic;
        let options = &EngineOptions {
            speculation: match options.speculation {
                Speculation::Mtp if !drafts => Speculation::Off,
                other => other,
            },
            ..options.clone()
        };
        let (slots, each) = (options.streams.max(1), pages_per_slot(options));
        let runner = DeviceRunner::new(model, slots, pages, each, (caches, drafts))?.with_mode(options.mode);
        let store = options.prefix_store.as_ref().filter(|_| caches);
        let key = crate::snapshot::key(model, options.context);
        let store = store.map(|store| PrefixStore::open(store, key)).transpose()?;
        let mut batcher = Batcher::with_runner(runner, options);
        if let Some(store) = store {
            batcher.keep_prefixes_in(store);
        }
        Ok(batcher)
    }

    /// Returns the model.
    pub fn model(&self) -> &Model {
        self.runner.model()
    }

    /// Returns the memory that it uses.
    pub fn memory(&self) -> EngineMemory {
        EngineMemory {
            kv_bytes: self.runner.kv_bytes(),
            scratch_bytes: self.runner.scratch_bytes(),
            shorter_chunk: self.backpressure.shorter_chunk(),
        }
    }

    /// Returns what the step in use costs, and begins a new mean of its device time.
    pub fn step_cost(&mut self) -> Option<StepCost> {
        self.runner.step_cost()
    }
}

impl<R: Runner> Batcher<R> {
    /// Creates an empty batch.
    pub fn with_runner(runner: R, options: &EngineOptions) -> Batcher<R> {
        let slots = options.streams.max(1);
        let pages_each = options.context.div_ceil(PAGE_SIZE);
        let caches = options.prefix_cache && !options.deterministic;
        let pool = PagePool::new(pages_per_slot(options) * slots, PAGE_SIZE, caches);
        let proposer = new_proposer(options, runner.vocabulary());
        let proposer = proposer.filter(|_| !options.deterministic);
        let speculator = proposer.map(Speculator::new);
        let preparation = Preparation::of(options);
        Batcher {
            pool: match runner.checkpoints().filter(|_| caches) {
                Some(checkpoints) => pool.with_checkpoints(checkpoints),
                None => pool,
            },
            store: None,
            pages_each,
            growth: GrowthEstimate::default(),
            refused: None,
            known_table: vec![0; slots * pages_each],
            queue: VecDeque::new(),
            fair_queue: FairQueue::default(),
            slots: (0..slots).map(|_| None).collect(),
            in_flight: VecDeque::new(),
            deterministic: options.deterministic,
            row_count: RowCount::default(),
            requested_runs: options.tokens_per_submit,
            pace: Pace::default(),
            paces: HashMap::new(),
            last_end: None,
            step_times: StepTimes::new(options.target_gap),
            chunk: None,
            chunks: 0,
            reported_prompt: false,
            output_time: None,
            target_gap: options.target_gap,
            mixing: Mixing::new(options),
            backpressure: Backpressure::new(options.max_chunk.unwrap_or(runner.default_chunk()).max(1)),
            preparation: match speculator {
                Some(_) => preparation.with_drafts(),
                None => preparation,
            },
            speculator,
            mask_threads: MaskThreads::new(token_bitmask_words(runner.vocabulary()), slots == 1),
            counted: EngineLoad::default(),
            runner,
        }
    }

    /// Returns the numbers of the running requests.
    pub fn running_numbers(&self) -> Vec<u64> {
        self.running().map(|(_, running)| running.request.number).collect()
    }

    /// Admits one request at a time, until several have ended.
    pub fn run_one_at_a_time(&mut self) {
        self.backpressure.limit_to_one(self.slots.len());
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
            programs_to_make: self.preparation.left(),
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
        // What is being read belongs to the pages of this batch.
        requests
            .iter_mut()
            .for_each(|request| request.stored = StoredPrefix::Unknown);
        requests.sort_by_key(|request| request.number);
        (requests.into(), self.counted)
    }

    /// Continues with the requests and totals of another batch.
    pub fn take_over(&mut self, requests: VecDeque<Waiting>, counted: EngineLoad) {
        (self.queue, self.counted) = (requests, counted);
    }

    /// Does one step: admits requests, computes a chunk of their prompts, submits the next runs, and reads the outputs
    /// of the submit before. Without requests, makes the next program that requests will need, or stores cached prefixes.
    ///
    /// # Errors
    /// If the device fails.
    pub fn step(&mut self) -> Result<(), Error> {
        if self.is_idle() {
            return self.work_while_idle();
        }
        self.begin_step_of_store();
        self.drop_cancelled();
        self.admit()?;
        if !self.report_prompt()? && !self.choose_mixing()? && self.prefill()? {
            // What waits for a prompt that is computed now can be forked before the states go on.
            self.admit()?;
        }
        self.embed()?;
        let submitted = self.submit()?;
        // The next submit is queued while the device executes one.
        let queued = usize::from(!self.runner.is_synchronous());
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
            // A text that a stop string ended is cancelled, too. Before its first token nothing is known of its length.
            if self.slots[slot]
                .as_ref()
                .is_some_and(|running| running.request.tokens.len() > running.prompt)
            {
                self.note_length(slot);
            }
            self.vacate(slot);
        }
    }

    /// Submits the next runs of all decoding requests; returns whether there were any.
    fn submit(&mut self) -> Result<bool, Error> {
        let drafts = self.draft()?;
        if !self.assign_rows(drafts.width)? {
            return Ok(false);
        }
        let runs = self.runs_per_submit();
        if runs == 0 {
            return Ok(false);
        }
        let begun = self.runner.now() - drafts.time;
        while !self.grant(runs) {
            // A request must not have tokens in flight when it is preempted.
            self.poll_all()?;
            self.make_room();
            if !self.assign_rows(drafts.width)? {
                return Ok(false);
            }
        }
        let (mut rows, extras) = (self.runner.rows().to_vec(), self.runner.extras());
        let drafts = if extras.draft_tokens > 0 {
            self.grant_drafts(&rows, drafts)
        } else {
            vec![]
        };
        let pieces = self.mixed_pieces();
        let in_rows = rows.iter().flatten().map(|&(slot, _)| slot);
        let pages = self.new_pages(in_rows.chain(pieces.iter().map(|&(slot, _)| slot)));
        let was_idle = self.in_flight.is_empty();
        let (first, runs) = if extras.allowed {
            self.runner.forward(pages)?;
            // Masks depend on the tokens before, which arrive while the device runs the model.
            self.poll_all()?;
            self.write_masks()?;
            rows = self.runner.rows().to_vec();
            if rows.iter().all(Option::is_none) {
                return Ok(false);
            }
            self.runner.sample()?
        } else if extras.draft_tokens > 0 {
            self.runner.verify(pages, &drafts)?
        } else if !pieces.is_empty() {
            self.mix(pages, &pieces)?
        } else {
            self.runner.play(pages, runs)?
        };
        for &(slot, _) in rows.iter().flatten() {
            self.slots[slot].as_mut().expect("admitted").ahead += runs.len();
        }
        // How far a step with drafts takes a text is known later.
        if extras.draft_tokens == 0 {
            self.save_text_states()?;
        }
        if was_idle {
            self.pace.begin(self.runner.now());
        }
        let chunk = self.chunk.take();
        self.in_flight.push_back(InFlight {
            begun,
            first,
            runs,
            rows,
            drafts,
            chunk,
            mixed: pieces.iter().map(|(_, tokens)| tokens).sum(),
        });
        Ok(true)
    }

    /// Returns how many runs the next submit has: 0 if all remaining tokens are in flight.
    fn runs_per_submit(&self) -> usize {
        // Between chunks of prompts, each text grows by one token at a time, so that tokens come at an even pace.
        let is_prefilling = self.running().any(|(_, running)| !running.decodes());
        let extras = self.runner.extras();
        let is_single = extras.allowed || extras.draft_tokens > 0;
        let most = if is_prefilling || !self.runner.batches_runs() || is_single {
            1
        } else if let Some(requested) = self.requested_runs {
            requested.clamp(1, MAX_REQUESTED_RUNS)
        } else {
            let step = self
                .pace
                .step()
                .map_or(MAX_SUBMIT_TIME, |step| step.max(Duration::from_nanos(1)));
            (MAX_SUBMIT_TIME.as_nanos() / step.as_nanos()).clamp(1, MAX_RUNS_PER_SUBMIT as u128) as usize
        };
        let decoding = self.running().filter(|(_, running)| running.decodes());
        let left = decoding.map(|(_, r)| r.request.limit.saturating_sub(r.request.tokens.len() + r.ahead));
        most.min(left.max().unwrap_or(0)).min(self.runs_to_page_end())
    }
}
