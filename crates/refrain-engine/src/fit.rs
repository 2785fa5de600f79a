//! How a model fits a device, before it is loaded: what it needs, whether there is room, and the speed to
//! expect.
//!
//! ```no_run
//! use refrain_engine::Device;
//! use refrain_engine::fit::{Fit, Needs, Offer};
//! use refrain_models::Checkpoint;
//!
//! let checkpoint = Checkpoint::open("Qwen3-0.6B".as_ref())?;
//! let device = Device::cpu();
//! let needs = Needs::of(&checkpoint, &device);
//! let fit = Fit { offer: Offer::measure(&device)?, needs };
//! println!("{:?} tokens of context, about {:.0} tokens/s", fit.context(), fit.expected(0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use refrain::speed;
use refrain::{Device, Error};
use refrain_formats::TensorInfo;
use refrain_models::Checkpoint;

use crate::Session;

/// Steps of a layer that wait for each other, in the usual schedule of a decoder: norm, projections
/// to attention, rotation and cache, attention, output projection, norm and feed-forward in, out.
const STEPS_PER_LAYER: usize = 7;

/// What a model needs of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Needs {
    /// Bytes of all weights.
    pub weights: u64,
    /// Bytes of weights that each decoded token reads: all but the embedding, of which it needs one row,
    /// unless that is the output head too, and of experts those that the token is routed to.
    pub weights_per_token: u64,
    /// Bytes of keys and values of one position.
    pub kv_per_position: u64,
    /// Layers of the model.
    pub layers: usize,
    /// Tokens that the model was made for.
    pub max_context: usize,
}

impl Needs {
    /// Of a checkpoint, whose weights are not read, on a device, which decides how keys and values are kept.
    pub fn of(checkpoint: &Checkpoint, device: &Device) -> Self {
        let config = checkpoint.config();
        let read = |tensor| bytes_read_per_token(checkpoint, tensor);
        Self {
            weights: weight_bytes(checkpoint),
            weights_per_token: checkpoint.tensors().map(read).sum(),
            kv_per_position: Session::kv_bytes_per_token(config, device),
            layers: config.layers,
            max_context: config.max_position,
        }
    }
}

/// Bytes of all tensors as they lie in memory.
pub fn weight_bytes(checkpoint: &Checkpoint) -> u64 {
    checkpoint.tensors().map(|tensor| tensor.bytes).sum()
}

fn bytes_read_per_token(checkpoint: &Checkpoint, tensor: &TensorInfo) -> u64 {
    let config = checkpoint.config();
    let mixture = config.feed_forward.mixture.as_ref();
    match mixture.filter(|_| tensor.name.contains(".mlp.experts.")) {
        Some(mixture) => tensor.bytes * mixture.router.used as u64 / mixture.experts as u64,
        None if tensor.name == "model.embed_tokens.weight" && !config.tie_word_embeddings => 0,
        None => tensor.bytes,
    }
}

/// What a device offers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Offer {
    /// Bytes that models may take up; `None` where nobody tells.
    pub free: Option<u64>,
    /// Bytes of weights read per second, measured.
    pub bandwidth: f64,
    /// Seconds of a step that does next to nothing but waits for another, measured; 0 on the CPU.
    pub step_seconds: f64,
}

impl Offer {
    /// Measures it. Takes up to half a second.
    ///
    /// # Errors
    /// If the device fails or has no memory to measure with.
    pub fn measure(device: &Device) -> Result<Self, Error> {
        Self::of(device, speed::read_bandwidth(device)?)
    }

    /// Of a device that was seen to read so many bytes per second.
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

/// What bounds the speed of decoding.
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
    /// What the model needs.
    pub needs: Needs,
    /// What the device offers.
    pub offer: Offer,
}

impl Fit {
    /// Tokens of context for which there is room, up to the model's limit; `None` where nobody tells.
    pub fn context(&self) -> Option<usize> {
        let left = self.offer.free?.checked_sub(self.needs.weights);
        Some(left.map_or(0, |left| {
            ((left / self.needs.kv_per_position.max(1)) as usize).min(self.needs.max_context)
        }))
    }

    /// Bytes that a model with a context of so many tokens takes up.
    pub fn bytes(&self, context: usize) -> u64 {
        self.needs.weights + context as u64 * self.needs.kv_per_position
    }

    /// Bytes that a token reads when so many stand before it.
    pub fn read_per_token(&self, depth: usize) -> u64 {
        self.needs.weights_per_token + depth as u64 * self.needs.kv_per_position
    }

    /// Tokens per second at a depth if nothing but reading took time.
    pub fn bound(&self, depth: usize) -> f64 {
        self.offer.bandwidth / self.read_per_token(depth) as f64
    }

    /// About how many steps of a token wait for each other.
    pub fn steps(&self) -> usize {
        STEPS_PER_LAYER * self.needs.layers
    }

    /// Seconds that a token's steps wait for each other.
    fn waiting(&self) -> f64 {
        self.steps() as f64 * self.offer.step_seconds
    }

    /// Tokens per second to expect at a depth: reading, and the waits between steps.
    pub fn expected(&self, depth: usize) -> f64 {
        1.0 / (1.0 / self.bound(depth) + self.waiting())
    }

    /// What takes the largest part of a token's time.
    pub fn limit(&self, depth: usize) -> Limit {
        let seconds = |bytes: u64| bytes as f64 / self.offer.bandwidth;
        let weights = seconds(self.needs.weights_per_token);
        let cache = seconds(depth as u64 * self.needs.kv_per_position);
        match () {
            () if self.waiting() >= weights.max(cache) => Limit::Steps,
            () if cache > weights => Limit::Cache,
            () => Limit::Weights,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn fit(free: Option<u64>, step_seconds: f64) -> Fit {
        Fit {
            needs: Needs {
                weights: 5 * GIB,
                weights_per_token: 4 * GIB,
                kv_per_position: 1 << 17,
                layers: 32,
                max_context: 40_960,
            },
            offer: Offer {
                free,
                bandwidth: (4u64 << 40) as f64,
                step_seconds,
            },
        }
    }

    #[test]
    fn room_is_what_the_weights_leave() {
        assert_eq!(fit(Some(8 * GIB), 0.0).context(), Some(24_576));
        assert_eq!(fit(Some(1 << 40), 0.0).context(), Some(40_960));
        assert_eq!(fit(None, 0.0).context(), None);
        assert_eq!(fit(Some(4 * GIB), 0.0).context(), Some(0));
        assert_eq!(fit(None, 0.0).bytes(1024), 5 * GIB + (128 << 20));
    }

    #[test]
    fn speed_is_bandwidth_by_bytes_less_the_waits() {
        let steps = fit(None, 1e-6);
        assert_eq!(fit(None, 0.0).expected(0), 1024.0);
        assert_eq!((steps.bound(0), steps.steps()), (1024.0, 224));
        assert!((1.0 / steps.expected(0) - 1.0 / 1024.0 - 224e-6).abs() < 1e-9);
        // 32,768 positions of 128 KiB are 4 GiB.
        assert_eq!(steps.bound(32_768), 512.0);
    }

    #[test]
    fn what_takes_most_of_the_time_limits() {
        assert_eq!(fit(None, 1e-6).limit(0), Limit::Weights);
        assert_eq!(fit(None, 1e-6).limit(40_000), Limit::Cache);
        assert_eq!(fit(None, 1e-4).limit(0), Limit::Steps);
    }

    fn needs(checkpoint: &str) -> Needs {
        Needs::of(&Checkpoint::synthetic(checkpoint).unwrap(), &Device::cpu())
    }

    #[test]
    fn a_token_reads_the_embedding_where_it_is_the_head_too() {
        let tied = needs("qwen3-0.6b:q6_k");
        assert_eq!(tied.weights, tied.weights_per_token);
        let separate = needs("qwen3-8b:q4_0");
        assert!(separate.weights_per_token < separate.weights);
    }

    #[test]
    fn the_cpu_is_measured() {
        let offer = Offer::measure(&Device::cpu()).unwrap();
        assert!(offer.bandwidth > 1e6 && offer.step_seconds == 0.0, "{offer:?}");
    }
}
