//! What a product chooses among its results.

use crate::kit::largest;
use crate::{DType, OperandSpec, Push};

/// The largest results of a section.
pub(crate) struct RowChoice {
    /// How many.
    pub count: usize,
    /// Where their places go.
    pub places: Push,
    /// The section's first column, by which it is known.
    pub column: usize,
    /// Results of the section.
    pub rows: usize,
}

impl RowChoice {
    /// What workgroups leave to the one that chooses.
    pub(crate) fn keys(&self, tokens: usize) -> OperandSpec {
        OperandSpec::contiguous(DType::U32, &[tokens, 4 * largest::fours(self.rows) as usize])
    }
}
