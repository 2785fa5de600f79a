use refrain::{Counters, Device};
use refrain_formats::{Checkpoint, ModelConfig};
use refrain_models::{Decoder, Progress};

use crate::Error;

/// How to load a model.
pub struct LoadOptions<'a> {
    /// Told after every piece that has been uploaded.
    pub progress: &'a dyn Fn(Progress),
}

impl Default for LoadOptions<'_> {
    fn default() -> Self {
        LoadOptions { progress: &|_| {} }
    }
}

/// A decoder with its weights on a device.
pub struct Model {
    pub(crate) decoder: Box<dyn Decoder>,
    config: ModelConfig,
    device: Device,
    weight_bytes: u64,
}

impl Model {
    /// Brings a checkpoint's weights onto `device`.
    ///
    /// # Errors
    /// A damaged checkpoint, or a device without enough memory.
    pub fn load(checkpoint: &Checkpoint, device: &Device, options: &LoadOptions<'_>) -> Result<Model, Error> {
        let decoder = refrain_models::load(checkpoint, device, options.progress)?;
        Ok(Model {
            decoder,
            config: checkpoint.config().clone(),
            device: device.clone(),
            weight_bytes: checkpoint.tensors().map(|t| t.bytes).sum(),
        })
    }

    /// The model's hyperparameters.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// The device that holds the weights.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Bytes of the weights.
    pub fn weight_bytes(&self) -> u64 {
        self.weight_bytes
    }

    /// The device's counters; zeros on the CPU executor.
    pub fn counters(&self) -> Counters {
        self.device.as_vulkan().map(|d| d.counters()).unwrap_or_default()
    }
}
