use std::fmt;
use std::sync::Arc;

use refrain::{Counters, Device};
use refrain_models::{CacheTypes, Checkpoint, Decoder, ModelConfig, Progress};

use crate::Error;
use crate::fit::{mtp_bytes, weight_bytes};

/// Options for loading a model.
pub struct LoadOptions<'a> {
    /// Called after each piece that is uploaded.
    pub progress: &'a dyn Fn(Progress),
    /// How keys and values are stored. By default f16, and f32 on the CPU executor, which rounds nothing.
    pub cache: Option<CacheTypes>,
    /// Whether the multi-token prediction head is loaded, too, if the checkpoint has one. It drafts for
    /// [`Speculation::Mtp`](crate::Speculation::Mtp).
    pub mtp_head: bool,
}

impl Default for LoadOptions<'_> {
    fn default() -> Self {
        LoadOptions {
            progress: &|_| {},
            cache: None,
            mtp_head: false,
        }
    }
}

/// A decoder with its weights on a device. Clones are cheap and share the weights.
#[derive(Clone)]
pub struct Model(Arc<LoadedModel>);

struct LoadedModel {
    decoder: Box<dyn Decoder>,
    config: ModelConfig,
    device: Device,
    weight_bytes: u64,
    identity: u128,
    cache: CacheTypes,
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Model");
        shown.field("family", &self.0.config.family);
        shown.field("weight_bytes", &self.0.weight_bytes);
        shown.finish_non_exhaustive()
    }
}

impl Model {
    /// Loads a checkpoint's weights onto `device`.
    ///
    /// # Errors
    /// If the checkpoint is damaged, its keys or values cannot be stored as `options` say, or the device has too little
    /// memory.
    pub fn load(checkpoint: &Checkpoint, device: &Device, options: &LoadOptions<'_>) -> Result<Model, Error> {
        let cache = options.cache.unwrap_or_else(|| CacheTypes::of_device(device));
        if let Some((cache_type, dim)) = cache.unsupported(checkpoint.config()) {
            return Err(Error::CacheType { cache_type, dim });
        }
        let mut config = checkpoint.config().clone();
        if !options.mtp_head {
            config.mtp_layers = 0;
        }
        let decoder = refrain_models::load(checkpoint, &config, device, options.progress)?;
        let head = if config.mtp_layers > 0 {
            mtp_bytes(checkpoint)
        } else {
            0
        };
        Ok(Model(Arc::new(LoadedModel {
            decoder,
            device: device.clone(),
            weight_bytes: weight_bytes(checkpoint) + head,
            config,
            identity: identity(checkpoint)?,
            cache,
        })))
    }

    /// Returns the model's implementation.
    pub(crate) fn decoder(&self) -> &dyn Decoder {
        &*self.0.decoder
    }

    /// Returns the model's hyperparameters. Multi-token prediction layers are those that were loaded.
    pub fn config(&self) -> &ModelConfig {
        &self.0.config
    }

    /// Checks that all tokens are in the vocabulary.
    pub(crate) fn check_ids(&self, tokens: &[u32]) -> Result<(), Error> {
        check_ids(tokens, self.config().vocab_size)
    }

    /// Returns the device that holds the weights.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// Returns the bytes of the weights.
    pub fn weight_bytes(&self) -> u64 {
        self.0.weight_bytes
    }

    /// Returns how keys and values are stored.
    pub fn cache_types(&self) -> CacheTypes {
        self.0.cache
    }

    /// Returns a fingerprint of the model: a hash of its configuration, and of the names, shapes, encodings and
    /// samples of its tensors, including scales and biases.
    pub fn identity(&self) -> u128 {
        self.0.identity
    }

    /// Returns the device's counters; zeros on the CPU executor.
    pub fn counters(&self) -> Counters {
        self.device().as_vulkan().map(|d| d.counters()).unwrap_or_default()
    }
}

/// Checks that all tokens are in a vocabulary of this size.
pub(crate) fn check_ids(tokens: &[u32], vocabulary: usize) -> Result<(), Error> {
    match tokens.iter().find(|&&id| id as usize >= vocabulary) {
        Some(&id) => Err(Error::TokenRange { id, vocabulary }),
        None => Ok(()),
    }
}

/// See [`Model::identity`].
fn identity(checkpoint: &Checkpoint) -> Result<u128, Error> {
    let mut tensors: Vec<Vec<u8>> = vec![format!("{:?}", checkpoint.config()).into_bytes()];
    for info in checkpoint.tensors() {
        let mut bytes = format!("{} {:?} {:?}", info.name, info.shape, info.encoding).into_bytes();
        if let Some(tensor) = checkpoint.tensor(&info.name) {
            sample(&mut bytes, tensor.data_bytes(), |at, out| tensor.write_data(at, out))?;
            sample(&mut bytes, tensor.quants_bytes(), |at, out| {
                tensor.write_quants(at, out)
            })?;
            sample(&mut bytes, tensor.scales_bytes(), |at, out| {
                tensor.write_scales(at, out)
            })?;
            sample(&mut bytes, tensor.biases_bytes(), |at, out| {
                tensor.write_biases(at, out)
            })?;
        }
        tensors.push(bytes);
    }
    tensors.sort();
    Ok(crate::snapshot::identity(tensors.into_iter()))
}

/// Adds a plane of `bytes` bytes to `sample`: all of a small one, evenly spaced pieces of a large one, which any
/// further training changes.
fn sample(
    sample: &mut Vec<u8>,
    bytes: u64,
    read: impl Fn(u64, &mut [u8]) -> Result<(), refrain_formats::Error>,
) -> Result<(), Error> {
    const PIECES: u64 = 8;
    const PIECE: u64 = 2048;
    let (pieces, piece) = match bytes {
        0 => return Ok(()),
        small if small <= PIECES * PIECE => (1, small),
        _ => (PIECES, PIECE),
    };
    let distance = (bytes - piece) / (pieces - 1).max(1) / 256 * 256;
    for number in 0..pieces {
        let at = if number + 1 == pieces {
            bytes - piece
        } else {
            number * distance
        };
        let old = sample.len();
        sample.resize(old + piece as usize, 0);
        read(at, &mut sample[old..])?;
    }
    Ok(())
}
