//! Copies of rows of device arrays: pages of the KV cache, and recurrent states.

use refrain::{Array, DType, Executor, Function, Tape, Write};

use crate::Error;

/// A program that copies rows of arrays into rows of others, or of the same.
pub(super) struct RowCopy {
    tape: Tape,
    /// i32 `[rows]`: the rows that are read, and those that are written.
    from: Array,
    to: Array,
}

impl RowCopy {
    /// Compiles copies of `rows` rows of each of `from` into the array of `to` with the same index.
    ///
    /// # Errors
    /// If it cannot be lowered, or there is too little memory.
    pub fn new(from: &[&Array], to: &[&Array], rows: usize, executor: &'static dyn Executor) -> Result<RowCopy, Error> {
        let device = from.first().expect("an array").device();
        let indices = || Array::state(device, DType::I32, &[rows]);
        let (from_rows, to_rows) = (indices()?, indices()?);
        let pairs = from.iter().zip(to);
        let copied: Vec<Array> = pairs
            .map(|(from, to)| to.write_rows(&from.take(&from_rows, 0), &to_rows))
            .collect();
        Ok(RowCopy {
            tape: Function::trace(&copied.iter().collect::<Vec<_>>())?.tape(executor)?,
            from: from_rows,
            to: to_rows,
        })
    }

    /// Copies rows `from` into rows `to`, after everything submitted so far. If both are of the same arrays, no row may be
    /// in both.
    ///
    /// # Errors
    /// If the device fails.
    pub fn play(&self, from: &[u32], to: &[u32]) -> Result<(), Error> {
        let write = |state: &Array, rows: &[u32]| Write {
            state: state.clone(),
            at: 0,
            words: rows.to_vec(),
        };
        self.tape.play(&[write(&self.from, from), write(&self.to, to)], 1)?;
        Ok(())
    }
}
