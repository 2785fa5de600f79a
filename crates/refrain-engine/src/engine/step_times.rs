//! How long steps take, and how many tokens of prompts a step may compute, so that running texts continue at an even
//! pace while prompts of other requests are computed.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::recent_mean::recent_mean;
use crate::prefill::{class_sizes, class_tokens};

/// Smallest chunk of a prompt in a step, unless fewer tokens are left.
const MIN_CHUNK: usize = 8;
/// Number of waiting prompts beyond which a chunk gets no more time.
const MAX_SHARES: usize = 4;
/// Steps with chunks before one without, which measures how long a step takes alone.
const MAX_STEPS_WITH_CHUNKS: u32 = 32;
/// Factor per step of the time that a chunk took that was too wide: it is tried again now and then.
const PENALTY_DECAY: f64 = 511.0 / 512.0;
/// Chunks that take at most so much longer than the narrowest are as good: both read the weights once.
const NEGLIGIBLE_SLOWDOWN: f64 = 1.25;

/// Times between the ends of steps, by what the steps computed.
pub(super) struct StepTimes {
    target_gap: Duration,
    /// Mean time of steps without a chunk.
    step: Option<Duration>,
    /// Time that chunks add, by the tokens that their programs compute.
    chunks: BTreeMap<usize, ChunkTime>,
    /// When the last step ended, if the next began with it.
    last: Option<Instant>,
    /// Steps with a chunk since the last without.
    with_chunks: u32,
}

#[derive(Clone, Copy)]
struct ChunkTime {
    /// Mean of the measured times.
    seen: Duration,
    /// Time that it is expected to take by now.
    guess: Duration,
}

impl StepTimes {
    /// Creates an empty record. `target_gap` is the time that a step with a chunk should take at most.
    pub fn new(target_gap: Duration) -> StepTimes {
        StepTimes {
            target_gap,
            step: None,
            chunks: BTreeMap::new(),
            last: None,
            with_chunks: 0,
        }
    }

    /// Notes that the next step does not begin where the last ended, or does more than steps do.
    pub fn interrupt(&mut self) {
        self.last = None;
    }

    /// Notes that a step has ended that computed a chunk of so many tokens, or none.
    pub fn ended(&mut self, chunk: Option<usize>, now: Instant) {
        let took = self.last.map(|last| now.saturating_duration_since(last));
        self.last = Some(now);
        self.with_chunks = chunk.map_or(0, |_| self.with_chunks + 1);
        let Some(took) = took else { return };
        let Some(tokens) = chunk else {
            self.step = Some(recent_mean(self.step, took));
            return;
        };
        let width = class_tokens(tokens);
        let Some(step) = self.step else { return };
        let before = self.chunks.get(&width).map(|time| time.seen);
        // The rest of a prompt says little of a full chunk.
        if before.is_some() && 4 * tokens < 3 * width {
            return;
        }
        let seen = recent_mean(before, took.saturating_sub(step));
        self.chunks.insert(width, ChunkTime { seen, guess: seen });
        // No chunk takes longer than a wider one.
        for (_, narrower) in self.chunks.range_mut(..width) {
            narrower.seen = narrower.seen.min(seen);
            narrower.guess = narrower.guess.min(seen);
        }
        let wider = class_sizes().find(|&wider| wider > width);
        if let Some((wider, time)) = wider.and_then(|wider| Some((wider, self.chunks.get_mut(&wider)?))) {
            // Each further token takes at most as long as the others.
            let most = seen.mul_f64(wider as f64 / width as f64);
            time.guess = time.guess.mul_f64(PENALTY_DECAY).clamp(seen, most);
        }
    }

    /// Notes that a step has ended that also computed tokens of prompts. Its time says nothing about others.
    pub fn ended_mixed(&mut self, now: Instant) {
        (self.last, self.with_chunks) = (Some(now), self.with_chunks + 1);
    }

    /// Whether the next step should compute no tokens of prompts, so that it is measured alone.
    pub fn measures_step(&self) -> bool {
        self.step.is_none() || self.with_chunks >= MAX_STEPS_WITH_CHUNKS
    }

    /// Returns the time that a step of so many tokens, rows and a chunk together, is expected to take: that of a chunk of
    /// as many tokens, and at least that of a step. `None` if no chunk was measured.
    pub fn expected_of(&self, tokens: usize) -> Option<Duration> {
        let tokens = class_tokens(tokens);
        let (&width, time) = self.chunks.range(..=tokens).next_back()?;
        let chunk = if width == tokens {
            time.seen
        } else {
            self.expected(tokens, width, time.seen)
        };
        Some(chunk.max(self.step?))
    }

    /// Returns the time that a chunk of so many tokens adds to a step: zero if unknown.
    pub fn of_chunk(&self, tokens: usize) -> Duration {
        let time = self.chunks.get(&class_tokens(tokens));
        time.map_or(Duration::ZERO, |time| time.seen)
    }

    /// Returns the time that a chunk of `wider` tokens is expected to take, after one of `width` took `seen`: each further
    /// token takes as long as those beyond the next narrower chunk, and at most as long as the others.
    fn expected(&self, wider: usize, width: usize, seen: Duration) -> Duration {
        let Some((narrower, time)) = self.chunks.range(..width).next_back() else {
            return seen;
        };
        let further = (wider - width) as f64 / (width - narrower) as f64;
        let most = seen.mul_f64(wider as f64 / width as f64);
        (seen + seen.saturating_sub(time.seen).mul_f64(further)).min(most)
    }

    /// Returns how many tokens, up to `most`, the next step may compute while requests decode and `prompts` prompts wait:
    /// as many as fit into the target gap. If steps alone take most of it, a chunk may take as long as a step, or as
    /// several steps if several prompts wait. Now and then it returns 0, to measure a step alone.
    pub fn width(&self, most: usize, prompts: usize) -> usize {
        let Some(step) = self.step.filter(|_| !self.measures_step()) else {
            return 0;
        };
        let share = if 2 * step <= self.target_gap {
            self.target_gap - step
        } else {
            step * prompts.clamp(1, MAX_SHARES) as u32
        };
        let share = share.max(self.of_chunk(MIN_CHUNK).mul_f64(NEGLIGIBLE_SLOWDOWN));
        let known = |width: usize| self.chunks.get(&width);
        let mut width = MIN_CHUNK;
        let wider = class_sizes().skip_while(|&wider| wider <= MIN_CHUNK);
        for wider in wider.take_while(|&wider| wider <= most) {
            let fits = match (known(width), known(wider)) {
                (_, Some(time)) => time.guess <= share,
                (here, None) => here.is_some_and(|here| self.expected(wider, width, here.seen) <= share),
            };
            if !fits {
                break;
            }
            width = wider;
        }
        width.min(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GAP: Duration = Duration::from_millis(35);

    /// Times of a device in microseconds: of a step, and of a chunk of so many tokens after so many others.
    struct Costs {
        step: u64,
        chunk: fn(usize, usize) -> u64,
    }

    /// Returns the times between the tokens of a text while a prompt of so many tokens is computed and others wait.
    fn gaps(costs: &Costs, times: &mut StepTimes, mut prompt: usize, prompts: usize) -> Vec<u64> {
        let mut now = Instant::now();
        let (mut prefilled, mut gaps) = (0, vec![]);
        times.interrupt();
        for step in 0.. {
            let width = match step {
                ..20 => 0,
                _ => times.width(512, prompts).min(prompt),
            };
            let chunk = (width > 0).then_some(width);
            let took = costs.step + chunk.map_or(0, |width| (costs.chunk)(width, prefilled));
            (prefilled, prompt) = (prefilled + width, prompt - width);
            now += Duration::from_micros(took);
            times.ended(chunk, now);
            if step >= 20 {
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

    /// A card whose chunks are bound by reading weights, a processor, and a device that slows down with depth.
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
            let mut times = StepTimes::new(GAP);
            // The second prompt uses the times of the first.
            for prompt in 0..3 {
                let gaps = gaps(costs, &mut times, 4096, 1);
                let (median, late) = (part(&gaps, 0.5), part(&gaps, 0.99));
                assert!(
                    late <= 2.0 * median,
                    "device {number}, prompt {prompt}: {late} and {median}"
                );
                let (step, late) = (costs.step as f64, part(&gaps, 0.97));
                assert!(
                    late <= (2.1 * step).max(1.4 * GAP.as_micros() as f64),
                    "device {number}, prompt {prompt}: {late} and {step}"
                );
                // The time that it may take is used.
                assert!(
                    median >= 1.4 * step,
                    "device {number}, prompt {prompt}: {median} and {step}"
                );
            }
        }
    }

    /// 512 tokens of Qwen3-8B take 23.7 ms on an H200, a step of 64 requests 7 ms.
    #[test]
    fn chunks_fill_the_target_gap() {
        let costs = Costs {
            step: 7000,
            chunk: |width, _| 1400 + 43 * width as u64,
        };
        let mut times = StepTimes::new(GAP);
        let gaps = gaps(&costs, &mut times, 100_000, 8);
        assert!(part(&gaps, 0.99) <= GAP.as_micros() as f64, "{gaps:?}");
        assert!(part(&gaps, 0.5) > 30_000.0, "{gaps:?}");
    }

    /// Beside 128 requests, 512 tokens do not fit, but more than 256 do.
    #[test]
    fn chunks_have_widths_between_powers_of_two() {
        let costs = Costs {
            step: 12_000,
            chunk: |width, _| 1400 + 43 * width as u64,
        };
        let gaps = gaps(&costs, &mut StepTimes::new(GAP), 100_000, 8);
        assert_eq!(part(&gaps, 0.5), (12_000 + 1400 + 43 * 384) as f64);
        assert!(part(&gaps, 0.99) <= 36_000.0, "{gaps:?}");
    }

    #[test]
    fn prefill_progresses_when_reading_weights_dominates() {
        let costs = Costs {
            step: 30_000,
            chunk: |width, _| 33_000 + 50 * width as u64,
        };
        let mut times = StepTimes::new(GAP);
        let gaps = gaps(&costs, &mut times, 4096, 1);
        assert!(gaps.len() < 40, "{} steps", gaps.len());
        assert!(part(&gaps, 0.99) <= 2.6 * 30_000.0, "{gaps:?}");
    }

    #[test]
    fn prefill_gets_more_time_when_many_prompts_wait() {
        let steps = |prompts| gaps(&DEVICES[1], &mut StepTimes::new(GAP), 4096, prompts).len();
        assert!(3 * steps(4) < steps(1), "{} and {}", steps(4), steps(1));
        assert_eq!(steps(4), steps(40));
    }

    #[test]
    fn the_rest_of_a_prompt_is_not_taken_for_a_full_chunk() {
        let mut times = StepTimes::new(GAP);
        let mut now = Instant::now();
        let mut ended = |chunk: Option<usize>, micros| {
            now += Duration::from_micros(micros);
            times.ended(chunk, now);
            times.of_chunk(512)
        };
        ended(None, 0);
        ended(None, 1000);
        assert_eq!(ended(Some(512), 21_000), Duration::from_millis(20));
        assert_eq!(ended(Some(260), 12_000), Duration::from_millis(20));
        assert!(ended(Some(400), 17_000) < Duration::from_millis(20));
    }

    #[test]
    fn wrong_times_are_forgotten() {
        let costs = &DEVICES[1];
        let mut times = StepTimes::new(GAP);
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
    fn steps_without_chunks_are_measured_first_and_now_and_then() {
        let mut times = StepTimes::new(GAP);
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
