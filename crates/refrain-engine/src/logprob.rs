//! Log-probabilities of sampled tokens: stored by the device, read by the host with the token.

use refrain::{Array, DType, Device, Error};
use refrain_lm::{Logprobs, logprobs};

/// Limit of the most likely tokens that can be requested per position.
pub const MAX_TOP_LOGPROBS: usize = 20;
/// Outputs of a sequence whose log-probabilities are kept: more than are in flight at once. Divides 2^32.
const RING_SLOTS: usize = 128;

/// Log-probabilities of the last outputs of S sequences, in host-visible memory.
#[derive(Clone)]
pub(crate) struct LogprobRing {
    /// f32 `[S · RING_SLOTS, …]`: rows of [`logprobs`]; output n of a sequence is at n modulo RING_SLOTS.
    pub rows: Array,
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
    /// V]`. `outputs`, u32 `[S]`, counts the outputs so far, this one included. Returns the next version of the ring.
    pub fn keep(&self, outputs: &Array, logits: &Array, picked: &Array) -> LogprobRing {
        let first = Array::arange(self.rows.device(), DType::U32, self.sequences) * RING_SLOTS as i32;
        let slots = first + (outputs + (RING_SLOTS - 1) as i32) % RING_SLOTS as i32;
        let rows = logprobs(logits, picked, self.top);
        LogprobRing {
            rows: self.rows.write_rows(&rows, &slots.astype(DType::I32)),
            ..self.clone()
        }
    }

    /// Returns the log-probabilities of output number `output`, once its run is over.
    ///
    /// # Errors
    /// If the device fails.
    pub fn read(&self, sequence: usize, output: u64) -> Result<Logprobs, Error> {
        let width = Logprobs::width(self.top);
        let slot = sequence * RING_SLOTS + (output % RING_SLOTS as u64) as usize;
        let mut row = vec![0; width];
        self.rows.peek(slot * width, &mut row)?;
        Ok(Logprobs::from_row(bytemuck::cast_slice(&row)))
    }
}
