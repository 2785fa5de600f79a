//! Whether drafts pay: what they are expected to gain, against what verifying them costs.

use std::collections::HashMap;
use std::time::Duration;

use super::{DRAFT_WIDTHS, is_allowed};
use crate::engine::recent_mean::recent_mean;

/// Tokens of drafts that count as verified before a request's own, and the share of them that was accepted: what is
/// usual for the engine. So one refused draft does not end those of a text whose like accept them.
const USUAL_TOKENS: f64 = 8.0;
/// The same for an engine's own.
const FIRST_TOKENS: f64 = 10.0;
const FIRST_RATE: f64 = 0.8;
/// What remains of older tokens in a request's acceptance, and in the engine's, for each one that is verified.
const MEMORY: f64 = 0.97;
const USUAL_MEMORY: f64 = 0.99;
/// The same for each time that drafts were not worth it: they are tried again now and then.
const FORGETTING: f64 = 255.0 / 256.0;
const USUAL_FORGETTING: f64 = 1023.0 / 1024.0;
/// Factor of the time that steps are expected to take, for each time that others were chosen: with drafts, if these were
/// not worth it, or else without.
const FORGETTING_TIMES: f64 = 1023.0 / 1024.0;
/// Steps without drafts that are measured first: of a single one, much is the host's own sleep.
const MIN_PLAIN_STEPS: u32 = 8;

/// How much of the drafts of a request, or of an engine, is accepted.
#[derive(Clone, Copy, Default, Debug)]
pub struct Acceptance {
    /// Tokens that were verified, and those of them that were accepted; older ones count less.
    verified: f64,
    accepted: f64,
}

impl Acceptance {
    /// Returns the probability that a token of a draft is accepted if those before it were, where so many tokens of which
    /// that share was accepted count as verified before.
    fn rate(&self, tokens_before: f64, rate_before: f64) -> f64 {
        (self.accepted + tokens_before * rate_before) / (self.verified + tokens_before)
    }

    fn add(&mut self, is_accepted: bool, memory: f64) {
        self.verified = self.verified * memory + 1.0;
        self.accepted = self.accepted * memory + f64::from(u8::from(is_accepted));
    }

    fn forget(&mut self, share_kept: f64) {
        (self.verified, self.accepted) = (self.verified * share_kept, self.accepted * share_kept);
    }

    /// Notes that drafts of a request were there but not worth verifying.
    pub fn not_worth_it(&mut self) {
        self.forget(FORGETTING);
    }
}

/// Rows of a step, and tokens of a draft in each.
type StepTokens = (usize, usize);

/// Chooses how many tokens of drafts steps verify.
#[derive(Default)]
pub struct DraftPolicy {
    /// `None` for steps that ran once: a first run takes longer than those after it.
    times: HashMap<StepTokens, Option<StepTime>>,
    /// The acceptance of all requests.
    usual: Acceptance,
}

/// The time that a kind of step takes.
#[derive(Clone, Copy)]
struct StepTime {
    /// How many were measured, and the mean of their times.
    count: u32,
    seen: Duration,
    /// What is expected by now: kinds that took longer than others are tried again.
    guess: Duration,
}

impl DraftPolicy {
    /// Returns the probability that a token of a request's draft is accepted if those before it were.
    pub fn rate(&self, own: &Acceptance) -> f64 {
        own.rate(USUAL_TOKENS, self.usual.rate(FIRST_TOKENS, FIRST_RATE))
    }

    /// Notes that a token of a request's draft was verified whose predecessors were accepted.
    pub fn verified(&mut self, own: &mut Acceptance, is_accepted: bool) {
        own.add(is_accepted, MEMORY);
        self.usual.add(is_accepted, USUAL_MEMORY);
    }

    /// Notes how long a step took.
    pub fn measured(&mut self, step: StepTokens, took: Duration) {
        let Some(time) = self.times.get_mut(&step) else {
            self.times.insert(step, None);
            return;
        };
        // What was expected of a step without drafts may be wrong by now.
        let before = time.map(|time| if step.1 == 0 { time.guess } else { time.seen });
        let seen = recent_mean(before, took);
        let count = time.map_or(0, |time| time.count).saturating_add(1);
        *time = Some(StepTime {
            count,
            seen,
            guess: seen,
        });
    }

    /// The time that a kind of step takes, if it is known.
    fn time(&self, step: StepTokens) -> Option<&StepTime> {
        self.times.get(&step)?.as_ref()
    }

    /// Returns how many tokens of a draft the next step of `rows` rows should verify in each: as many as give the most
    /// tokens per time, 0 if drafts do not pay. `requests` has the acceptance rate and the length of the draft of each.
    pub fn choose(&mut self, rows: usize, requests: &[(f64, usize)]) -> usize {
        let most = requests.iter().map(|(_, drafts)| *drafts).max().unwrap_or(0);
        let plain = self.time((rows, 0)).filter(|time| time.count >= MIN_PLAIN_STEPS);
        let Some(&StepTime { seen, guess: plain, .. }) = plain else {
            return 0;
        };
        let (mut best, mut best_speed) = (0, 0.0);
        let mut narrower = 0;
        for drafts in [0].into_iter().chain(DRAFT_WIDTHS) {
            if !is_allowed(rows, drafts) || narrower > most || (drafts > 0 && most == 0) {
                break;
            }
            let tokens: f64 = requests
                .iter()
                .map(|&(rate, own)| expected_tokens(rate, own.min(drafts)))
                .sum();
            // What is not known counts as fast, so that it is tried.
            let time = self.time((rows, drafts)).map_or(plain, |time| time.guess);
            let speed = tokens / time.as_secs_f64().max(1e-9);
            if speed > best_speed {
                (best, best_speed) = (drafts, speed);
            }
            narrower = drafts + 1;
        }
        if best > 0 {
            self.forget((rows, 0), Duration::ZERO);
        } else if most > 0 {
            self.usual.forget(USUAL_FORGETTING);
            DRAFT_WIDTHS
                .iter()
                .for_each(|&drafts| self.forget((rows, drafts), seen));
        }
        best
    }

    /// Lets a kind of step count as somewhat faster than it was, down to `least`.
    fn forget(&mut self, step: StepTokens, least: Duration) {
        if let Some(Some(time)) = self.times.get_mut(&step) {
            time.guess = time.guess.mul_f64(FORGETTING_TIMES).max(least);
        }
    }
}

/// Returns how many tokens a step is expected to give that verifies so many tokens of a draft.
fn expected_tokens(rate: f64, drafts: usize) -> f64 {
    (0..=drafts as i32).map(|accepted| rate.powi(accepted)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MICROSECOND: Duration = Duration::from_micros(1);

    /// A policy that knows the time of each step of up to 16 rows: 2,400 µs, and 72 for each token.
    fn informed() -> DraftPolicy {
        let mut policy = DraftPolicy::default();
        for rows in 1..=16 {
            for drafts in [0].into_iter().chain(DRAFT_WIDTHS) {
                let took = MICROSECOND * (2400 + 72 * (rows * (1 + drafts)) as u32);
                policy.measured((rows, drafts), 10 * took);
                (0..MIN_PLAIN_STEPS).for_each(|_| policy.measured((rows, drafts), took));
            }
        }
        policy
    }

    #[test]
    fn more_drafts_are_verified_the_more_are_accepted() {
        let mut policy = informed();
        assert_eq!(
            [0.05, 0.4, 0.6, 0.95].map(|rate| policy.choose(1, &[(rate, 7)])),
            [0, 3, 7, 7]
        );
        assert_eq!(policy.choose(1, &[(0.95, 0)]), 0);
        assert_eq!(policy.choose(1, &[(0.95, 3)]), 3, "the padding would take time");
    }

    #[test]
    fn one_text_that_copies_does_not_delay_many_others() {
        let mut policy = informed();
        let batch = |copies: usize| [vec![(0.9, 7); copies], vec![(0.8, 0); 16 - copies]].concat();
        assert_eq!(
            [0, 1, 2, 8, 16].map(|copies| policy.choose(16, &batch(copies))),
            [0, 0, 0, 3, 3]
        );
        assert_eq!(policy.choose(24, &batch(16)), 0, "too many tokens");
    }

    #[test]
    fn what_is_unknown_is_tried() {
        let mut policy = DraftPolicy::default();
        assert_eq!(policy.choose(1, &[(0.5, 7)]), 0, "nothing to compare with");
        let measured = |policy: &mut DraftPolicy, drafts, next| {
            let unknown = policy.choose(1, &[(0.5, 7)]);
            policy.measured((1, drafts), MICROSECOND * 1000);
            assert_eq!(policy.choose(1, &[(0.5, 7)]), unknown, "the first run does not count");
            let (took, times) = if drafts == 0 { (100, MIN_PLAIN_STEPS) } else { (1000, 1) };
            (0..times).for_each(|_| policy.measured((1, drafts), MICROSECOND * took));
            assert_eq!(policy.choose(1, &[(0.5, 7)]), next);
        };
        measured(&mut policy, 0, 7);
        measured(&mut policy, 7, 3);
        measured(&mut policy, 3, 0);
        let again = (1..10_000).find(|_| policy.choose(1, &[(0.5, 7)]) > 0);
        assert!(again.is_some_and(|choices| choices > 100), "{again:?}");
    }

    /// If the first steps without drafts took too long, so that drafts seem to pay, they are measured again.
    #[test]
    fn steps_without_drafts_are_measured_again() {
        let mut policy = DraftPolicy::default();
        let step = |drafts: usize| MICROSECOND * if drafts == 0 { 2000 } else { 4400 };
        (0..=MIN_PLAIN_STEPS).for_each(|_| policy.measured((1, 0), 3 * step(0)));
        let mut plain = 0;
        for _ in 0..2000 {
            let drafts = policy.choose(1, &[(0.3, 3)]);
            plain += u32::from(drafts == 0);
            policy.measured((1, drafts), step(drafts));
        }
        assert!(plain > 1000, "{plain}");
    }

    /// If no draft is accepted, verifying some in vain costs at most 3 % of the time.
    #[test]
    fn drafts_that_are_refused_cost_little() {
        let mut policy = informed();
        let mut acceptance = Acceptance::default();
        let (mut verified, mut cost, steps) = (0, 0.0, 20_000);
        for _ in 0..steps {
            match policy.choose(1, &[(policy.rate(&acceptance), 7)]) {
                0 => acceptance.not_worth_it(),
                drafts => {
                    policy.verified(&mut acceptance, false);
                    policy.measured((1, drafts), MICROSECOND * (2472 + 72 * drafts as u32));
                    verified += 1;
                    cost += 72.0 * drafts as f64 / 2472.0;
                }
            }
        }
        assert!(verified > 10, "{verified}");
        assert!(cost < 0.03 * f64::from(steps), "{cost}");
    }

    #[test]
    fn a_text_that_begins_to_copy_is_noticed() {
        let mut policy = informed();
        let mut acceptance = Acceptance::default();
        (0..200).for_each(|_| policy.verified(&mut acceptance, false));
        let mut steps = 0;
        loop {
            match policy.choose(1, &[(policy.rate(&acceptance), 7)]) {
                7 => break,
                0 => acceptance.not_worth_it(),
                drafts => (0..drafts).for_each(|_| policy.verified(&mut acceptance, true)),
            }
            steps += 1;
        }
        assert!(steps < 600, "{steps}");
    }

    /// One of five texts has its first draft refused; all texts have four of five accepted.
    #[test]
    fn a_refused_draft_does_not_end_those_of_a_text_whose_like_accept_them() {
        let mut policy = DraftPolicy::default();
        let took = |drafts: usize| MICROSECOND * [1980, 4130, 7000][drafts.div_ceil(4)];
        for drafts in [0].into_iter().chain(DRAFT_WIDTHS) {
            (0..=MIN_PLAIN_STEPS).for_each(|_| policy.measured((1, drafts), took(drafts)));
        }
        let mut random = 1u32;
        let mut accepts = || {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            random >> 16 < 0xcccc
        };
        let (mut with_drafts, mut steps) = (0, 0);
        for _ in 0..100 {
            let mut acceptance = Acceptance::default();
            let mut tokens = 0;
            while tokens < 128 {
                let drafts = policy.choose(1, &[(policy.rate(&acceptance), 3)]);
                policy.measured((1, drafts), took(drafts));
                for _ in 0..drafts {
                    let is_accepted = accepts();
                    policy.verified(&mut acceptance, is_accepted);
                    tokens += usize::from(is_accepted);
                    if !is_accepted {
                        break;
                    }
                }
                if drafts == 0 {
                    acceptance.not_worth_it();
                }
                tokens += 1;
                (with_drafts, steps) = (with_drafts + usize::from(drafts > 0), steps + 1);
            }
        }
        assert!(10 * with_drafts > 9 * steps, "{with_drafts} of {steps}");
    }
}
