use crate::config::{LayerRope, ModelConfig, RopeScaling};
use refrain::{Array, Device};
use refrain_lm::{RopeParams, rope};

use super::frequencies::frequencies;

/// Rotary position embedding with the model's frequencies.
#[derive(Clone)]
pub struct Rope {
    frequencies: Array,
    params: RopeParams,
}

impl Rope {
    fn new(device: &Device, dims: usize, theta: f64, scaling: &RopeScaling, context: usize) -> Rope {
        let frequencies = frequencies(dims, theta, scaling, context);
        Rope {
            frequencies: Array::from_slice(device, &frequencies, &[frequencies.len()]),
            params: RopeParams {
                dims,
                interleaved: false,
                scale: scaling.attention_factor() as f32,
            },
        }
    }

    /// x `[T, H, D]` rotated to `positions` (i32 `[T]`).
    pub fn forward(&self, x: &Array, positions: &Array) -> Array {
        rope(x, positions, &self.frequencies, self.params)
    }
}

/// The rotary embeddings of a model's layers.
pub struct Ropes {
    global: Rope,
    local: Rope,
    device: Device,
    theta: f64,
    scaling: RopeScaling,
}

impl Ropes {
    /// What `config` asks for; local layers keep their frequencies however long the context is.
    pub fn new(config: &ModelConfig, device: &Device) -> Ropes {
        let rope = |theta, scaling| Rope::new(device, config.positions.dims, theta, scaling, 1);
        Ropes {
            global: rope(config.positions.theta, &config.positions.scaling),
            local: rope(config.positions.local_theta, &RopeScaling::None),
            device: device.clone(),
            theta: config.positions.theta,
            scaling: config.positions.scaling.clone(),
        }
    }

    /// Those of sequences of at most `context` tokens.
    pub fn within(&self, context: usize) -> Ropes {
        let global = match self.scaling.depends_on_context() {
            true => Rope::new(
                &self.device,
                self.global.params.dims,
                self.theta,
                &self.scaling,
                context,
            ),
            false => self.global.clone(),
        };
        Ropes {
            global,
            local: self.local.clone(),
            device: self.device.clone(),
            theta: self.theta,
            scaling: self.scaling.clone(),
        }
    }

    /// That of a layer; none for layers that see no positions.
    pub fn of(&self, layer: LayerRope) -> Option<&Rope> {
        match layer {
            LayerRope::Global => Some(&self.global),
            LayerRope::Local => Some(&self.local),
            LayerRope::None => None,
        }
    }
}
