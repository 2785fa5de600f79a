//! What a batch needs of a device: chunks of prompts, and decode steps.
//!
//! The batch decides who runs; a [`Runner`] computes it. Tests replace the device by a model of one.

mod device;

use std::time::Instant;

use refrain_formats::Plane;
use refrain_lm::Logprobs;

pub(super) use self::device::DeviceRunner;
use super::speculation::Draft;
use super::steps::{RowRequest, SlotId};
use crate::Error;
use crate::pace::Pace;
use crate::prefill::{PrefillPiece, RowOutput};
use crate::step::StepExtras;

/// The rows of a decode step, and its optional parts.
pub(super) type StepKind = (usize, StepExtras);

/// Words that the page table lacks, from an index on each.
pub(super) type NewPages = Vec<(usize, Vec<u32>)>;

/// Computes for a batch. Work is done in the order in which it is submitted.
pub(super) trait Runner {
    /// A submitted run of the decode step.
    type Run;

    /// Whether work is done when its submit returns.
    fn is_synchronous(&self) -> bool;
    /// Whether one submit carries several runs.
    fn batches_runs(&self) -> bool;
    /// Returns the time.
    fn now(&self) -> Instant;
    /// Returns the vocabulary size.
    fn vocabulary(&self) -> usize;
    /// Returns the chunk size of a prompt while no other waits.
    fn default_chunk(&self) -> usize;
    /// Returns how many tokens, at most `max`, a chunk may have after `depth` others.
    fn max_chunk_tokens(&self, max: usize, depth: usize) -> usize;
    /// Whether the model has recurrent states.
    fn is_recurrent(&self) -> bool;
    /// Returns the number of checkpoints of recurrent states; `None` if there are none.
    fn checkpoints(&self) -> Option<usize>;
    /// Saves the recurrent states of a slot.
    fn save_states(&mut self, slot: usize, checkpoint: u32) -> Result<(), Error>;
    /// Restores the recurrent states of a slot.
    fn restore_states(&mut self, slot: usize, checkpoint: u32) -> Result<(), Error>;
    /// Copies what a page holds into another page, and a slot's recurrent states into another slot, each given as
    /// `[from, to]`.
    fn fork(&mut self, pages: [u32; 2], slots: [usize; 2]) -> Result<(), Error>;

    /// Makes what [`Runner::fork`] needs.
    fn prepare_fork(&mut self) -> Result<(), Error>;

    /// Reads what a page holds of each layer.
    fn read_page(&mut self, page: u32) -> Result<Vec<Plane>, Error>;
    /// Writes what a page holds. Returns whether it fits.
    fn write_page(&mut self, page: u32, planes: &[Plane]) -> Result<bool, Error>;
    /// Reads the recurrent states of a checkpoint.
    fn read_states(&mut self, checkpoint: u32) -> Result<Vec<Plane>, Error>;
    /// Writes the recurrent states of a checkpoint. Returns whether they fit.
    fn write_states(&mut self, checkpoint: u32, planes: &[Plane]) -> Result<bool, Error>;

    /// Returns how many of `tokens` tokens memory allows a chunk to have, with logits of `wanted` of them.
    fn fit_chunk(&mut self, tokens: usize, wanted: usize) -> Result<usize, Error>;
    /// Makes the program of a chunk.
    fn prepare_chunk(&mut self, tokens: usize) -> Result<(), Error>;
    /// Computes pieces of prompts into the pages of `table`. Returns whether a program was made since the last call.
    fn prefill(&mut self, pieces: Vec<PrefillPiece<'_>>, table: &[u32]) -> Result<bool, Error>;
    /// As `prefill`, and returns what it computes after each of the last `wanted` tokens, in rows of equal length, once that is
    /// done.
    fn rows_after(
        &mut self,
        pieces: Vec<PrefillPiece<'_>>,
        wanted: usize,
        output: RowOutput,
        table: &[u32],
    ) -> Result<Vec<f32>, Error>;

    /// Returns the requests in the rows of the step in use.
    fn rows(&self) -> &[Option<SlotId>];
    /// Returns the optional parts of the step in use.
    fn extras(&self) -> StepExtras;
    /// Whether a step was made.
    fn has_step(&self, kind: StepKind) -> bool;
    /// Makes a step.
    fn prepare_step(&mut self, kind: StepKind) -> Result<(), Error>;
    /// Uses a step, with empty rows. Nothing may be in flight.
    fn use_step(&mut self, kind: StepKind) -> Result<(), Error>;
    /// Gives a request a free row.
    fn join(&mut self, request: &RowRequest<'_>) -> Result<(), Error>;
    /// Has a request's state written again when it next gets a row.
    fn forget(&mut self, slot_id: SlotId);
    /// Removes a request from its slot and its row.
    fn leave(&mut self, slot_id: SlotId);
    /// Restricts the next token of a row to those whose bits are set; `None` allows all.
    fn allow(&mut self, row: usize, mask: Option<&[u32]>);
    /// Runs the step in use `runs` times, after writing new pages to the page table: words from an index on. Returns the
    /// number of the first output: each run has one for each row.
    fn play(&mut self, pages: NewPages, runs: usize) -> Result<(u64, Vec<Self::Run>), Error>;
    /// As `play`, but runs a step with masks only up to the logits. [`Runner::sample`] follows.
    fn forward(&mut self, pages: NewPages) -> Result<(), Error>;
    /// As `play`, but runs a step with drafts once, with this draft of each row. It has an output after a row's token,
    /// and one after each token of its draft.
    fn verify(&mut self, pages: NewPages, drafts: &[Draft]) -> Result<(u64, Vec<Self::Run>), Error>;
    /// Returns how many tokens of prompts the step in use can compute beside its rows: 0 if such a step is not worth it.
    fn mixed_tokens(&self) -> usize;
    /// Whether the program for that was made.
    fn has_mixed_step(&self) -> bool;
    /// Makes that program. Nothing may be in flight.
    fn prepare_mixed_step(&mut self) -> Result<(), Error>;
    /// As `play`, but runs the step once together with pieces of prompts.
    fn mix(&mut self, pages: NewPages, pieces: &[PrefillPiece<'_>]) -> Result<(u64, Vec<Self::Run>), Error>;
    /// Samples from the logits of [`Runner::forward`] with the masks set since. Returns the number of the output, and the
    /// run.
    fn sample(&mut self) -> Result<(u64, Vec<Self::Run>), Error>;
    /// Waits until a run is over; returns how often it was polled.
    fn wait(&mut self, run: &Self::Run, pace: &Pace) -> Result<u32, Error>;
    /// Returns an output for a row, once its run is over.
    fn reported(&mut self, output: u64, row: usize) -> Result<u32, Error>;
    /// Returns the tokens that the model's own head drafted behind the last token of a row, once a run with drafts is over.
    fn drafted(&mut self, row: usize) -> Result<Vec<u32>, Error>;
    /// Returns the log-probabilities of an output for a row, once its run is over, if the step in use stores them.
    fn logprobs(&mut self, output: u64, row: usize) -> Result<Option<Logprobs>, Error>;
    /// Discards all programs.
    fn release(&mut self);
}
