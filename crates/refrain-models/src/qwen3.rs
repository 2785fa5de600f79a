use refrain::Array;

use crate::llama::Llama;
use crate::{Batch, Cache, Decoder, Error, Loader};

/// Qwen3, dense (Qwen team 2025, arXiv:2505.09388): a Llama whose queries and keys are normalised
/// head by head before they are rotated.
pub struct Qwen3(Llama);

impl Qwen3 {
    /// Loads the weights under Hugging Face's names.
    pub fn load(loader: &Loader<'_>) -> Result<Qwen3, Error> {
        Ok(Qwen3(Llama::with_norms(loader, true)?))
    }
}

impl Decoder for Qwen3 {
    fn forward(&self, batch: &Batch, caches: &mut [Cache]) -> Array {
        self.0.forward(batch, caches)
    }
}
