//! The mixed step: one program computes the next token of each sequence in a row and a chunk of the prompts of others.
//!
//! Both share every product with a weight, so the weights are read once. Only rows are sampled: a prompt that is complete
//! gets its row in the next step.

use refrain::{Array, DType, Device, Error, Executor, Run, Write, concatenate};
use refrain_models::{Batch, BatchPart, LayerState, Pages};

use super::{DecodeState, DecodeStep, HeadTrace, Program, StepExtras};
use crate::Model;
use crate::prefill::{PADDING, PrefillPiece, token_axis};

/// The program of a decode step's rows with a chunk behind them.
pub(super) struct MixedStep {
    program: Program,
    chunk: ChunkTokens,
}

/// The tokens of a chunk of C tokens, which the host writes before each run.
struct ChunkTokens {
    /// u32 `[C]`.
    tokens: Array,
    /// i32 `[C]`: -1 for padding.
    positions: Array,
    /// u32 `[C]`: rows of the page table.
    sequences: Array,
}

impl ChunkTokens {
    fn new(device: &Device, tokens: usize) -> Result<ChunkTokens, Error> {
        let state = |dtype| Array::state(device, dtype, &[tokens]);
        Ok(ChunkTokens {
            tokens: state(DType::U32)?,
            positions: state(DType::I32)?,
            sequences: state(DType::U32)?,
        })
    }

    /// Returns a batch of the current tokens of a step's sequences, and of the chunk behind them.
    fn append_to(&self, control: &DecodeState, pages: Pages) -> Batch {
        let mut batch = control.batch(pages, StepExtras::default());
        batch.tokens = concatenate(&[&batch.tokens, &self.tokens], 0);
        batch.parts.push(BatchPart {
            positions: self.positions.clone(),
            sequences: self.sequences.clone(),
            decode: false,
        });
        batch
    }

    /// Returns the writes that make these pieces of prompts the chunk.
    fn writes(&self, pieces: &[PrefillPiece<'_>]) -> Vec<Write> {
        let [tokens, mut positions, sequences] = token_axis(pieces);
        debug_assert!(tokens.len() <= self.tokens.count(), "{} tokens", tokens.len());
        positions.resize(self.positions.count(), PADDING);
        let write = |state: &Array, words| Write {
            state: state.clone(),
            at: 0,
            words,
        };
        vec![
            write(&self.tokens, tokens),
            write(&self.positions, positions),
            write(&self.sequences, sequences),
        ]
    }
}

impl DecodeStep {
    /// Whether [`DecodeStep::prepare_mixed`] made the program.
    pub fn is_mixed(&self) -> bool {
        self.mixed.is_some()
    }

    /// Makes the program that also computes up to `tokens` tokens of prompts, unless it is made.
    ///
    /// # Errors
    /// If it cannot be lowered, or there is too little memory.
    pub fn prepare_mixed(
        &mut self,
        model: &Model,
        states: &[LayerState],
        pages: Pages,
        tokens: usize,
        executor: &'static dyn Executor,
    ) -> Result<(), Error> {
        if self.is_mixed() {
            return Ok(());
        }
        let chunk = ChunkTokens::new(model.device(), tokens)?;
        let batch = chunk.append_to(&self.control, pages);
        let mut states = states.to_vec();
        // With so many rows, nothing is drafted.
        HeadTrace::take(model, &mut states);
        let logits = model.decoder().forward(&batch, &mut states);
        let (_, outputs) = self.control.sample(&logits, StepExtras::default(), &self.options)?;
        let mut program = Program::trace(&outputs, &self.options)?;
        program.tape(executor)?.prepare_writes()?;
        self.mixed = Some(MixedStep { program, chunk });
        Ok(())
    }

    /// Returns the writes that make these pieces of prompts the chunk of the next mixed run.
    ///
    /// # Panics
    /// Panics without the program.
    pub fn chunk_writes(&self, pieces: &[PrefillPiece<'_>]) -> Vec<Write> {
        self.mixed.as_ref().expect("a mixed step").chunk.writes(pieces)
    }

    /// Applies `writes`, then runs the mixed program once. It has an output as any run of the step has.
    ///
    /// # Errors
    /// If the device fails.
    ///
    /// # Panics
    /// Panics without the program.
    pub fn play_mixed(&mut self, executor: &'static dyn Executor, writes: &[Write]) -> Result<Vec<Run>, Error> {
        let mixed = self.mixed.as_mut().expect("a mixed step");
        let played = mixed.program.tape(executor)?.play(writes, 1)?;
        self.reports += 1;
        Ok(played)
    }
}
