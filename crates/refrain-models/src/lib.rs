//! Model architectures, one file each, written only with arrays.
//!
//! A model sees its tokens on one flat axis: activations are `[T, hidden]`, and which sequence,
//! position and cache slot a token has are arrays of a [`Batch`]. Prefill chunks, decoding and batches
//! of both are the same traced program.

mod batch;
pub mod blocks;
mod error;
mod gemma3;
mod llama;
mod loader;
mod olmo2;
mod phi3;
mod qwen3;
mod qwen3_5_moe;
mod stack;
mod state;
mod transformer;

use refrain::{Array, DType, Device};
use refrain_formats::{Architecture, Checkpoint, ModelConfig};

pub use batch::{Batch, Pages};
pub use error::Error;
pub use loader::{Loader, Progress};
pub use state::{Cache, LayerState, Recurrence};

/// A decoder: logits for the tokens of a batch.
pub trait Decoder: Send + Sync {
    /// What its layers remember, of nothing yet: `pages` of keys and values in `dtype` for each of
    /// `sequences` sequences.
    ///
    /// # Errors
    /// Too little memory.
    fn new_states(&self, dtype: DType, pages: Pages, sequences: usize) -> Result<Vec<LayerState>, refrain::Error>;

    /// Logits `[O, vocabulary]` (f32) for the `O` tokens that the batch asks for. The layers' states take
    /// in all tokens.
    fn forward(&self, batch: &Batch, states: &mut [LayerState]) -> Array;
}

/// What the rotary embeddings of layers without a window are made of in sequences of at most `context` tokens: the
/// frequency of each pair, and last what cosines and sines are multiplied by.
pub fn rotation(config: &ModelConfig, context: usize) -> Vec<f32> {
    let mut numbers = blocks::frequencies(config.rope_dims, config.rope_theta, &config.rope_scaling, context);
    numbers.push(config.rope_scaling.attention_factor() as f32);
    numbers
}

/// Loads the weights of a checkpoint onto a device.
///
/// # Errors
/// A tensor that is missing or of the wrong shape, a damaged file, a device without enough memory.
pub fn load(checkpoint: &Checkpoint, device: &Device, progress: &dyn Fn(Progress)) -> Result<Box<dyn Decoder>, Error> {
    let loader = Loader::new(checkpoint, device, progress);
    let style = match checkpoint.config().architecture {
        Architecture::Llama | Architecture::Qwen2 | Architecture::Mistral | Architecture::SmolLm3 => llama::STYLE,
        Architecture::Qwen3 => qwen3::STYLE,
        Architecture::Olmo2 | Architecture::Olmo3 => olmo2::STYLE,
        Architecture::Phi3 => phi3::STYLE,
        Architecture::Gemma3 => gemma3::STYLE,
        Architecture::Qwen3_5Moe => return Ok(Box::new(qwen3_5_moe::Qwen3_5Moe::load(&loader)?)),
    };
    Ok(Box::new(transformer::Transformer::load(&loader, &style)?))
}
