//! How long rounds take, and how much of them prompts may: who reads goes on at an even pace while others' prompts come in.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The fewest tokens of a prompt that a round takes in, where there are so many left.
const MIN_CHUNK: usize = 8;
/// Steps whose time a round's chunk may take where so many prompts wait, or more.
const MAX_SHARES: usize = 4;
/// A chunk may take so long in any case: who reads has some forty tokens a second still, and narrow chunks compute
/// fewer tokens in the same time.
const PREFILL_BUDGET: Duration = Duration::from_millis(20);
/// Rounds with chunks before one goes without, to see what they take then.
const MAX_STEPS_WITH_CHUNKS: u32 = 32;
/// How much of a mean the newest time is.
const NEWEST_WEIGHT: f64 = 0.25;
/// What is left, after each round, of the time that chunks took which were too wide: they are tried again then and when.
const PENALTY_DECAY: f64 = 511.0 / 512.0;
/// Chunks that take so much longer than the narrowest are as good: the weights are read for both.
const NEGLIGIBLE_SLOWDOWN: f64 = 1.25;

/// Times between the ends of rounds, by what was in them.
#[derive(Default)]
pub(super) struct StepTimes {
    /// Of those that took a step alone.
    step: Option<Duration>,
    /// What chunks added, by their width: a power of two.
    chunks: BTreeMap<usize, ChunkTime>,
    /// When the last round ended, if the next began with it.
    last: Option<Instant>,
    /// Rounds with a chunk since the last without.
    with_chunks: u32,
}

#[derive(Clone, Copy)]
struct ChunkTime {
    /// The mean of what it took.
    seen: Duration,
    /// What it may take by now.
    guess: Duration,
}

impl StepTimes {
    /// Notes that the next round does not begin where the last ended, or does more than rounds do.
    pub fn interrupt(&mut self) {
        self.last = None;
    }

    /// Notes that a round has ended that took in a chunk of so many tokens, or none.
    pub fn ended(&mut self, chunk: Option<usize>, now: Instant) {
        let took = self.last.map(|last| now.saturating_duration_since(last));
        self.last = Some(now);
        self.with_chunks = chunk.map_or(0, |_| self.with_chunks + 1);
        let Some(took) = took else { return };
        let mean = |before: Option<Duration>, now: Duration| match before {
            Some(before) => before.mul_f64(1.0 - NEWEST_WEIGHT) + now.mul_f64(NEWEST_WEIGHT),
            None => now,
        };
        let Some(width) = chunk.map(usize::next_power_of_two) else {
            self.step = Some(mean(self.step, took));
            return;
        };
        let Some(step) = self.step else { return };
        let before = self.chunks.get(&width).map(|time| time.seen);
        let seen = mean(before, took.saturating_sub(step));
        self.chunks.insert(width, ChunkTime { seen, guess: seen });
        // No chunk takes longer than a wider one.
        for (_, narrower) in self.chunks.range_mut(..width) {
            narrower.seen = narrower.seen.min(seen);
            narrower.guess = narrower.guess.min(seen);
        }
        if let Some(wider) = self.chunks.get_mut(&(2 * width)) {
            // Twice the tokens take at most twice as long.
            wider.guess = wider.guess.mul_f64(PENALTY_DECAY).clamp(seen, 2 * seen);
        }
    }

    /// What a chunk of so many tokens adds to a round, as far as is known.
    pub fn of_chunk(&self, tokens: usize) -> Duration {
        let time = self.chunks.get(&tokens.next_power_of_two());
        time.map_or(Duration::ZERO, |time| time.seen)
    }

    /// How many tokens the next round may take in, of `most`, while others read and `prompts` wait for theirs: so many that
    /// a round takes no longer than two without, or a pause more that nobody notices, or a little more where many wait;
    /// none now and then.
    pub fn width(&self, most: usize, prompts: usize) -> usize {
        let Some(step) = self.step.filter(|_| self.with_chunks < MAX_STEPS_WITH_CHUNKS) else {
            return 0;
        };
        let share = step * prompts.clamp(1, MAX_SHARES) as u32;
        let share = share
            .max(PREFILL_BUDGET)
            .max(self.of_chunk(MIN_CHUNK).mul_f64(NEGLIGIBLE_SLOWDOWN));
        let known = |width: usize| self.chunks.get(&width);
        let mut width = MIN_CHUNK;
        while 2 * width <= most {
            // What was never tried is tried where half of it fits.
            let fits = match (known(width), known(2 * width)) {
                (_, Some(wider)) => wider.guess <= share,
                (here, None) => here.is_some_and(|here| here.seen <= share),
            };
            if !fits {
                break;
            }
            width *= 2;
        }
        width.min(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a device takes, in microseconds: for a step, and for a chunk of so many tokens behind so many others.
    struct Costs {
        step: u64,
        chunk: fn(usize, usize) -> u64,
    }

    /// Times between the tokens of one who reads while a prompt of so many tokens comes in beside others that wait, and
    /// before it for a while.
    fn gaps(costs: &Costs, times: &mut StepTimes, mut prompt: usize, prompts: usize) -> Vec<u64> {
        let mut now = Instant::now();
        let (mut prefilled, mut gaps) = (0, vec![]);
        times.interrupt();
        for round in 0.. {
            let width = match round {
                ..20 => 0,
                _ => times.width(512, prompts).min(prompt),
            };
            let chunk = (width > 0).then_some(width);
            let took = costs.step + chunk.map_or(0, |width| (costs.chunk)(width, prefilled));
            (prefilled, prompt) = (prefilled + width, prompt - width);
            now += Duration::from_micros(took);
            times.ended(chunk, now);
            if round >= 20 {
                gaps.push(took);
            }
            if prompt == 0 {
                break;
            }
        }
        gaps
    }

    fn part(gaps: &[u64], share: f64) -> f64 {
        let mut sorted = gaps.to_vec();
        sorted.sort_unstable();
        sorted[(share * (sorted.len() - 1) as f64).ceil() as usize] as f64
    }

    /// A card whose chunks read weights first, a processor that computes each token, and one on which depth tells.
    const DEVICES: [Costs; 3] = [
        Costs {
            step: 3000,
            chunk: |width, _| 1800 + 20 * width as u64,
        },
        Costs {
            step: 20_000,
            chunk: |width, _| 900 * width as u64,
        },
        Costs {
            step: 5000,
            chunk: |width, depth| width as u64 * (100 + depth as u64 / 20),
        },
    ];

    #[test]
    fn decode_steps_take_at_most_twice_as_long_during_prefill() {
        for (number, costs) in DEVICES.iter().enumerate() {
            let mut times = StepTimes::default();
            // The second prompt finds what the end of the first has left.
            for prompt in 0..3 {
                let gaps = gaps(costs, &mut times, 4096, 1);
                let (median, late) = (part(&gaps, 0.5), part(&gaps, 0.99));
                assert!(
                    late <= 2.0 * median,
                    "device {number}, prompt {prompt}: {late} and {median}"
                );
                let (step, late) = (costs.step as f64, part(&gaps, 0.97));
                assert!(
                    late <= (2.1 * step).max(step + 1.4 * PREFILL_BUDGET.as_micros() as f64),
                    "device {number}, prompt {prompt}: {late} and {step}"
                );
                // All of the time that it may take is taken.
                assert!(
                    median >= 1.4 * step,
                    "device {number}, prompt {prompt}: {median} and {step}"
                );
            }
        }
    }

    #[test]
    fn prefill_progresses_when_reading_weights_dominates() {
        let costs = Costs {
            step: 30_000,
            chunk: |width, _| 33_000 + 50 * width as u64,
        };
        let mut times = StepTimes::default();
        let gaps = gaps(&costs, &mut times, 4096, 1);
        assert!(gaps.len() < 40, "{} steps", gaps.len());
        assert!(part(&gaps, 0.99) <= 2.6 * 30_000.0, "{gaps:?}");
    }

    #[test]
    fn prefill_gets_more_time_when_many_prompts_wait() {
        let steps = |prompts| gaps(&DEVICES[1], &mut StepTimes::default(), 4096, prompts).len();
        assert!(3 * steps(4) < steps(1), "{} and {}", steps(4), steps(1));
        assert_eq!(steps(4), steps(40));
    }

    #[test]
    fn a_time_that_was_wrong_is_forgotten() {
        let costs = &DEVICES[1];
        let mut times = StepTimes::default();
        gaps(costs, &mut times, 1024, 1);
        let wrong = |time: Duration| ChunkTime {
            seen: 20 * time,
            guess: 20 * time,
        };
        times.chunks.values_mut().for_each(|time| *time = wrong(time.seen));
        gaps(costs, &mut times, 8192, 1);
        times.with_chunks = 0;
        assert_eq!(times.width(512, 1), 16);
    }

    #[test]
    fn before_a_step_was_seen_and_now_and_then_a_round_goes_without() {
        let mut times = StepTimes::default();
        assert_eq!(times.width(512, 1), 0);
        let gaps = gaps(&DEVICES[1], &mut times, 4096, 1);
        let without = gaps.iter().filter(|gap| **gap == DEVICES[1].step).count();
        assert!(
            (gaps.len() / 40..gaps.len() / 20).contains(&without),
            "{without} of {}",
            gaps.len()
        );
    }
}
