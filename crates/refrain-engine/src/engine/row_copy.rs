//! Copies of rows of device arrays: pages of the KV cache, and recurrent states. They go to other rows, or to the host.

use std::ops::Range;

use refrain::{Array, DType, Executor, Function, Tape, Write};
use refrain_formats::Plane;

use super::PAGE_SIZE;
use crate::Error;
use crate::snapshot::encoding;

/// The rows of a page in the arrays of keys and values.
pub(super) fn page_rows(page: u32) -> Range<usize> {
    let page = page as usize;
    page * PAGE_SIZE..(page + 1) * PAGE_SIZE
}

/// The row of a checkpoint in the arrays of copies.
pub(super) fn checkpoint_rows(checkpoint: u32) -> Range<usize> {
    let checkpoint = checkpoint as usize;
    checkpoint..checkpoint + 1
}

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

/// Reads rows of each array, after everything submitted so far.
///
/// # Errors
/// If the device fails.
pub(super) fn read_rows(arrays: &[&Array], rows: Range<usize>) -> Result<Vec<Plane>, Error> {
    let read = |array: &&Array| {
        let row = array.shape()[1..].to_vec();
        let bytes = row_bytes(array);
        let mut plane = Plane {
            encoding: encoding(array.dtype()),
            row,
            bytes: vec![0; rows.len() * bytes],
        };
        array.read_state(rows.start * bytes, &mut plane.bytes)?;
        Ok(plane)
    };
    arrays.iter().map(read).collect()
}

/// Writes rows of each array. Returns whether they fit; if not, none is written.
///
/// # Errors
/// If the device fails.
pub(super) fn write_rows(arrays: &[&Array], rows: Range<usize>, planes: &[Plane]) -> Result<bool, Error> {
    let fits = |(array, plane): (&&Array, &Plane)| {
        encoding(array.dtype()) == plane.encoding
            && array.shape()[1..] == plane.row
            && plane.bytes.len() == rows.len() * row_bytes(array)
    };
    if arrays.len() != planes.len() || !arrays.iter().zip(planes).all(fits) {
        return Ok(false);
    }
    for (array, plane) in arrays.iter().zip(planes) {
        array.write_state(rows.start * row_bytes(array), &plane.bytes)?;
    }
    Ok(true)
}

/// Returns the bytes of a row.
fn row_bytes(array: &Array) -> usize {
    array.shape()[1..].iter().product::<usize>() * array.dtype().size()
}
