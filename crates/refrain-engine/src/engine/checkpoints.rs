//! Checkpoints of recurrent states at the ends of pages.
//!
//! Keys and values of a cached prefix stay in their pages. A recurrent state is overwritten by every token, so a request
//! can continue after a cached page only if the state after it was saved.

use refrain::{Array, Executor};
use refrain_models::LayerState;

use super::row_copy::RowCopy;
use crate::Error;

/// Checkpoints per sequence: after its prompt, and after its text so far.
pub(super) const CHECKPOINTS_EACH: usize = 2;

/// Memory for copies of one sequence's recurrent states.
pub(super) struct StateCheckpoints {
    /// Rows are checkpoints.
    copies: Vec<Array>,
    save: RowCopy,
    restore: RowCopy,
}

impl StateCheckpoints {
    /// Allocates [`CHECKPOINTS_EACH`] checkpoints for each sequence and one for the next, but no more than fit into as many
    /// bytes as the keys and values of all sequences, and at least one. Returns `None` for a model without recurrent layers.
    ///
    /// # Errors
    /// If there is too little memory.
    pub fn new(states: &[LayerState], executor: &'static dyn Executor) -> Result<Option<StateCheckpoints>, Error> {
        let of_sequences = LayerState::recurrent(states);
        let Some(first) = of_sequences.first() else {
            return Ok(None);
        };
        let (device, sequences) = (first.device(), first.dim(0));
        let bytes = |array: &Array| array.shape().iter().product::<usize>() * array.dtype().size();
        let recurrent: usize = of_sequences.iter().map(|array| bytes(array)).sum();
        let all: usize = states.iter().flat_map(LayerState::arrays).map(bytes).sum();
        let each = recurrent / sequences;
        let count = ((all - recurrent) / each.max(1)).clamp(1, CHECKPOINTS_EACH * sequences + 1);
        let spare = of_sequences.iter().map(|array| {
            let shape: Vec<usize> = [count].into_iter().chain(array.shape()[1..].iter().copied()).collect();
            Array::state(device, array.dtype(), &shape)
        });
        let copies: Vec<Array> = spare.collect::<Result<_, _>>()?;
        let rows: Vec<&Array> = copies.iter().collect();
        Ok(Some(StateCheckpoints {
            save: RowCopy::new(&of_sequences, &rows, 1, executor)?,
            restore: RowCopy::new(&rows, &of_sequences, 1, executor)?,
            copies,
        }))
    }

    /// Returns the number of checkpoints.
    pub fn count(&self) -> usize {
        self.copies[0].dim(0)
    }

    /// Returns the arrays of the copies, whose rows are checkpoints.
    pub fn copies(&self) -> Vec<&Array> {
        self.copies.iter().collect()
    }

    /// Saves a sequence's states as they are after everything submitted so far.
    ///
    /// # Errors
    /// If the device fails.
    pub fn save(&self, sequence: usize, checkpoint: u32) -> Result<(), Error> {
        self.save.play(&[sequence as u32], &[checkpoint])
    }

    /// Restores a sequence's states from a checkpoint.
    ///
    /// # Errors
    /// If the device fails.
    pub fn restore(&self, sequence: usize, checkpoint: u32) -> Result<(), Error> {
        self.restore.play(&[checkpoint], &[sequence as u32])
    }
}
