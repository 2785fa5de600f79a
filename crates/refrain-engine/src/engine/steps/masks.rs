//! The masks of the rows of a step.

use std::ops::Range;

use refrain::Array;

use crate::Error;

/// The masks of the rows of a step, as they should be on the device.
#[derive(Default)]
pub(super) struct Masks {
    /// Words of a row.
    words: usize,
    bits: Vec<u32>,
    /// Rows that are restricted.
    restricted: Vec<bool>,
    /// Rows that are not written yet.
    unwritten: Range<usize>,
}

impl Masks {
    /// Masks of `rows` rows that allow all tokens.
    pub fn of(rows: usize, vocabulary: usize) -> Masks {
        let words = refrain_lm::token_bitmask_words(vocabulary);
        Masks {
            words,
            bits: vec![u32::MAX; rows * words],
            restricted: vec![false; rows],
            unwritten: 0..rows,
        }
    }

    /// Restricts a row to the tokens whose bits are set; `None` allows all.
    pub fn set(&mut self, row: usize, mask: Option<&[u32]>) {
        let bits = &mut self.bits[row * self.words..][..self.words];
        match mask {
            Some(mask) => bits.copy_from_slice(mask),
            None if self.restricted[row] => bits.fill(u32::MAX),
            None => return,
        }
        self.restricted[row] = mask.is_some();
        self.unwritten = match self.unwritten.is_empty() {
            true => row..row + 1,
            false => self.unwritten.start.min(row)..self.unwritten.end.max(row + 1),
        };
    }

    /// Writes the rows that changed, and those between them, at once.
    ///
    /// # Errors
    /// If the device fails.
    pub fn write_to(&mut self, allowed: &Array) -> Result<(), Error> {
        let rows = std::mem::take(&mut self.unwritten);
        let words = rows.start * self.words..rows.end * self.words;
        if words.is_empty() {
            return Ok(());
        }
        Ok(allowed.write_state(4 * words.start, bytemuck::cast_slice(&self.bits[words]))?)
    }
}
