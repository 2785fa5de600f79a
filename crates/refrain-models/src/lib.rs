//! Families of models, one file each, written only with arrays.
//!
//! [`Checkpoint::open`] finds the family of a checkpoint's files by the names that its record ([`family::Family`]) has,
//! and reads its hyperparameters; [`load`] brings its weights onto a device.
//!
//! A model sees its tokens on one flat axis: activations are `[T, hidden]`, and which sequence,
//! position and cache slot a token has are arrays of a [`Batch`]. Prefill chunks, decoding and batches
//! of both are the same traced program.
//!
//! ```no_run
//! # fn main() -> Result<(), refrain_formats::Error> {
//! use refrain_models::Checkpoint;
//!
//! let checkpoint = Checkpoint::open("Qwen3-0.6B".as_ref())?;
//! let config = checkpoint.config();
//! let embedding = checkpoint.expect(
//!     "model.embed_tokens.weight",
//!     &[config.vocab_size, config.hidden_size],
//! )?;
//! println!("{} {:?}", embedding.info.encoding, embedding.info.shape);
//! let tokenizer = checkpoint.tokenizer()?;
//! println!("{:?}", tokenizer.encode("Once upon a time", true)?);
//! # Ok(()) }
//! ```

mod batch;
pub mod blocks;
mod checkpoint;
pub mod config;
mod error;
mod families;
pub mod family;
pub mod hybrid;
mod loader;
mod stack;
mod state;
mod synthetic;
pub mod tensors;
pub mod transformer;

use refrain::{Array, DType, Device};

pub use batch::{Batch, Pages};
pub use checkpoint::Checkpoint;
pub use config::ModelConfig;
pub use error::Error;
pub use families::FAMILIES;
pub use family::Family;
pub use loader::{Loader, Progress};
pub use state::{Cache, LayerState, Recurrence};
pub use synthetic::{SyntheticSpec, architectures};

/// A decoder: logits for the tokens of a batch.
pub trait Decoder: Send + Sync {
    /// What its layers remember, of nothing yet: `pages` of keys and values in `dtype` for each of
    /// `sequences` sequences.
    ///
    /// # Errors
    /// Too little memory.
    fn new_states(&self, dtype: DType, pages: Pages, sequences: usize) -> Result<Vec<LayerState>, refrain::Error>;

    /// Hidden states `[O, hidden]` (f32) behind the last norm, of the `O` tokens that the batch asks for. The layers' states
    /// take in all tokens.
    fn hidden(&self, batch: &Batch, states: &mut [LayerState]) -> Array;

    /// Logits `[O, vocabulary]` (f32) of hidden states.
    fn logits(&self, hidden: &Array) -> Array;

    /// Logits `[O, vocabulary]` (f32) for the `O` tokens that the batch asks for. The layers' states take
    /// in all tokens.
    fn forward(&self, batch: &Batch, states: &mut [LayerState]) -> Array {
        self.logits(&self.hidden(batch, states))
    }
}

/// What the rotary embeddings of layers without a window are made of in sequences of at most `context` tokens: the
/// frequency of each pair, and last what cosines and sines are multiplied by.
pub fn rotation(config: &ModelConfig, context: usize) -> Vec<f32> {
    let mut numbers = blocks::frequencies(
        config.positions.dims,
        config.positions.theta,
        &config.positions.scaling,
        context,
    );
    numbers.push(config.positions.scaling.attention_factor() as f32);
    numbers
}

/// Loads the weights of a checkpoint onto a device.
///
/// # Errors
/// A tensor that is missing or of the wrong shape, a damaged file, a device without enough memory.
pub fn load(checkpoint: &Checkpoint, device: &Device, progress: &dyn Fn(Progress)) -> Result<Box<dyn Decoder>, Error> {
    let loader = Loader::new(checkpoint, device, progress);
    (checkpoint.config().family.build)(&loader)
}
