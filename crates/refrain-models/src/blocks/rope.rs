//! Rotary position embedding.

use crate::config::{LayerRope, ModelConfig, PositionConfig, RopeScaling};
use refrain::{Array, Device};
use refrain_lm::{RopeParams, rope};

use super::frequencies::frequencies;

/// A rotary position embedding with fixed frequencies.
#[derive(Clone)]
pub struct Rope {
    frequencies: Array,
    params: RopeParams,
}

impl Rope {
    fn new(device: &Device, positions: &PositionConfig, theta: f64, scaling: &RopeScaling, context: usize) -> Rope {
        let frequencies = frequencies(positions.dims, theta, scaling, context);
        Rope {
            frequencies: Array::from_slice(device, &frequencies, &[frequencies.len()]),
            params: RopeParams {
                dims: positions.dims,
                interleaved: positions.interleaved,
                scale: scaling.attention_factor() as f32,
            },
        }
    }

    /// Rotates x `[T, H, D]` to `positions` (i32 `[T]`).
    pub fn forward(&self, x: &Array, positions: &Array) -> Array {
        rope(x, positions, &self.frequencies, self.params)
    }
}

/// The rotary embeddings of a model: of global layers, and of local (sliding-window) layers.
pub struct Ropes {
    global: Rope,
    local: Rope,
    device: Device,
    positions: PositionConfig,
}

impl Ropes {
    /// Creates the embeddings of `config`. Local layers use the same frequencies for every context length.
    pub fn new(config: &ModelConfig, device: &Device) -> Ropes {
        let positions = &config.positions;
        Ropes {
            global: Rope::new(device, positions, positions.theta, &positions.scaling, 1),
            local: Rope::new(device, positions, positions.local_theta, &RopeScaling::None, 1),
            device: device.clone(),
            positions: positions.clone(),
        }
    }

    /// Returns the embeddings for sequences of at most `context` tokens.
    pub fn for_context(&self, context: usize) -> Ropes {
        let PositionConfig { theta, scaling, .. } = &self.positions;
        let global = if scaling.depends_on_context() {
            Rope::new(&self.device, &self.positions, *theta, scaling, context)
        } else {
            self.global.clone()
        };
        Ropes {
            global,
            local: self.local.clone(),
            device: self.device.clone(),
            positions: self.positions.clone(),
        }
    }

    /// Returns a layer's embedding; `None` for layers without positions (NoPE).
    pub fn for_layer(&self, layer: LayerRope) -> Option<&Rope> {
        match layer {
            LayerRope::Global => Some(&self.global),
            LayerRope::Local => Some(&self.local),
            LayerRope::None => None,
        }
    }
}
