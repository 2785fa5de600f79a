//! Sampled tokens follow the softmax distribution.

use refrain_kernels::sample::Settings;

use crate::common::{Random, variants};
use crate::support::{Batch, OnDevice};

/// Returns the upper tail of the chi-squared distribution by the normal approximation of Wilson and Hilferty (1931).
/// Its error is below 1e-4 from 30 degrees of freedom on.
fn tail(statistic: f64, degrees: f64) -> f64 {
    let spread = 2.0 / (9.0 * degrees);
    let normal = ((statistic / degrees).cbrt() - (1.0 - spread)) / spread.sqrt();
    0.5 * libm::erfc(normal / std::f64::consts::SQRT_2)
}

#[test]
fn hundred_thousand_samples_pass_the_chi_squared_test() {
    if !refrain_testing::drawn(8) {
        return;
    }
    const VOCABULARY: usize = 120;
    const SEQUENCES: usize = 5_000;
    const RUNS: usize = 20;
    let mut random = Random::new(11);
    let logits: Vec<f32> = (0..VOCABULARY).map(|_| 2.0 * random.unit()).collect();
    let weights: Vec<f64> = logits.iter().map(|&logit| f64::from(logit).exp()).collect();
    let total: f64 = weights.iter().sum();
    // Sequences share a seed; each has its own random numbers.
    let settings = |sequence| Settings {
        temperature: 1.0,
        seed: 20_260_101,
        sequence,
        window: 0,
        ..Settings::default()
    };
    let settings = (0..SEQUENCES as u32).map(settings).collect();
    let mut batch = Batch::new(&mut random, logits, VOCABULARY, settings, 1 + RUNS);
    batch.positions.fill(0);
    let device = OnDevice::new(&batch, &variants()[0]);
    let mut drawn = vec![0.0; VOCABULARY];
    for _ in 0..RUNS {
        device.step().into_iter().for_each(|token| drawn[token as usize] += 1.0);
    }
    let draws = (SEQUENCES * RUNS) as f64;
    let terms = weights.iter().zip(&drawn).map(|(weight, drawn)| {
        let expected = draws * weight / total;
        assert!(expected > 5.0);
        (drawn - expected) * (drawn - expected) / expected
    });
    let p = tail(terms.sum(), (VOCABULARY - 1) as f64);
    assert!(p > 1e-4, "the p-value of these counts is {p:e}");
}

#[test]
fn chi_squared_tail_matches_tables() {
    // Quantiles of the NIST handbook.
    for (statistic, degrees, p) in [(124.342, 100.0, 0.05), (149.449, 100.0, 0.001), (59.703, 30.0, 0.001)] {
        assert!((tail(statistic, degrees) / p - 1.0).abs() < 0.05);
    }
}
