//! What decode steps with masks keep between their two programs: logits, and which tokens are allowed.

use refrain::{Array, DType, Device, Error};
use refrain_lm::{apply_token_bitmask, token_bitmask_words};

/// Logits and masks of N rows. Steps with at most as many rows share them.
#[derive(Clone)]
pub(crate) struct MaskStates {
    /// u32 `[N, ⌈V / 32⌉]`: bitmasks of the allowed tokens.
    pub allowed: Array,
    /// f32 `[N, V]`.
    logits: Array,
}

impl MaskStates {
    /// Allocates them for `rows` rows.
    ///
    /// # Errors
    /// If there is too little memory.
    pub fn new(device: &Device, rows: usize, vocabulary: usize) -> Result<MaskStates, Error> {
        Ok(MaskStates {
            // Written by the host for each token: a copy would be one more submit.
            allowed: Array::mapped_state(device, DType::U32, &[rows, token_bitmask_words(vocabulary)])?,
            logits: Array::state(device, DType::F32, &[rows, vocabulary])?,
        })
    }

    /// Returns the bytes of a row.
    pub fn bytes_per_row(vocabulary: usize) -> u64 {
        4 * (vocabulary + token_bitmask_words(vocabulary)) as u64
    }

    /// Keeps `logits` `[S, V]` in the first rows.
    pub fn keep(&self, logits: &Array) -> Array {
        let rows = Array::arange(logits.device(), DType::I32, logits.dim(0));
        self.logits.write_rows(logits, &rows)
    }

    /// Returns the logits of the first rows, and the same with masks applied.
    pub fn masked(&self, rows: usize) -> (Array, Array) {
        let [logits, allowed] = [&self.logits, &self.allowed].map(|state| state.slice(0, 0, rows));
        let masked = apply_token_bitmask(&logits, &allowed);
        (logits, masked)
    }
}
