//! The device samples the reference's tokens, except where random numbers are at a boundary within rounding.

use refrain_kernels::Traits;
use refrain_kernels::sample::{self, Settings, philox};

use crate::common::{Random, variants};
use crate::support::{Batch, OnDevice};

/// Tolerance around boundaries of the cumulative distribution.
const BOUNDARY_TOLERANCE: f32 = 1e-5;

/// Returns random logits of random spread, possibly with ties and infinities.
fn logits(random: &mut Random, vocabulary: usize) -> Vec<f32> {
    let scale = random.pick(&[0.0, 0.1, 2.0, 8.0, 40.0, 1e4]);
    let tied = random.below(3) == 0;
    let odd = random.pick(&[f32::NEG_INFINITY, f32::NEG_INFINITY, f32::INFINITY, -0.0, f32::MIN]);
    let (few, all) = (random.below(3) == 0, random.below(20) == 0);
    let mut logit = || match (random.below(10), few, all) {
        (0, true, _) | (_, _, true) => odd,
        _ if tied => (random.unit() * 3.0).round() * scale,
        _ => random.unit() * scale,
    };
    (0..vocabulary).map(|_| logit()).collect()
}

fn settings(random: &mut Random, vocabulary: usize) -> Settings {
    let fraction = |random: &mut Random| random.unit().abs();
    let some = |random: &mut Random| random.below(3) > 0;
    let window = random.pick(&[0, 1, 2, 5, 64, u32::MAX]);
    Settings {
        temperature: random.pick(&[0.0, 1e-30, 0.2, 0.7, 1.0, 1.0, 1.5, 10.0, 1e6]),
        top_k: match random.below(3) {
            0 => 0,
            1 => 1 + random.below(vocabulary + 2) as u32,
            _ => random.pick(&[1, 2, 3, 40, 300]),
        },
        top_p: match random.below(3) {
            0 => 1.0,
            1 => fraction(random).max(1e-9),
            _ => random.pick(&[1e-9, 0.1, 0.5, 0.9, 0.95, 0.999_999]),
        },
        min_p: match random.below(3) {
            0 => fraction(random),
            1 => random.pick(&[1e-6, 0.05, 1.0]),
            _ => 0.0,
        },
        repeat_penalty: if some(random) { 0.5 + fraction(random) } else { 1.0 },
        presence_penalty: if some(random) { random.unit() } else { 0.0 },
        frequency_penalty: if some(random) { random.unit() } else { 0.0 },
        window,
        prompt: if window == u32::MAX {
            random.pick(&[0, 2, 1000])
        } else {
            0
        },
        seed: random.bits(),
        sequence: random.bits() as u32,
        last_position: random.pick(&[3, 12, 1000, u32::MAX]),
        stop_ids: (0..random.below(17))
            .map(|_| random.below(2 * vocabulary) as u32)
            .collect(),
        biased: random.below(2) == 0,
    }
}

/// Whether the reference can sample `token` with the random number and thresholds moved within the tolerance.
fn is_within_tolerance(logits: &[f32], settings: &Settings, position: u64, token: u32) -> bool {
    let uniform = philox::uniform(settings.seed, settings.sequence.into(), position);
    let moved = |value: f32, by: f32| {
        if value >= 1.0 {
            value
        } else {
            (value + by).clamp(1e-12, 1.0)
        }
    };
    let mut thresholds = vec![];
    for p in [-BOUNDARY_TOLERANCE, 0.0, BOUNDARY_TOLERANCE] {
        for m in [1.0 - BOUNDARY_TOLERANCE, 1.0, 1.0 + BOUNDARY_TOLERANCE] {
            thresholds.push((moved(settings.top_p, p), (settings.min_p * m).min(1.0)));
        }
    }
    thresholds.into_iter().any(|(top_p, min_p)| {
        let settings = Settings {
            top_p,
            min_p,
            ..settings.clone()
        };
        let candidates = sample::candidates(logits, &settings);
        let ends = [-BOUNDARY_TOLERANCE, BOUNDARY_TOLERANCE]
            .map(|by| sample::draw(&candidates, (uniform + by).clamp(0.0, 1.0)));
        (ends[0]..=ends[1]).contains(&token) && candidates.iter().any(|c| c.id == token)
    })
}

/// Runs the batch on the device and with the reference; returns the number of sampled tokens, and the number of
/// differing ones.
fn compare(batch: &Batch, traits: &Traits, runs: usize, what: &str) -> (usize, usize) {
    let mut expected = batch.clone();
    let device = OnDevice::new(batch, traits);
    let (mut sampled, mut differing) = (0, 0);
    for _ in 0..runs {
        let before = expected.clone();
        let (found, expected_tokens) = (device.step(), expected.step());
        sampled += found.len();
        for s in 0..batch.sequences() {
            if found[s] == expected_tokens[s] {
                continue;
            }
            differing += 1;
            let settings = &before.settings[s];
            assert_ne!(
                settings.temperature, 0.0,
                "{what}, sequence {s}: greedy {found:?}, {expected_tokens:?}"
            );
            let mut logits = before.logits_of(s).to_vec();
            let counts = &before.counts[s * batch.vocabulary..][..batch.vocabulary];
            let bias = before.bias.get(s * batch.vocabulary..).unwrap_or(&[]);
            sample::adjust(&mut logits, counts, bias, settings);
            assert!(
                is_within_tolerance(&logits, settings, before.positions[s] as u64 + 1, found[s]),
                "{what}, sequence {s} at {}: found {}, expected {} by {settings:?}",
                before.positions[s],
                found[s],
                expected_tokens[s]
            );
        }
        if differing > 0 {
            break;
        }
        let after = device.read();
        assert_eq!(after.tokens, expected.tokens, "{what}: tokens");
        assert_eq!(after.positions, expected.positions, "{what}: positions");
        assert_eq!(after.history, expected.history, "{what}: history");
        assert_eq!(after.counts, expected.counts, "{what}: counts");
        assert_eq!(after.outbox, expected.outbox, "{what}: outbox");
    }
    (sampled, differing)
}

fn random_batch(random: &mut Random, vocabulary: usize, sequences: usize) -> Batch {
    let logits: Vec<f32> = (0..sequences).flat_map(|_| logits(random, vocabulary)).collect();
    let settings = (0..sequences).map(|_| settings(random, vocabulary)).collect();
    let context = 1 + random.below(20);
    let mut batch = Batch::new(random, logits, vocabulary, settings, context);
    if random.below(2) == 0 {
        let bias = |_| random.pick(&[0.0, 0.0, 1.5, -2.0, f32::NEG_INFINITY]);
        batch.bias = (0..sequences * vocabulary).map(bias).collect();
    }
    if random.below(4) == 0 {
        batch.positions[0] = -1;
    }
    batch
}

#[test]
fn random_batches_match_the_reference() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let (mut sampled, mut differing) = (0, 0);
    for traits in variants() {
        for seed in 0..30 {
            let mut random = Random::new(seed);
            let vocabulary = random.pick(&[1, 2, 3, 17, 100, 511, 513, 1000, 3001]);
            let sequences = 1 + random.below(12);
            let batch = random_batch(&mut random, vocabulary, sequences);
            let counted = compare(&batch, &traits, 4, &format!("seed {seed}, {vocabulary} tokens"));
            (sampled, differing) = (sampled + counted.0, differing + counted.1);
        }
    }
    assert!(
        sampled > 500 && differing * 200 < sampled,
        "{differing} of {sampled} differ"
    );
}

#[test]
fn large_vocabularies_match_the_reference() {
    if !refrain_testing::drawn(12) {
        return;
    }
    for (seed, vocabulary) in [(1, 32_003), (2, 151_936), (3, 262_144)] {
        let mut random = Random::new(seed);
        let batch = random_batch(&mut random, vocabulary, 8);
        for traits in variants() {
            compare(&batch, &traits, 1, &format!("{vocabulary} tokens"));
        }
    }
}

#[test]
fn every_candidate_is_drawn_for_a_suitable_seed() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let traits = &variants()[0];
    for seed in 0..5 {
        let mut random = Random::new(seed);
        let vocabulary = random.pick(&[30, 600, 1500]);
        let logits = (0..vocabulary).map(|_| random.unit() * 6.0).collect::<Vec<f32>>();
        let base = Settings {
            temperature: 1.0,
            top_k: random.pick(&[0, 5, 60]),
            top_p: random.pick(&[1.0, 0.3, 0.8]),
            min_p: random.pick(&[0.0, 0.02]),
            ..Settings::default()
        };
        let candidates = sample::candidates(&logits, &base);
        // For each candidate, finds a seed whose number is in the middle half of the candidate's interval.
        let total: f64 = candidates.iter().map(|c| c.weight).sum();
        let (mut sum, mut covered, mut expected_tokens) = (0.0, 0.0, vec![]);
        for candidate in &candidates {
            let fraction = candidate.weight / total;
            let middle = sum + 0.25 * fraction..sum + 0.75 * fraction;
            sum += fraction;
            let is_inside = |seed: &u64| middle.contains(&f64::from(philox::uniform(*seed, 0, 1)));
            if let Some(seed) = (0..20_000).find(is_inside) {
                expected_tokens.push((candidate.id, Settings { seed, ..base.clone() }));
                covered += fraction;
            }
        }
        assert!(covered > 0.9, "seed {seed}: {covered}");
        let settings: Vec<Settings> = expected_tokens.iter().map(|(_, settings)| settings.clone()).collect();
        let mut batch = Batch::new(&mut random, logits, vocabulary, settings, 4);
        batch.positions.fill(0);
        let expected: Vec<u32> = expected_tokens.iter().map(|(id, _)| *id).collect();
        assert_eq!(OnDevice::new(&batch, traits).step(), expected, "seed {seed}");
    }
}

#[test]
fn repeated_runs_give_the_same_tokens() {
    let mut random = Random::new(9);
    let mut batch = random_batch(&mut random, 2000, 16);
    batch.settings.iter_mut().for_each(|s| s.temperature = 1.0);
    let runs: Vec<Vec<u32>> = (0..5).map(|_| OnDevice::new(&batch, &variants()[0]).step()).collect();
    assert!(runs.iter().all(|run| *run == runs[0]));
}
