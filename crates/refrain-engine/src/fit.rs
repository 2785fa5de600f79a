//! Whether a model fits a device before it is loaded: memory, context length, and expected speed.
//!
//!
//! ```no_run
//! use refrain_engine::{CacheTypes, Device};
//! use refrain_engine::fit::{Capacity, Fit, Requirements};
//! use refrain_models::Checkpoint;
//!
//! let checkpoint = Checkpoint::open("Qwen3-0.6B".as_ref())?;
//! let device = Device::cpu();
//! let requirements = Requirements::of(&checkpoint, CacheTypes::of_device(&device));
//! let fit = Fit { capacity: Capacity::measure(&device)?, requirements };
//! println!("{:?} tokens of context, about {:.0} tokens/s", fit.context(), fit.expected(0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use refrain::speed;
use refrain::{Device, Error};
use refrain_formats::TensorInfo;
use refrain_models::{CacheTypes, Checkpoint};

/// Dependent steps per layer in a decoder's typical schedule: norm, projections to attention, rotation and cache,
/// attention, output projection, norm and feed-forward in, out.
const STEPS_PER_LAYER: usize = 7;

/// What a model requires of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirements {
    /// Bytes of all weights but those of a multi-token prediction head ([`mtp_bytes`]).
    pub weights: u64,
    /// Bytes of weights that each decoded token reads. The embedding counts only if it is also the output head, experts
    /// only as far as the token is routed to them, and a multi-token prediction head not at all.
    pub weights_per_token: u64,
    /// Bytes of keys and values per position.
    pub kv_per_position: u64,
    /// Number of layers.
    pub layers: usize,
    /// The model's maximal context, in tokens.
    pub max_context: usize,
}

impl Requirements {
    /// Computes the requirements of a checkpoint without reading its weights, with keys and values of type `cache`.
    pub fn of(checkpoint: &Checkpoint, cache: CacheTypes) -> Self {
        let config = checkpoint.config();
        let read = |tensor| bytes_read_per_token(checkpoint, tensor);
        Self {
            weights: weight_bytes(checkpoint),
            weights_per_token: checkpoint.tensors().map(read).sum(),
            kv_per_position: cache.bytes_per_token(config),
            layers: config.layers,
            max_context: config.max_position,
        }
    }
}

/// Returns the bytes of a model's tensors in memory, without those of a multi-token prediction head.
pub fn weight_bytes(checkpoint: &Checkpoint) -> u64 {
    bytes(checkpoint, false)
}

/// Returns the bytes of the multi-token prediction head in memory.
pub fn mtp_bytes(checkpoint: &Checkpoint) -> u64 {
    bytes(checkpoint, true)
}

fn bytes(checkpoint: &Checkpoint, of_head: bool) -> u64 {
    let own = |tensor: &&TensorInfo| checkpoint.config().is_mtp(&tensor.name) == of_head;
    checkpoint.tensors().filter(own).map(TensorInfo::memory_bytes).sum()
}

fn bytes_read_per_token(checkpoint: &Checkpoint, tensor: &TensorInfo) -> u64 {
    let config = checkpoint.config();
    let moe = config.feed_forward.moe.as_ref();
    if config.is_mtp(&tensor.name) {
        return 0;
    }
    match moe.filter(|_| tensor.name.contains(".mlp.experts.")) {
        Some(moe) => tensor.memory_bytes() * moe.router.experts_per_token as u64 / moe.experts as u64,
        None if tensor.name == "model.embed_tokens.weight" && !config.tie_word_embeddings => 0,
        None => tensor.memory_bytes(),
    }
}

/// What a device provides.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Capacity {
    /// Free bytes for models; `None` if unknown.
    pub free: Option<u64>,
    /// Measured read bandwidth of weights, in bytes per second.
    pub bandwidth: f64,
    /// Measured seconds of a nearly empty step that waits for another; 0 on the CPU.
    pub step_seconds: f64,
}

impl Capacity {
    /// Measures the device. Takes up to half a second.
    ///
    /// # Errors
    /// If the device fails or has no memory to measure with.
    pub fn measure(device: &Device) -> Result<Self, Error> {
        Self::of(device, speed::read_bandwidth(device)?)
    }

    /// Uses a bandwidth in bytes per second that was measured before.
    ///
    /// # Errors
    /// If the device fails.
    pub fn of(device: &Device, bandwidth: f64) -> Result<Self, Error> {
        Ok(Self {
            free: device.free_memory(),
            bandwidth,
            step_seconds: speed::step_seconds(device)?,
        })
    }
}

/// The bottleneck of decoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Reading weights.
    Weights,
    /// Reading keys and values.
    Cache,
    /// Steps that wait for each other.
    Steps,
}

/// A model on a device.
#[derive(Debug, Clone, PartialEq)]
pub struct Fit {
    /// What the model requires.
    pub requirements: Requirements,
    /// What the device provides.
    pub capacity: Capacity,
}

impl Fit {
    /// Returns the tokens of context that fit, up to the model's limit; `None` if the free memory is unknown.
    pub fn context(&self) -> Option<usize> {
        let left = self.capacity.free?.checked_sub(self.requirements.weights);
        Some(left.map_or(0, |left| {
            ((left / self.requirements.kv_per_position.max(1)) as usize).min(self.requirements.max_context)
        }))
    }

    /// Returns the bytes of the model with a context of `context` tokens.
    pub fn bytes(&self, context: usize) -> u64 {
        self.requirements.weights + context as u64 * self.requirements.kv_per_position
    }

    /// Returns the bytes that a token reads after `depth` others.
    pub fn read_per_token(&self, depth: usize) -> u64 {
        self.requirements.weights_per_token + depth as u64 * self.requirements.kv_per_position
    }

    /// Returns the tokens per second at a depth if only reads took time.
    pub fn bound(&self, depth: usize) -> f64 {
        self.capacity.bandwidth / self.read_per_token(depth) as f64
    }

    /// Returns the approximate number of dependent steps per token.
    pub fn steps(&self) -> usize {
        STEPS_PER_LAYER * self.requirements.layers
    }

    /// Returns the seconds per token that dependent steps wait.
    fn waiting(&self) -> f64 {
        self.steps() as f64 * self.capacity.step_seconds
    }

    /// Returns the expected tokens per second at a depth: reads, and waits between steps.
    pub fn expected(&self, depth: usize) -> f64 {
        1.0 / (1.0 / self.bound(depth) + self.waiting())
    }

    /// Returns what takes the largest part of a token's time.
    pub fn limit(&self, depth: usize) -> Limit {
        let seconds = |bytes: u64| bytes as f64 / self.capacity.bandwidth;
        let weights = seconds(self.requirements.weights_per_token);
        let cache = seconds(depth as u64 * self.requirements.kv_per_position);
        if self.waiting() >= weights.max(cache) {
            Limit::Steps
        } else if cache > weights {
            Limit::Cache
        } else {
            Limit::Weights
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn fit(free: Option<u64>, step_seconds: f64) -> Fit {
        Fit {
            requirements: Requirements {
                weights: 5 * GIB,
                weights_per_token: 4 * GIB,
                kv_per_position: 1 << 17,
                layers: 32,
                max_context: 40_960,
            },
            capacity: Capacity {
                free,
                bandwidth: (4u64 << 40) as f64,
                step_seconds,
            },
        }
    }

    #[test]
    fn context_fits_into_the_memory_left_by_the_weights() {
        assert_eq!(fit(Some(8 * GIB), 0.0).context(), Some(24_576));
        assert_eq!(fit(Some(1 << 40), 0.0).context(), Some(40_960));
        assert_eq!(fit(None, 0.0).context(), None);
        assert_eq!(fit(Some(4 * GIB), 0.0).context(), Some(0));
        assert_eq!(fit(None, 0.0).bytes(1024), 5 * GIB + (128 << 20));
    }

    #[test]
    fn speed_combines_bandwidth_and_waits() {
        let steps = fit(None, 1e-6);
        assert_eq!(fit(None, 0.0).expected(0), 1024.0);
        assert_eq!((steps.bound(0), steps.steps()), (1024.0, 224));
        assert!((1.0 / steps.expected(0) - 1.0 / 1024.0 - 224e-6).abs() < 1e-9);
        // 32,768 positions of 128 KiB are 4 GiB.
        assert_eq!(steps.bound(32_768), 512.0);
    }

    #[test]
    fn limit_is_the_largest_part_of_the_time() {
        assert_eq!(fit(None, 1e-6).limit(0), Limit::Weights);
        assert_eq!(fit(None, 1e-6).limit(40_000), Limit::Cache);
        assert_eq!(fit(None, 1e-4).limit(0), Limit::Steps);
    }

    fn requirements(checkpoint: &str) -> Requirements {
        Requirements::of(
            &Checkpoint::synthetic(checkpoint).unwrap(),
            CacheTypes::of_device(&Device::cpu()),
        )
    }

    #[test]
    fn tokens_read_tied_embeddings_only() {
        let tied = requirements("qwen3-0.6b:q6_k");
        assert_eq!(tied.weights, tied.weights_per_token);
        let separate = requirements("qwen3-8b:q4_0");
        assert!(separate.weights_per_token < separate.weights);
    }

    #[test]
    fn measures_the_cpu() {
        let capacity = Capacity::measure(&Device::cpu()).unwrap();
        assert!(capacity.bandwidth > 1e6 && capacity.step_seconds == 0.0, "{capacity:?}");
    }
}
