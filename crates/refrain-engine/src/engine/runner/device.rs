//! The runner on a device.

use std::time::Instant;

use refrain::{Array, Run, SharedScratch, Write};
use refrain_formats::Plane;
use refrain_lm::Logprobs;
use refrain_models::{LayerState, Pages};

use super::{NewPages, Runner, StepKind};
use crate::engine::checkpoints::StateCheckpoints;
use crate::engine::fork::Forks;
use crate::engine::row_copy::{checkpoint_rows, page_rows, read_rows, write_rows};
use crate::engine::speculation::Draft;
use crate::engine::steps::{DecodeSteps, RowRequest, SlotId};
use crate::engine::{PAGE_SIZE, StepCost};
use crate::pace::Pace;
use crate::prefill::{PrefillChunk, PrefillPiece, PrefillPrograms, RowOutput, default_chunk, max_chunk_tokens};
use crate::step::{StepExtras, page_table};
use crate::{Error, Mode, Model};

/// New pages of a request that are written with a submit; more are written before it.
const MAX_INLINE_PAGES: usize = 4;

/// Computes on a device.
pub struct DeviceRunner {
    model: Model,
    /// Those of the layers, and of the multi-token prediction head if it drafts.
    states: Vec<LayerState>,
    /// `None` if the model has no recurrent states, or prefixes are not cached.
    checkpoints: Option<StateCheckpoints>,
    /// u32 `[N, P]`: the page table.
    table: Array,
    prompts: PrefillPrograms,
    /// Number of traced programs at the last chunk.
    traced: u64,
    steps: DecodeSteps,
    /// Made before a request is forked.
    forks: Option<Forks>,
    /// Memory for the intermediate results of all programs.
    scratch: SharedScratch,
}

impl DeviceRunner {
    /// Allocates the KV cache and the other states of `slots` requests, with `each` pages for each. If the model's
    /// multi-token prediction head is to draft, it has a KV cache, too.
    ///
    /// # Errors
    /// If there is too little memory.
    pub fn new(
        model: &Model,
        slots: usize,
        pages: Pages,
        each: usize,
        (caches, drafts_by_head): (bool, bool),
    ) -> Result<DeviceRunner, Error> {
        let held = Pages {
            per_sequence: each,
            context: each * PAGE_SIZE,
            ..pages
        };
        let device = model.device();
        let mut states = model.decoder().new_states(model.cache_types(), held, slots)?;
        if let Some(head) = model.decoder().mtp_head().filter(|_| drafts_by_head) {
            states.push(head.new_state(model.cache_types(), held, slots)?);
        }
        let checkpoints = if caches {
            StateCheckpoints::new(&states, device.executors()[0])?
        } else {
            None
        };
        let scratch = SharedScratch::default();
        Ok(DeviceRunner {
            checkpoints,
            table: page_table(device, slots, pages)?,
            prompts: PrefillPrograms::new(slots, pages).with_scratch(&scratch),
            traced: 0,
            forks: None,
            steps: DecodeSteps::new(model, slots, pages, &scratch)?,
            scratch,
            model: model.clone(),
            states,
        })
    }

    /// Executes decode steps in this mode.
    pub fn with_mode(mut self, mode: Mode) -> DeviceRunner {
        if let Mode::Fixed(executor) = mode {
            self.steps.executor = executor;
        }
        self
    }

    /// Returns the writes of words to the page table, from an index on each. Long ones are carried out at once.
    fn page_writes(&self, pages: NewPages) -> Result<Vec<Write>, Error> {
        let mut writes = vec![];
        for (at, words) in pages {
            if words.len() <= MAX_INLINE_PAGES {
                let state = self.table.clone();
                writes.push(Write { state, at, words });
            } else {
                self.table.write_state(4 * at, bytemuck::cast_slice(&words))?;
            }
        }
        Ok(writes)
    }

    /// Returns the model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Returns the bytes of keys, values and recurrent states.
    pub fn kv_bytes(&self) -> u64 {
        let arrays = self.states.iter().flat_map(LayerState::arrays);
        arrays.map(|array| (array.count() * array.dtype().size()) as u64).sum()
    }

    /// Returns what the step in use costs, and begins a new mean of its device time.
    pub fn step_cost(&mut self) -> Option<StepCost> {
        self.steps.cost()
    }

    /// Returns the bytes of intermediate results.
    pub fn scratch_bytes(&self) -> u64 {
        self.scratch.bytes()
    }

    /// Returns how often the model was traced for chunks.
    #[cfg(test)]
    pub fn traced(&self) -> u64 {
        self.prompts.traced()
    }
}

impl Runner for DeviceRunner {
    type Run = Run;

    fn is_synchronous(&self) -> bool {
        self.model.device().is_cpu()
    }

    fn batches_runs(&self) -> bool {
        self.steps.executor.batches_runs()
    }

    fn now(&self) -> Instant {
        Instant::now()
    }

    fn vocabulary(&self) -> usize {
        self.model.config().vocab_size
    }

    fn default_chunk(&self) -> usize {
        default_chunk(self.model.device())
    }

    fn max_chunk_tokens(&self, max: usize, depth: usize) -> usize {
        max_chunk_tokens(&self.model, max, depth)
    }

    fn is_recurrent(&self) -> bool {
        !LayerState::recurrent(&self.states).is_empty()
    }

    fn checkpoints(&self) -> Option<usize> {
        self.checkpoints.as_ref().map(StateCheckpoints::count)
    }

    fn save_states(&mut self, slot: usize, checkpoint: u32) -> Result<(), Error> {
        let checkpoints = self.checkpoints.as_ref();
        checkpoints.map_or(Ok(()), |checkpoints| checkpoints.save(slot, checkpoint))
    }

    fn restore_states(&mut self, slot: usize, checkpoint: u32) -> Result<(), Error> {
        let checkpoints = self.checkpoints.as_ref();
        checkpoints.map_or(Ok(()), |checkpoints| checkpoints.restore(slot, checkpoint))
    }

    fn fork(&mut self, pages: [u32; 2], slots: [usize; 2]) -> Result<(), Error> {
        self.prepare_fork()?;
        let forks = self.forks.as_ref().expect("just made");
        forks.play(pages, slots)
    }

    fn prepare_fork(&mut self) -> Result<(), Error> {
        if self.forks.is_none() {
            self.forks = Some(Forks::new(&self.states, self.model.device().executors()[0])?);
        }
        Ok(())
    }

    fn read_page(&mut self, page: u32) -> Result<Vec<Plane>, Error> {
        read_rows(&LayerState::caches(&self.states), page_rows(page))
    }

    fn write_page(&mut self, page: u32, planes: &[Plane]) -> Result<bool, Error> {
        write_rows(&LayerState::caches(&self.states), page_rows(page), planes)
    }

    fn read_states(&mut self, checkpoint: u32) -> Result<Vec<Plane>, Error> {
        let copies = self.checkpoints.as_ref().map(StateCheckpoints::copies);
        read_rows(&copies.unwrap_or_default(), checkpoint_rows(checkpoint))
    }

    fn write_states(&mut self, checkpoint: u32, planes: &[Plane]) -> Result<bool, Error> {
        let copies = self.checkpoints.as_ref().map(StateCheckpoints::copies);
        write_rows(&copies.unwrap_or_default(), checkpoint_rows(checkpoint), planes)
    }

    fn fit_chunk(&mut self, tokens: usize, wanted: usize) -> Result<usize, Error> {
        self.prompts.fit_to_memory(&self.model, &self.states, tokens, wanted)
    }

    fn prepare_chunk(&mut self, tokens: usize) -> Result<(), Error> {
        self.prompts.prepare(&self.model, &self.states, tokens, 0)?;
        self.traced = self.prompts.traced();
        Ok(())
    }

    fn prefill(&mut self, pieces: Vec<PrefillPiece<'_>>, table: &[u32]) -> Result<bool, Error> {
        let chunk = PrefillChunk {
            pieces,
            wanted: vec![],
            output: RowOutput::default(),
        };
        self.prompts.run(&self.model, &self.states, &chunk, table)?;
        let before = std::mem::replace(&mut self.traced, self.prompts.traced());
        Ok(self.traced > before)
    }

    fn rows_after(
        &mut self,
        pieces: Vec<PrefillPiece<'_>>,
        wanted: usize,
        output: RowOutput,
        table: &[u32],
    ) -> Result<Vec<f32>, Error> {
        let count = pieces.iter().map(|piece| piece.tokens.len()).sum::<usize>() as u32;
        let width = output.width(self.model.config());
        let chunk = PrefillChunk {
            pieces,
            wanted: (count - wanted as u32..count).collect(),
            output,
        };
        let function = self.prompts.run(&self.model, &self.states, &chunk, table)?;
        Ok(function.read_range(0, 0, wanted * width)?)
    }

    fn rows(&self) -> &[Option<SlotId>] {
        self.steps.rows()
    }

    fn extras(&self) -> StepExtras {
        self.steps.extras()
    }

    fn has_step(&self, kind: StepKind) -> bool {
        self.steps.has(kind)
    }

    fn prepare_step(&mut self, kind: StepKind) -> Result<(), Error> {
        self.steps.prepare(kind, &self.model, &self.states, &self.table)
    }

    fn use_step(&mut self, kind: StepKind) -> Result<(), Error> {
        self.steps.use_rows(kind, &self.model, &self.states, &self.table)
    }

    fn join(&mut self, request: &RowRequest<'_>) -> Result<(), Error> {
        self.steps.join(request)
    }

    fn forget(&mut self, slot_id: SlotId) {
        self.steps.forget(slot_id);
    }

    fn leave(&mut self, slot_id: SlotId) {
        self.steps.leave(slot_id);
    }

    fn allow(&mut self, row: usize, mask: Option<&[u32]>) {
        self.steps.allow(row, mask);
    }

    fn play(&mut self, pages: NewPages, runs: usize) -> Result<(u64, Vec<Run>), Error> {
        let writes = self.page_writes(pages)?;
        self.steps.play(writes, runs)
    }

    fn verify(&mut self, pages: NewPages, drafts: &[Draft]) -> Result<(u64, Vec<Run>), Error> {
        let writes = self.page_writes(pages)?;
        self.steps.verify(writes, drafts)
    }

    fn forward(&mut self, pages: NewPages) -> Result<(), Error> {
        let writes = self.page_writes(pages)?;
        self.steps.forward(writes)
    }

    fn mixed_tokens(&self) -> usize {
        // The recurrences of rows and chunks are programs of their own, and a processor gains nothing by more tokens.
        if self.is_recurrent() || self.is_synchronous() {
            0
        } else {
            self.steps.mixed_tokens()
        }
    }

    fn has_mixed_step(&self) -> bool {
        self.steps.is_mixed()
    }

    fn prepare_mixed_step(&mut self) -> Result<(), Error> {
        self.steps.prepare_mixed(&self.model, &self.states)
    }

    fn mix(&mut self, pages: NewPages, pieces: &[PrefillPiece<'_>]) -> Result<(u64, Vec<Run>), Error> {
        let writes = self.page_writes(pages)?;
        self.steps.mix(writes, pieces)
    }

    fn sample(&mut self) -> Result<(u64, Vec<Run>), Error> {
        self.steps.sample()
    }

    fn wait(&mut self, run: &Run, pace: &Pace) -> Result<u32, Error> {
        self.steps.wait(run, pace)
    }

    fn reported(&mut self, output: u64, row: usize) -> Result<u32, Error> {
        self.steps.reported(output, row)
    }

    fn drafted(&mut self, row: usize) -> Result<Vec<u32>, Error> {
        self.steps.drafted(row)
    }

    fn logprobs(&mut self, output: u64, row: usize) -> Result<Option<Logprobs>, Error> {
        self.steps.logprobs(output, row)
    }

    fn release(&mut self) {
        self.steps.release();
        self.prompts.release();
        self.scratch.release();
    }
}
