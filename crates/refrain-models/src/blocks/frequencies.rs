//! Frequencies of the rotary embedding.

use crate::config::RopeScaling;

/// Returns the frequency of each pair in radians per position: `theta`^(−2i/dims), scaled for sequences of at most
/// `context` tokens. Computed in f64.
pub(crate) fn frequencies(dims: usize, theta: f64, scaling: &RopeScaling, context: usize) -> Vec<f32> {
    let theta = match scaling {
        RopeScaling::Dynamic {
            factor,
            original_max_position,
        } => {
            let stretch = (context as f64 / *original_max_position as f64).max(1.0);
            theta * (factor * stretch - (factor - 1.0)).powf(dims as f64 / (dims as f64 - 2.0))
        }
        _ => theta,
    };
    let frequency = |pair: usize| {
        let plain = theta.powf(-2.0 * pair as f64 / dims as f64);
        match scaling {
            RopeScaling::None | RopeScaling::Dynamic { .. } => plain,
            RopeScaling::Linear { factor } => plain / factor,
            RopeScaling::Factors(factors) => plain / f64::from(factors[pair]),
            RopeScaling::LongRope {
                short,
                long,
                original_max_position,
                ..
            } => {
                if context > *original_max_position {
                    plain / f64::from(long[pair])
                } else {
                    plain / f64::from(short[pair])
                }
            }
            RopeScaling::Llama3 {
                factor,
                low_freq_factor,
                high_freq_factor,
                original_max_position,
            } => {
                // Keep wavelengths that fit often into the original context; stretch those that do not.
                let turns = original_max_position * plain / std::f64::consts::TAU;
                let kept = ((turns - low_freq_factor) / (high_freq_factor - low_freq_factor)).clamp(0.0, 1.0);
                plain * (kept + (1.0 - kept) / factor)
            }
            RopeScaling::Yarn { factor, .. } => {
                let kept = yarn_kept_fraction(dims, theta, scaling, pair);
                plain * (kept + (1.0 - kept) / factor)
            }
        }
    };
    (0..dims / 2).map(|pair| frequency(pair) as f32).collect()
}

/// Fraction of a pair's frequency that YaRN keeps: falls from 1 to 0 between the pairs with `beta_fast` and
/// `beta_slow` rotations in the original context.
fn yarn_kept_fraction(dims: usize, theta: f64, scaling: &RopeScaling, pair: usize) -> f64 {
    let RopeScaling::Yarn {
        original_max_position,
        beta_fast,
        beta_slow,
        truncate,
        ..
    } = scaling
    else {
        return 1.0;
    };
    let dims = dims as f64;
    let pair_with =
        |turns: f64| dims * (original_max_position / (turns * std::f64::consts::TAU)).ln() / (2.0 * theta.ln());
    let (mut low, mut high) = (pair_with(*beta_fast), pair_with(*beta_slow));
    if *truncate {
        (low, high) = (low.floor(), high.ceil());
    }
    (low, high) = (low.max(0.0), high.min(dims - 1.0));
    if low == high {
        high += 0.001;
    }
    1.0 - ((pair as f64 - low) / (high - low)).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn llama3_scaling_keeps_short_and_stretches_long_wavelengths() {
        let scaling = RopeScaling::Llama3 {
            factor: 8.0,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_max_position: 8192.0,
        };
        // With 16 pairs and base 500000, pair 8 rotates 8192 · 500000^(−1/2) / 2π = 1.844 times.
        let (plain, scaled) = (
            frequencies(32, 5e5, &RopeScaling::None, 1),
            frequencies(32, 5e5, &scaling, 1),
        );
        assert_eq!(scaled[..8], plain[..8]);
        assert!((plain[8] / scaled[8] - 2.6945).abs() < 1e-3);
        assert!((plain[15] / scaled[15] - 8.0).abs() < 1e-5);
    }

    #[test]
    fn context_length_selects_longrope_factors_and_dynamic_theta() {
        let longrope = RopeScaling::LongRope {
            short: vec![1.0, 2.0],
            long: vec![4.0, 8.0],
            original_max_position: 100,
            attention_factor: 1.0,
        };
        assert_eq!(frequencies(4, 100.0, &longrope, 100), [1.0, 0.05]);
        assert_eq!(frequencies(4, 100.0, &longrope, 101), [0.25, 0.0125]);
        let dynamic = RopeScaling::Dynamic {
            factor: 3.0,
            original_max_position: 100,
        };
        assert_eq!(frequencies(4, 100.0, &dynamic, 7), [1.0, 0.1]);
        // θ · (3 · 2 − 2)^(4/2) = 1600.
        assert_eq!(frequencies(4, 100.0, &dynamic, 200), [1.0, 0.025]);
    }
}
