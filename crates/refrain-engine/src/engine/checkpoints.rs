//! Recurrent states as they were behind the last token of a page.
//!
//! Keys and values of a known beginning are there for whoever begins alike. What a recurrence makes of it is one state,
//! which later tokens overwrite: a request can go on behind a page only where that state was copied when it stood there.

use refrain::{Array, DType, Executor, Function, Tape, Write};
use refrain_models::LayerState;

use crate::Error;

/// Room for copies of the states that a model's recurrent layers have of one sequence.
pub(super) struct StateCheckpoints {
    count: usize,
    save: Tape,
    restore: Tape,
    /// i32 `[1]`: the sequence, and the copy.
    sequence: Array,
    copy: Array,
}

impl StateCheckpoints {
    /// One for each sequence, but no more than fit into the bytes that the keys and values of all sequences take up, and
    /// one at least; `None` for a model that has no recurrent layers.
    ///
    /// # Errors
    /// Too little memory.
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
        let count = ((all - recurrent) / each.max(1)).clamp(1, sequences);
        let spare = of_sequences.iter().map(|array| {
            let shape: Vec<usize> = [count].into_iter().chain(array.shape()[1..].iter().copied()).collect();
            Array::state(device, array.dtype(), &shape)
        });
        let copies: Vec<Array> = spare.collect::<Result<_, _>>()?;
        let copies: Vec<&Array> = copies.iter().collect();
        let [sequence, copy] = [(); 2].map(|()| Array::state(device, DType::I32, &[1]));
        let (sequence, copy) = (sequence?, copy?);
        Ok(Some(StateCheckpoints {
            count,
            save: copying((&of_sequences, &sequence), (&copies, &copy), executor)?,
            restore: copying((&copies, &copy), (&of_sequences, &sequence), executor)?,
            sequence,
            copy,
        }))
    }

    /// Copies that there is room for.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Makes a copy of a sequence's states as they are behind all that was submitted.
    pub fn save(&self, sequence: usize, copy: u32) -> Result<(), Error> {
        self.play(&self.save, sequence, copy)
    }

    /// Gives a sequence the states of a copy.
    pub fn restore(&self, sequence: usize, copy: u32) -> Result<(), Error> {
        self.play(&self.restore, sequence, copy)
    }

    fn play(&self, tape: &Tape, sequence: usize, copy: u32) -> Result<(), Error> {
        let index = |state: &Array, number| Write {
            state: state.clone(),
            at: 0,
            words: vec![number],
        };
        tape.play(&[index(&self.sequence, sequence as u32), index(&self.copy, copy)], 1)?;
        Ok(())
    }
}

/// The program that copies one row of each array into one of another.
fn copying(
    (from, row): (&[&Array], &Array),
    (to, into): (&[&Array], &Array),
    executor: &'static dyn Executor,
) -> Result<Tape, Error> {
    let pairs = from.iter().zip(to);
    let copied: Vec<Array> = pairs
        .map(|(from, to)| to.write_rows(&from.take(row, 0), into))
        .collect();
    Ok(Function::trace(&copied.iter().collect::<Vec<_>>())?.tape(executor)?)
}
