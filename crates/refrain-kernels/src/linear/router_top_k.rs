//! Top-k selection among the results of a product, as routers of mixture-of-experts models need it.

use crate::kit::largest;
use crate::{DType, OperandSpec, Push};

/// Top-k of a section's results.
pub(crate) struct RouterTopK {
    /// k: the number of results to select.
    pub count: usize,
    /// Address of the output: the indices of the selected results.
    pub indices: Push,
    /// The section's first column, which identifies it.
    pub column: usize,
    /// Number of results of the section.
    pub rows: usize,
}

impl RouterTopK {
    /// The sort keys that workgroups write for the workgroup that selects.
    pub(crate) fn keys(&self, tokens: usize) -> OperandSpec {
        OperandSpec::contiguous(DType::U32, &[tokens, 4 * largest::fours(self.rows) as usize])
    }
}
