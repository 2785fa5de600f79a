//! How a model fits a device: what it needs, whether there is room, and the speed to expect.

use refrain::{Device, Error};
use refrain_engine::Session;
use refrain_formats::{Checkpoint, ModelConfig};

use crate::output::{human_bytes, human_rate};
use crate::{load, memory, probe};

/// Steps of a layer that wait for each other, in the usual schedule of a decoder: norm, projections
/// to attention, rotation and cache, attention, output projection, norm and feed-forward in, out.
const STEPS_PER_LAYER: usize = 7;

/// What a model needs of any device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Needs {
    /// Bytes of all weights.
    pub weights: u64,
    /// Bytes of weights that each decoded token reads.
    pub weights_per_token: u64,
    /// Bytes of keys and values of one position.
    pub kv_per_position: u64,
    pub layers: usize,
    /// Tokens that the model was made for.
    pub max_context: usize,
}

impl Needs {
    /// Of a checkpoint on a device, which decides how keys and values are kept.
    pub fn of(checkpoint: &Checkpoint, device: &Device) -> Self {
        let weights = (load::weight_bytes(checkpoint), load::bytes_read_per_token(checkpoint));
        Self::new(checkpoint.config(), weights, device)
    }

    /// Of a model that is known by its configuration and by its bytes: of all weights, and of those
    /// that a token reads.
    pub fn new(config: &ModelConfig, (weights, weights_per_token): (u64, u64), device: &Device) -> Self {
        Self {
            weights,
            weights_per_token,
            kv_per_position: Session::kv_bytes_per_token(config, device),
            layers: config.layers,
            max_context: config.max_position,
        }
    }
}

/// What a device offers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Offer {
    /// Bytes that models may take up; `None` where nobody tells.
    pub free: Option<u64>,
    /// Bytes read per second, measured.
    pub bandwidth: f64,
    /// Seconds of a step that does next to nothing but waits for another, measured; 0 on the CPU.
    pub step_seconds: f64,
}

impl Offer {
    /// Measures it.
    ///
    /// # Errors
    /// If the device fails or has no memory to measure with.
    pub fn measure(device: &Device) -> Result<Self, Error> {
        Self::new(device, probe::read_bandwidth(device)?)
    }

    /// Of a device that was seen to read so many bytes per second.
    ///
    /// # Errors
    /// If the device fails.
    pub fn new(device: &Device, bandwidth: f64) -> Result<Self, Error> {
        let step_seconds = device.as_vulkan().map(|vulkan| probe::step_seconds(vulkan));
        Ok(Self {
            free: memory::free(device),
            bandwidth,
            step_seconds: step_seconds.transpose()?.unwrap_or(0.0),
        })
    }
}

/// What bounds the speed of decoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    Weights,
    Cache,
    Steps,
}

/// A model on a device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Fit {
    pub needs: Needs,
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

    /// Seconds that a token's steps wait for each other.
    fn waiting(&self) -> f64 {
        (STEPS_PER_LAYER * self.needs.layers) as f64 * self.offer.step_seconds
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

    /// Whether there is room for the weights and some context, for people.
    pub fn room(&self) -> String {
        match (self.offer.free, self.context()) {
            (Some(free), Some(0)) => format!(
                "{} free: the weights ({}) do not fit",
                human_bytes(free),
                human_bytes(self.needs.weights)
            ),
            (Some(free), Some(context)) => {
                format!("{} free: room for the weights and {context} tokens", human_bytes(free))
            }
            _ => "unknown".to_owned(),
        }
    }

    /// The speed to expect at a depth, and what limits it, for people.
    pub fn speed(&self, depth: usize) -> String {
        let limit = match self.limit(depth) {
            Limit::Weights => format!("reading {} of weights", human_bytes(self.needs.weights_per_token)),
            Limit::Cache => {
                let bytes = depth as u64 * self.needs.kv_per_position;
                format!("reading {} of keys and values", human_bytes(bytes))
            }
            Limit::Steps => format!(
                "about {} steps that wait for each other, {:.1} µs each",
                STEPS_PER_LAYER * self.needs.layers,
                1e6 * self.offer.step_seconds
            ),
        };
        format!(
            "up to {} tokens/s at {depth} tokens; {limit} takes most of a token's time",
            human_rate(self.expected(depth))
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIT: Fit = Fit {
        needs: Needs {
            weights: 5 << 30,
            weights_per_token: 4 << 30,
            kv_per_position: 1 << 17,
            layers: 32,
            max_context: 40_960,
        },
        offer: Offer {
            free: Some(8 << 30),
            bandwidth: (4u64 << 40) as f64,
            step_seconds: 1e-6,
        },
    };

    fn with(free: Option<u64>, step_seconds: f64) -> Fit {
        let offer = Offer {
            free,
            step_seconds,
            ..FIT.offer
        };
        Fit { offer, ..FIT }
    }

    #[test]
    fn room_is_what_the_weights_leave() {
        assert_eq!(FIT.context(), Some(24_576));
        assert_eq!(with(Some(1 << 40), 0.0).context(), Some(40_960));
        assert_eq!(with(None, 0.0).context(), None);
        let small = with(Some(4 << 30), 0.0);
        assert_eq!(small.context(), Some(0));
        assert!(small.room().contains("do not fit"));
        assert_eq!(FIT.bytes(1024), (5 << 30) + (128 << 20));
    }

    #[test]
    fn speed_is_bandwidth_by_bytes_less_the_waits() {
        assert_eq!(with(None, 0.0).expected(0), 1024.0);
        assert_eq!(FIT.bound(0), 1024.0);
        assert!((1.0 / FIT.expected(0) - 1.0 / 1024.0 - 224e-6).abs() < 1e-9);
        // 32,768 positions of 128 KiB are 4 GiB.
        assert_eq!(FIT.bound(32_768), 512.0);
    }

    #[test]
    fn what_takes_most_of_the_time_limits() {
        assert_eq!(FIT.limit(0), Limit::Weights);
        assert_eq!(FIT.limit(40_000), Limit::Cache);
        assert_eq!(with(None, 1e-4).limit(0), Limit::Steps);
        assert!(with(None, 1e-4).speed(0).contains("224 steps"));
    }
}
