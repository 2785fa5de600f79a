use crate::config::{LayerRope, ModelConfig, PositionConfig, RopeScaling};
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
    positions: PositionConfig,
}

impl Ropes {
    /// What `config` asks for; local layers keep their frequencies however long the context is.
    pub fn new(config: &ModelConfig, device: &Device) -> Ropes {
        let positions = &config.positions;
        Ropes {
            global: Rope::new(device, positions, positions.theta, &positions.scaling, 1),
            local: Rope::new(device, positions, positions.local_theta, &RopeScaling::None, 1),
            device: device.clone(),
            positions: positions.clone(),
        }
    }

    /// Those of sequences of at most `context` tokens.
    pub fn within(&self, context: usize) -> Ropes {
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

    /// That of a layer; none for layers that see no positions.
    pub fn of(&self, layer: LayerRope) -> Option<&Rope> {
        match layer {
            LayerRope::Global => Some(&self.global),
            LayerRope::Local => Some(&self.local),
            LayerRope::None => None,
        }
    }
}
