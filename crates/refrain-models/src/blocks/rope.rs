use refrain::{Array, Device, RopeParams, fast};
use refrain_formats::{ModelConfig, RopeScaling};

/// Rotary position embedding with the model's frequencies.
pub struct Rope {
    frequencies: Array,
    params: RopeParams,
}

impl Rope {
    /// The frequencies that `config` asks for, computed in f64.
    pub fn new(config: &ModelConfig, device: &Device) -> Rope {
        let frequencies: Vec<f32> = frequencies(config).into_iter().map(|f| f as f32).collect();
        Rope {
            frequencies: Array::from_slice(device, &frequencies, &[frequencies.len()]),
            params: RopeParams {
                dims: config.rope_dims,
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

/// Radians per position of each pair: θ^(−2i/d), then scaled for long contexts.
fn frequencies(config: &ModelConfig) -> Vec<f64> {
    let dims = config.rope_dims;
    let base = |i: usize| config.rope_theta.powf(-2.0 * i as f64 / dims as f64);
    (0..dims / 2)
        .map(|i| scaled(base(i), i, &config.rope_scaling))
        .collect()
}

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
