//! Model families, one file each, written only with arrays.
//!
//! [`Checkpoint::open`] finds the family of a checkpoint by its names (see [`family::Family`]) and reads its
//! hyperparameters. [`load`] loads its weights onto a device as a [`Decoder`].
//!
//! A model sees its tokens on one flat axis: activations are `[T, hidden]`. Arrays of a [`Batch`] give each token's
//! sequence, position and KV cache slot. Prefill, decode and mixed batches are the same traced program.
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
mod cache_type;
mod checkpoint;
pub mod config;
mod decoder;
pub mod demo;
mod error;
mod families;
pub mod family;
pub mod hybrid;
mod loader;
pub mod mtp;
mod stacked_tensors;
mod state;
mod synthetic;
pub mod tensors;
pub mod transformer;

use refrain::Device;

pub use batch::{Batch, BatchPart, Pages};
pub use cache_type::{CacheType, CacheTypes};
pub use checkpoint::Checkpoint;
pub use config::ModelConfig;
pub use decoder::{Decoder, MtpHead};
pub use error::Error;
pub use families::FAMILIES;
pub use family::Family;
pub use loader::{Loader, Progress};
pub use state::{KvCache, LayerState, RecurrentState};
pub use synthetic::{SyntheticSpec, architectures};

/// Identifies the rotary embedding of full-attention layers in contexts of up to `context` tokens: the frequency of
/// each pair, then the factor of cosines and sines.
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

/// Loads the weights of a checkpoint onto a device. `config` is the checkpoint's, or has no multi-token prediction layers,
/// so that they are left out.
///
/// # Errors
/// If a tensor is missing or has the wrong shape, a file is corrupt, or the device has too little memory.
pub fn load(
    checkpoint: &Checkpoint,
    config: &ModelConfig,
    device: &Device,
    progress: &dyn Fn(Progress),
) -> Result<Box<dyn Decoder>, Error> {
    let loader = Loader::new(checkpoint.files(), config, device, progress);
    (config.family.build)(&loader)
}
