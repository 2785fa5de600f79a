use super::*;

/// Logits whose softmax is (0.4, 0.1, 0.3, 0.2).
fn logits() -> Vec<f32> {
    [0.4f32, 0.1, 0.3, 0.2].map(f32::ln).to_vec()
}

fn sampler(change: impl FnOnce(&mut SamplerOptions)) -> Sampler {
    let mut options = SamplerOptions {
        temperature: 1.0,
        ..SamplerOptions::default()
    };
    change(&mut options);
    Sampler::new(options).unwrap()
}

/// How often each token is picked at `n` positions.
fn frequencies(sampler: &Sampler, n: u64) -> Vec<f64> {
    let mut counts = vec![0.0; logits().len()];
    for position in 0..n {
        counts[sampler.pick(&mut logits(), &[], position) as usize] += 1.0 / n as f64;
    }
    counts
}

fn near(found: &[f64], expected: &[f64]) -> bool {
    found
        .iter()
        .zip(expected)
        .all(|(a, b)| (a - b).abs() < 0.02 && (*b > 0.0 || *a == 0.0))
}

#[test]
fn temperature_0_takes_the_largest_logit_and_of_equal_ones_the_lowest_id() {
    let greedy = Sampler::new(SamplerOptions::default()).unwrap();
    assert_eq!(greedy.pick(&mut logits(), &[], 0), 0);
    assert_eq!(greedy.pick(&mut [-1.0, 3.0, 3.0, 2.0], &[], 0), 1);
    assert_eq!(greedy.pick(&mut [-0.0, 0.0], &[], 0), 0);
}

#[test]
fn tokens_are_drawn_as_often_as_the_softmax_says() {
    let found = frequencies(&sampler(|_| {}), 10_000);
    assert!(near(&found, &[0.4, 0.1, 0.3, 0.2]), "{found:?}");
}

#[test]
fn temperature_sharpens_or_flattens() {
    let found = frequencies(&sampler(|options| options.temperature = 0.5), 10_000);
    let squares = [0.16, 0.01, 0.09, 0.04].map(|p| p / 0.30);
    assert!(near(&found, &squares), "{found:?}");
    let found = frequencies(&sampler(|options| options.temperature = 1e6), 10_000);
    assert!(near(&found, &[0.25; 4]), "{found:?}");
}

#[test]
fn top_k_keeps_the_k_likeliest() {
    let found = frequencies(&sampler(|options| options.top_k = 2), 10_000);
    assert!(near(&found, &[0.4 / 0.7, 0.0, 0.3 / 0.7, 0.0]), "{found:?}");
    let found = frequencies(&sampler(|options| options.top_k = 9), 10_000);
    assert!(near(&found, &[0.4, 0.1, 0.3, 0.2]), "{found:?}");
    let one_of_equals = sampler(|options| options.top_k = 1);
    assert!((0..100).all(|position| one_of_equals.pick(&mut [1.0, 2.0, 2.0], &[], position) == 1));
}

#[test]
fn top_p_keeps_the_fewest_that_reach_it() {
    for (top_p, expected) in [
        (0.39, [1.0, 0.0, 0.0, 0.0]),
        (0.41, [0.4 / 0.7, 0.0, 0.3 / 0.7, 0.0]),
        (0.71, [0.4 / 0.9, 0.0, 0.3 / 0.9, 0.2 / 0.9]),
        (0.91, [0.4, 0.1, 0.3, 0.2]),
    ] {
        let found = frequencies(&sampler(|options| options.top_p = top_p), 10_000);
        assert!(near(&found, &expected), "{top_p}: {found:?}");
    }
}

#[test]
fn top_p_counts_the_probability_left_by_top_k() {
    // Of the best two, 0.4 is 57 %.
    let found = frequencies(&sampler(|options| (options.top_k, options.top_p) = (2, 0.56)), 2_000);
    assert!(near(&found, &[1.0, 0.0, 0.0, 0.0]), "{found:?}");
}

#[test]
fn min_p_keeps_what_is_probable_relative_to_the_likeliest() {
    let found = frequencies(&sampler(|options| options.min_p = 0.6), 10_000);
    assert!(near(&found, &[0.4 / 0.7, 0.0, 0.3 / 0.7, 0.0]), "{found:?}");
    let found = frequencies(&sampler(|options| options.min_p = 1.0), 100);
    assert_eq!(found[0].round(), 1.0);
}

#[test]
fn the_repeat_penalty_divides_positive_and_multiplies_negative_logits_once() {
    let sampler = sampler(|options| options.repeat_penalty = 2.0);
    let mut logits = [3.0, -1.0, 0.5, 4.0];
    sampler.pick(&mut logits, &[0, 0, 1, 7], 0);
    assert_eq!(logits, [1.5, -2.0, 0.5, 4.0]);
}

#[test]
fn only_the_last_tokens_are_penalised() {
    let sampler = sampler(|options| (options.repeat_penalty, options.repeat_last) = (2.0, 2));
    let mut logits = [2.0, 2.0, 2.0];
    sampler.pick(&mut logits, &[0, 1, 2], 0);
    assert_eq!(logits, [2.0, 1.0, 1.0]);
}

#[test]
fn a_pick_depends_on_seed_and_position_alone() {
    let picks = |seed, positions: &mut dyn Iterator<Item = u64>| -> Vec<u32> {
        let sampler = sampler(|options| options.seed = seed);
        positions
            .map(|position| sampler.pick(&mut logits(), &[], position))
            .collect()
    };
    let forwards = picks(5, &mut (0..64));
    let mut backwards = picks(5, &mut (0..64).rev());
    backwards.reverse();
    assert_eq!(forwards, backwards);
    assert_ne!(forwards, picks(6, &mut (0..64)));
}

#[test]
fn what_is_not_a_number_is_never_picked() {
    for temperature in [0.0, 1.0] {
        let sampler = sampler(|options| options.temperature = temperature);
        for position in 0..50 {
            assert_eq!(sampler.pick(&mut [f32::NAN, 1.0, f32::NEG_INFINITY], &[], position), 1);
            assert_eq!(sampler.pick(&mut [f32::NAN, f32::INFINITY, 1.0], &[], position), 1);
        }
    }
}

#[test]
fn settings_out_of_bounds_are_refused() {
    let refused = |change: &dyn Fn(&mut SamplerOptions)| {
        let mut options = SamplerOptions::default();
        change(&mut options);
        Sampler::new(options).unwrap_err().to_string()
    };
    assert_eq!(
        refused(&|o| o.temperature = -1.0),
        "temperature is -1, but must be 0 or more"
    );
    assert!(refused(&|o| o.temperature = f32::NAN).contains("NaN"));
    assert!(refused(&|o| o.temperature = f32::INFINITY).contains("inf"));
    assert!(refused(&|o| o.top_p = 0.0).contains("top-p"));
    assert!(refused(&|o| o.min_p = 1.5).contains("min-p"));
    assert!(refused(&|o| o.repeat_penalty = 0.0).contains("repeat penalty"));
}
