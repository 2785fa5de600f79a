//! How likely the tokens are that a decode step picks: kept by the device, read by the host when it hears of them.

use refrain::{Array, DType, Device, Error};
use refrain_lm::{Likelihoods, likelihoods};

/// The most likeliest tokens that can be asked for.
pub const MOST_LIKELIEST: usize = 20;
/// Runs whose likelihoods are kept: more than are under way at once; it divides 2^32.
const PLACES: usize = 128;

/// The likelihoods of the last runs of S sequences, in memory that the host sees.
#[derive(Clone)]
pub(crate) struct LikelihoodRing {
    /// f32 `[S · PLACES, …]`: rows of [`likelihoods`], run r of a sequence at r modulo PLACES.
    rows: Array,
    sequences: usize,
    likeliest: usize,
}

impl LikelihoodRing {
    /// # Errors
    /// Too little memory.
    pub fn new(device: &Device, sequences: usize, vocabulary: usize) -> Result<LikelihoodRing, Error> {
        let likeliest = MOST_LIKELIEST.min(vocabulary);
        Ok(LikelihoodRing {
            rows: Array::mapped_state(device, DType::F32, &[sequences * PLACES, Likelihoods::width(likeliest)])?,
            sequences,
            likeliest,
        })
    }

    /// The ring with what `logits` `[S, V]` say of the tokens `picked` `[S]` and of the likeliest ones; `runs`, u32 `[S]`, are
    /// the runs so far, this one included.
    pub fn keep(&self, runs: &Array, logits: &Array, picked: &Array) -> Array {
        let first = Array::arange(self.rows.device(), DType::U32, self.sequences) * PLACES as i32;
        let places = first + (runs + (PLACES - 1) as i32) % PLACES as i32;
        let rows = likelihoods(logits, picked, self.likeliest);
        self.rows.write_rows(&rows, &places.astype(DType::I32))
    }

    /// What was kept of the token that run number `run` picked, once it is over.
    ///
    /// # Errors
    /// A device that fails.
    pub fn read(&self, sequence: usize, run: u64) -> Result<Likelihoods, Error> {
        let width = Likelihoods::width(self.likeliest);
        let place = sequence * PLACES + (run % PLACES as u64) as usize;
        let mut row = vec![0; width];
        self.rows.peek(place * width, &mut row)?;
        Ok(Likelihoods::of_row(bytemuck::cast_slice(&row)))
    }
}
