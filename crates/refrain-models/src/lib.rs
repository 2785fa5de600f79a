//! Model architectures, one file each, written only with arrays.
//!
//! A model sees its tokens on one flat axis: activations are `[T, hidden]`, and which sequence,
//! position and cache slot a token has are arrays of a [`Batch`]. Prefill chunks, decoding and batches
//! of both are the same traced program.

mod batch;
pub mod blocks;
mod cache;
mod error;
mod llama;
mod loader;
mod qwen3;

use refrain::{Array, Device};
use refrain_formats::{Architecture, Checkpoint};

pub use batch::{Batch, Pages};
pub use cache::Cache;
pub use error::Error;
pub use loader::{Loader, Progress};

/// A decoder: logits for the tokens of a batch.
pub trait Decoder: Send + Sync {
    /// Logits `[O, vocabulary]` (f32) for the `O` tokens that the batch asks for. Each layer's keys
    /// and values of all tokens are written to its cache.
    fn forward(&self, batch: &Batch, caches: &mut [Cache]) -> Array;
}

/// Loads the weights of a checkpoint onto a device.
///
/// # Errors
/// A tensor that is missing or of the wrong shape, a damaged file, a device without enough memory.
pub fn load(checkpoint: &Checkpoint, device: &Device, progress: &dyn Fn(Progress)) -> Result<Box<dyn Decoder>, Error> {
    let loader = Loader::new(checkpoint, device, progress);
    Ok(match checkpoint.config().architecture {
        Architecture::Qwen3 => Box::new(qwen3::Qwen3::load(&loader)?),
        Architecture::Llama => Box::new(llama::Llama::load(&loader)?),
    })
}
