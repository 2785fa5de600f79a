use super::*;

/// Logits whose softmax is (0.4, 0.1, 0.3, 0.2).
fn logits() -> Vec<f32> {
    [0.4f32, 0.1, 0.3, 0.2].map(f32::ln).to_vec()
}

fn settings(change: impl FnOnce(&mut Settings)) -> Settings {
    let mut settings = Settings {
        temperature: 1.0,
        ..Settings::default()
    };
    change(&mut settings);
    settings
}

fn sampled(logits: &[f32], settings: &Settings, position: u64) -> u32 {
    pick(logits, settings, position).expect("the logits are numbers")
}

/// Returns the relative frequency of each token over `n` positions.
fn frequencies(settings: &Settings, n: u64) -> Vec<f64> {
    let mut counts = vec![0.0; logits().len()];
    for position in 0..n {
        counts[sampled(&logits(), settings, position) as usize] += 1.0 / n as f64;
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
fn temperature_0_takes_the_largest_logit_with_the_lowest_id() {
    let greedy = Settings::default();
    assert_eq!(sampled(&logits(), &greedy, 0), 0);
    assert_eq!(sampled(&[-1.0, 3.0, 3.0, 2.0], &greedy, 0), 1);
    assert_eq!(sampled(&[-0.0, 0.0], &greedy, 0), 0);
}

#[test]
fn token_frequencies_follow_the_softmax() {
    let found = frequencies(&settings(|_| {}), 10_000);
    assert!(near(&found, &[0.4, 0.1, 0.3, 0.2]), "{found:?}");
}

#[test]
fn temperature_sharpens_or_flattens_the_distribution() {
    let found = frequencies(&settings(|s| s.temperature = 0.5), 10_000);
    let squares = [0.16, 0.01, 0.09, 0.04].map(|p| p / 0.30);
    assert!(near(&found, &squares), "{found:?}");
    let found = frequencies(&settings(|s| s.temperature = 1e6), 10_000);
    assert!(near(&found, &[0.25; 4]), "{found:?}");
}

#[test]
fn top_k_keeps_the_k_most_probable() {
    let found = frequencies(&settings(|s| s.top_k = 2), 10_000);
    assert!(near(&found, &[0.4 / 0.7, 0.0, 0.3 / 0.7, 0.0]), "{found:?}");
    let found = frequencies(&settings(|s| s.top_k = 9), 10_000);
    assert!(near(&found, &[0.4, 0.1, 0.3, 0.2]), "{found:?}");
    let one_of_equals = settings(|s| s.top_k = 1);
    assert!((0..100).all(|position| sampled(&[1.0, 2.0, 2.0], &one_of_equals, position) == 1));
}

#[test]
fn top_p_keeps_the_smallest_set_that_reaches_it() {
    for (top_p, expected) in [
        (0.39, [1.0, 0.0, 0.0, 0.0]),
        (0.41, [0.4 / 0.7, 0.0, 0.3 / 0.7, 0.0]),
        (0.71, [0.4 / 0.9, 0.0, 0.3 / 0.9, 0.2 / 0.9]),
        (0.91, [0.4, 0.1, 0.3, 0.2]),
    ] {
        let found = frequencies(&settings(|s| s.top_p = top_p), 10_000);
        assert!(near(&found, &expected), "{top_p}: {found:?}");
    }
}

#[test]
fn top_p_is_relative_to_the_probability_after_top_k() {
    // Of the best two, 0.4 is 57 %.
    let found = frequencies(&settings(|s| (s.top_k, s.top_p) = (2, 0.56)), 2_000);
    assert!(near(&found, &[1.0, 0.0, 0.0, 0.0]), "{found:?}");
}

#[test]
fn min_p_is_relative_to_the_most_probable_token() {
    let found = frequencies(&settings(|s| s.min_p = 0.6), 10_000);
    assert!(near(&found, &[0.4 / 0.7, 0.0, 0.3 / 0.7, 0.0]), "{found:?}");
    let found = frequencies(&settings(|s| s.min_p = 1.0), 100);
    assert_eq!(found[0].round(), 1.0);
}

/// Returns `logits` after bias and penalties, given `history`.
fn adjusted(logits: &[f32], history: &[u32], bias: &[f32], change: impl FnOnce(&mut Settings)) -> Vec<f32> {
    let settings = settings(change);
    let mut adjusted = logits.to_vec();
    let counts = counts(history, settings.window, logits.len());
    adjust(&mut adjusted, &counts, bias, &settings);
    adjusted
}

#[test]
fn repeat_penalty_divides_positive_and_multiplies_negative_logits_once() {
    let found = adjusted(&[3.0, -1.0, 0.5, 4.0], &[0, 0, 1, 7], &[], |s| s.repeat_penalty = 2.0);
    assert_eq!(found, [1.5, -2.0, 0.5, 4.0]);
}

#[test]
fn presence_penalty_applies_once_and_frequency_penalty_per_occurrence() {
    let logits = [3.0, -1.0, 0.5, 4.0];
    let found = adjusted(&logits, &[0, 0, 1], &[], |s| s.presence_penalty = 0.5);
    assert_eq!(found, [2.5, -1.5, 0.5, 4.0]);
    let found = adjusted(&logits, &[0, 0, 1], &[], |s| s.frequency_penalty = 0.5);
    assert_eq!(found, [2.0, -1.5, 0.5, 4.0]);
    let all = |s: &mut Settings| (s.repeat_penalty, s.presence_penalty, s.frequency_penalty) = (2.0, 0.25, -1.0);
    assert_eq!(adjusted(&logits, &[0, 0, 1], &[], all), [3.25, -1.25, 0.5, 4.0]);
}

#[test]
fn only_tokens_in_the_window_are_penalised() {
    let found = adjusted(&[2.0, 2.0, 2.0], &[0, 1, 2], &[], |s| {
        (s.repeat_penalty, s.window) = (2.0, 2)
    });
    assert_eq!(found, [2.0, 1.0, 1.0]);
    let found = adjusted(&[2.0, 2.0], &[0, 1], &[], |s| (s.repeat_penalty, s.window) = (2.0, 0));
    assert_eq!(found, [2.0, 2.0]);
}

#[test]
fn presence_and_frequency_count_what_follows_the_prompt() {
    let settings = settings(|s| {
        (s.repeat_penalty, s.presence_penalty, s.frequency_penalty) = (2.0, 0.25, 1.0);
        (s.window, s.prompt) = (u32::MAX, 3);
    });
    let counts = initial_counts(&[0, 0, 1, 1, 2, 2], &settings, 4);
    assert_eq!(counts, [IN_PROMPT, IN_PROMPT | 1, 2, 0]);
    let mut logits = [3.0, -1.0, 8.0, 4.0];
    adjust(&mut logits, &counts, &[], &settings);
    assert_eq!(logits, [1.5, -3.25, 1.75, 4.0]);
    let all = Settings { prompt: 0, ..settings };
    assert_eq!(initial_counts(&[0, 0, 1], &all, 4), [2, 1, 0, 0]);
}

#[test]
fn bias_is_added_before_penalties() {
    let bias = [1.0, 0.0, f32::NEG_INFINITY];
    let found = adjusted(&[-0.5, 2.0, 9.0], &[0], &bias, |s| {
        (s.biased, s.repeat_penalty) = (true, 2.0)
    });
    assert_eq!(found, [0.25, 2.0, f32::NEG_INFINITY]);
    assert_eq!(adjusted(&[1.0, 2.0, 3.0], &[], &bias, |_| ()), [1.0, 2.0, 3.0]);
}

#[test]
fn sampling_depends_only_on_seed_sequence_and_position() {
    let picks = |seed, sequence, positions: &mut dyn Iterator<Item = u64>| -> Vec<u32> {
        let settings = settings(|s| (s.seed, s.sequence) = (seed, sequence));
        positions
            .map(|position| sampled(&logits(), &settings, position))
            .collect()
    };
    let forwards = picks(5, 0, &mut (0..64));
    let mut backwards = picks(5, 0, &mut (0..64).rev());
    backwards.reverse();
    assert_eq!(forwards, backwards);
    assert_ne!(forwards, picks(6, 0, &mut (0..64)));
    assert_ne!(forwards, picks(5, 1, &mut (0..64)));
}

#[test]
fn samples_nothing_from_nan_logits() {
    for temperature in [0.0, 1.0] {
        let settings = settings(|s| s.temperature = temperature);
        assert_eq!(pick(&[f32::NAN, 1.0], &settings, 0), None);
        for position in 0..50 {
            let picks = |logits: &[f32]| sampled(logits, &settings, position);
            assert_eq!(picks(&[f32::NEG_INFINITY, 1.0, f32::NEG_INFINITY]), 1);
            assert_eq!(picks(&[5.0, f32::INFINITY, 1.0]), 1);
        }
    }
}

/// A greedy sequence with a vocabulary of 4 and a history of 8; the current token is at position 2.
struct SingleSequence {
    settings: Settings,
    tokens: [u32; 1],
    positions: [i32; 1],
    history: Vec<u32>,
    counts: Vec<u32>,
    outbox: Vec<u32>,
}

impl SingleSequence {
    fn new(change: impl FnOnce(&mut Settings)) -> SingleSequence {
        let mut settings = Settings::default();
        change(&mut settings);
        let history = vec![3, 1, 1, 0, 0, 0, 0, 0];
        SingleSequence {
            counts: counts(&history[..3], settings.window, 4),
            settings,
            tokens: [1],
            positions: [2],
            history,
            outbox: vec![0; 1 + 2],
        }
    }

    /// Runs a step in which `best` has the largest logit.
    fn step(&mut self, best: usize) -> u32 {
        let mut logits = [0.0; 4];
        logits[best] = 1.0;
        self.run(&logits)
    }

    fn run(&mut self, logits: &[f32]) -> u32 {
        let mut state = SampleState {
            tokens: &mut self.tokens,
            positions: &mut self.positions,
            history: &mut self.history,
            counts: &mut self.counts,
            outbox: &mut self.outbox,
        };
        reference(logits, &self.settings.encode().unwrap(), &[], &mut state)[0]
    }
}

#[test]
fn step_advances_to_the_sampled_token() {
    let mut sequence = SingleSequence::new(|s| s.window = 3);
    assert_eq!(sequence.step(2), 2);
    assert_eq!((sequence.tokens, sequence.positions), ([2], [3]));
    assert_eq!(sequence.history[..4], [3, 1, 1, 2]);
    assert_eq!(sequence.counts, [0, 2, 1, 0]);
    assert_eq!(sequence.outbox, [1, 2, 0]);
    sequence.step(0);
    sequence.step(3);
    assert_eq!(sequence.counts, counts(&sequence.history[..6], 3, 4));
    assert_eq!(sequence.outbox, [3, 3, 0]);
}

#[test]
fn stop_token_is_reported_and_finishes_the_sequence() {
    let mut sequence = SingleSequence::new(|s| s.stop_ids = vec![0, 2]);
    assert_eq!(sequence.step(2), 2);
    assert_eq!((sequence.tokens, sequence.positions), ([1], [-1]));
    let before = (sequence.history.clone(), sequence.counts.clone());
    assert_eq!(sequence.step(3), FINISHED);
    assert_eq!((sequence.tokens, sequence.positions), ([1], [-1]));
    assert_eq!(before, (sequence.history, sequence.counts));
    assert_eq!(sequence.outbox, [2, 2, FINISHED]);
}

#[test]
fn sequence_ends_at_its_last_position_or_the_end_of_the_history() {
    let mut sequence = SingleSequence::new(|s| s.last_position = 4);
    assert_eq!((sequence.step(2), sequence.positions), (2, [3]));
    assert_eq!((sequence.step(2), sequence.positions), (2, [-1]));
    let mut sequence = SingleSequence::new(|_| ());
    let tokens: Vec<u32> = (0..6).map(|_| sequence.step(3)).collect();
    assert_eq!(tokens, [3, 3, 3, 3, 3, FINISHED]);
}

#[test]
fn nan_logit_finishes_the_sequence() {
    let mut sequence = SingleSequence::new(|_| ());
    assert_eq!(sequence.run(&[0.0, f32::NAN, 1.0, 2.0]), NOT_A_NUMBER);
    assert_eq!((sequence.positions, sequence.outbox), ([-1], vec![1, NOT_A_NUMBER, 0]));
}
