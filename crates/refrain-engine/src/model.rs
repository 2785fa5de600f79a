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
    identity: u128,
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
            identity: identity(checkpoint)?,
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

    /// A number that tells models apart: of their configuration, and of the names, shapes, formats and
    /// first bytes of their tensors.
    pub fn identity(&self) -> u128 {
        self.identity
    }

    /// The device's counters; zeros on the CPU executor.
    pub fn counters(&self) -> Counters {
        self.device.as_vulkan().map(|d| d.counters()).unwrap_or_default()
    }
}

/// See [`Model::identity`].
fn identity(checkpoint: &Checkpoint) -> Result<u128, Error> {
    /// Bytes of each tensor that are looked at.
    const SAMPLE: usize = 256;
    let mut tensors: Vec<Vec<u8>> = vec![format!("{:?}", checkpoint.config()).into_bytes()];
    for info in checkpoint.tensors() {
        let mut bytes = format!("{} {:?} {:?}", info.name, info.shape, info.encoding).into_bytes();
        if let Some(tensor) = checkpoint.tensor(&info.name) {
            let mut sample = vec![0; SAMPLE];
            match tensor.is_quantised() {
                true => {
                    sample.truncate(tensor.quants_bytes().min(SAMPLE as u64) as usize);
                    tensor.write_quants(0, &mut sample)?;
                }
                false => {
                    sample.truncate(tensor.data_bytes().min(SAMPLE as u64) as usize);
                    tensor.write_data(0, &mut sample)?;
                }
            }
            bytes.extend(sample);
        }
        tensors.push(bytes);
    }
    tensors.sort();
    Ok(crate::snapshot::identity(tensors.into_iter()))
}
