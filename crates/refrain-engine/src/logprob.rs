//! Log-probabilities of sampled tokens: stored by the device, read by the host with the token.

use refrain::{Array, DType, Device, Error};
use refrain_lm::{Logprobs, logprobs};

/// Limit of the most likely tokens that can be requested per position.
pub const MAX_TOP_LOGPROBS: usize = 20;
/// Runs whose log-probabilities are kept: more than are in flight at once. Divides 2^32.
const RING_SLOTS: usize = 128;

/// Log-probabilities of the last runs of S sequences, in host-visible memory.
#[derive(Clone)]
pub(crate) struct LogprobRing {
    /// f32 `[S · RING_SLOTS, …]`: rows of [`logprobs`]; run r of a sequence is at r modulo RING_SLOTS.
    rows: Array,
    sequences: usize,
    top: usize,
}

impl LogprobRing {
    /// # Errors
    /// If there is too little memory.
    pub fn new(device: &Device, sequences: usize, vocabulary: usize) -> Result<LogprobRing, Error> {
        let top = MAX_TOP_LOGPROBS.min(vocabulary);
        Ok(LogprobRing {
            rows: Array::mapped_state(device, DType::F32, &[sequences * RING_SLOTS, Logprobs::width(top)])?,
            sequences,
            top,
        })
    }

    /// Stores the log-probabilities of the tokens `picked` `[S]` and of the most likely ones, from `logits` `[S,
    /// V]`. `runs`, u32 `[S]`, counts the runs so far, this one included.
    pub fn keep(&self, runs: &Array, logits: &Array, picked: &Array) -> Array {
        let first = Array::arange(self.rows.device(), DType::U32, self.sequences) * RING_SLOTS as i32;
        let slots = first + (runs + (RING_SLOTS - 1) as i32) % RING_SLOTS as i32;
        let rows = logprobs(logits, picked, self.top);
        self.rows.write_rows(&rows, &slots.astype(DType::I32))
    }

    /// Returns the log-probabilities of run number `run`, once it is over.
    ///
    /// # Errors
    /// If the device fails.
    pub fn read(&self, sequence: usize, run: u64) -> Result<Logprobs, Error> {
        let width = Logprobs::width(self.top);
        let slot = sequence * RING_SLOTS + (run % RING_SLOTS as u64) as usize;
        let mut row = vec![0; width];
        self.rows.peek(slot * width, &mut row)?;
        Ok(Logprobs::from_row(bytemuck::cast_slice(&row)))
    }
}
