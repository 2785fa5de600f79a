use refrain::{Array, Device, RopeParams, fast};
use refrain_formats::{LayerRope, ModelConfig, RopeScaling};

/// Rotary position embedding with the model's frequencies.
pub struct Rope {
    frequencies: Array,
    params: RopeParams,
}

impl Rope {
    /// Frequencies θ^(−2i/dims) of base `theta`, scaled, computed in f64.
    fn new(device: &Device, dims: usize, theta: f64, scaling: &RopeScaling) -> Rope {
        let frequency = |i: usize| scaled(theta.powf(-2.0 * i as f64 / dims as f64), i, scaling) as f32;
        let frequencies: Vec<f32> = (0..dims / 2).map(frequency).collect();
        Rope {
            frequencies: Array::from_slice(device, &frequencies, &[frequencies.len()]),
            params: RopeParams {
                dims,
                interleaved: false,
                scale: 1.0,
            },
        }
    }

    /// x `[T, H, D]` rotated to `positions` (i32 `[T]`).
    pub fn forward(&self, x: &Array, positions: &Array) -> Array {
        fast::rope(x, positions, &self.frequencies, self.params)
    }
}

/// The rotary embeddings of a model's layers.
pub struct Ropes {
    global: Rope,
    local: Rope,
}

impl Ropes {
    /// What `config` asks for; local layers keep their frequencies however long the context is.
    pub fn new(config: &ModelConfig, device: &Device) -> Ropes {
        let rope = |theta, scaling| Rope::new(device, config.rope_dims, theta, scaling);
        Ropes {
            global: rope(config.rope_theta, &config.rope_scaling),
            local: rope(config.local_rope_theta, &RopeScaling::None),
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

/// Radians per position of pair `i`.
fn scaled(frequency: f64, i: usize, scaling: &RopeScaling) -> f64 {
    match scaling {
        RopeScaling::None => frequency,
        RopeScaling::Linear { factor } => frequency / factor,
        RopeScaling::Factors(factors) => frequency / f64::from(factors[i]),
        RopeScaling::Llama3 {
            factor,
            low_freq_factor,
            high_freq_factor,
            original_max_position,
        } => {
            // Waves that fit often into the trained context stay, those that do not are stretched.
            let turns = original_max_position * frequency / std::f64::consts::TAU;
            let kept = ((turns - low_freq_factor) / (high_freq_factor - low_freq_factor)).clamp(0.0, 1.0);
            frequency * (kept + (1.0 - kept) / factor)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn llama3_scaling_keeps_short_waves_and_stretches_long_ones() {
        let scaling = RopeScaling::Llama3 {
            factor: 8.0,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_max_position: 8192.0,
        };
        assert_eq!(scaled(1.0, 0, &scaling), 1.0);
        assert_eq!(scaled(1e-5, 0, &scaling), 1e-5 / 8.0);
        let middle = std::f64::consts::TAU * 2.5 / 8192.0;
        assert!((scaled(middle, 0, &scaling) / middle - 0.5625).abs() < 1e-12);
    }
}
