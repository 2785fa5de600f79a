//! Random samples of test cases.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::OnceLock;
use std::time::SystemTime;

/// The environment variable that selects cases: `all`, or the seed of a sample.
const VARIABLE: &str = "REFRAIN_TESTS";

/// The cases that a process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Selection {
    All,
    Seeded(u64),
}

impl Selection {
    /// Returns the selection of the variable's value. Without a value, all cases in CI, else a sample seeded by the
    /// clock.
    fn of(value: Option<&str>, in_ci: bool) -> Selection {
        match value {
            Some("all") => Selection::All,
            Some(seed) => {
                let seed = seed.parse();
                Selection::Seeded(seed.unwrap_or_else(|_| panic!("{VARIABLE} must be `all` or a number")))
            }
            None if in_ci => Selection::All,
            None => {
                let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
                // A short number, since people type it.
                Selection::Seeded(u64::from(now.expect("a clock").subsec_micros()))
            }
        }
    }

    /// Returns the selection of this process.
    fn of_process() -> Selection {
        static SELECTION: OnceLock<Selection> = OnceLock::new();
        *SELECTION.get_or_init(|| Selection::of(std::env::var(VARIABLE).ok().as_deref(), crate::in_ci()))
    }

    /// Whether a test of this name runs if one in `one_in` does.
    fn draws(self, name: &str, one_in: u64) -> bool {
        let Selection::Seeded(seed) = self else {
            return true;
        };
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        hash(seed, hasher.finish()).is_multiple_of(one_in)
    }

    /// Returns one in `one_in` cases, in order: the first and at least one other.
    fn sample<T>(self, cases: impl IntoIterator<Item = T>, one_in: usize) -> Vec<T> {
        let cases: Vec<T> = cases.into_iter().collect();
        let Selection::Seeded(seed) = self else {
            return cases;
        };
        let all = cases.len();
        let count = all.div_ceil(one_in).max(2).min(all);
        let mut drawn: Vec<usize> = (0..all).collect();
        drawn.sort_by_key(|&case| (case > 0, hash(seed, case as u64)));
        drawn.truncate(count);
        // The output of a failed test shows this.
        eprintln!("{count} of {all} cases; {VARIABLE}={seed} repeats this sample, {VARIABLE}=all runs all");
        let numbered = cases.into_iter().enumerate();
        let kept = numbered.filter(|(case, _)| drawn.contains(case));
        kept.map(|(_, case)| case).collect()
    }
}

/// The output function of SplitMix64 (Steele, Lea and Flood, 2014).
fn hash(seed: u64, case: u64) -> u64 {
    let mut z = (seed ^ case << 32).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Returns one in `one_in` of similar cases, always including the first and another; all of them in CI. Prints how to
/// repeat the sample.
pub fn sample<T>(cases: impl IntoIterator<Item = T>, one_in: usize) -> Vec<T> {
    Selection::of_process().sample(cases, one_in)
}

/// Returns the number of repetitions to run of `whole`: one in `one_in`, but at least one; all in CI.
pub fn share(whole: usize, one_in: usize) -> usize {
    match Selection::of_process() {
        Selection::All => whole,
        Selection::Seeded(_) => whole.div_ceil(one_in),
    }
}

/// Whether a test that takes long runs now: one in `one_in` such tests does. All do in CI, and if the command names the
/// tests to run. Reports a test that does not run.
///
/// Call it first in a test, and return if it is false.
pub fn drawn(one_in: u64) -> bool {
    let is_named = std::env::args().skip(1).any(|argument| !argument.starts_with('-'));
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("a test");
    let runs = is_named || Selection::of_process().draws(name, one_in);
    if !runs {
        crate::report(&format!("not drawn: {name}"));
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_cases_run_on_request_and_in_ci() {
        assert_eq!(Selection::of(Some("all"), false), Selection::All);
        assert_eq!(Selection::of(None, true), Selection::All);
        assert_eq!(Selection::of(Some("7"), true), Selection::Seeded(7));
        assert_ne!(Selection::of(None, false), Selection::All);
        assert_eq!(Selection::All.sample(0..5, 3), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn samples_include_the_first_case_and_another() {
        for seed in 0..20 {
            let drawn = Selection::Seeded(seed).sample(0..10, 4);
            assert_eq!((drawn[0], drawn.len()), (0, 3), "{drawn:?}");
            assert!(drawn.is_sorted());
            assert_eq!(
                Selection::Seeded(seed).sample(0..10, 4),
                drawn,
                "the same seed gives the same sample"
            );
            assert_eq!(Selection::Seeded(seed).sample(0..3, 9).len(), 2);
            assert_eq!(Selection::Seeded(seed).sample(["only"], 9), ["only"]);
        }
        assert_eq!(Selection::Seeded(1).sample(0..0, 4), [0; 0]);
    }

    #[test]
    fn one_in_four_tests_is_drawn() {
        let drawn = |seed| {
            (0..400)
                .filter(|test| Selection::Seeded(seed).draws(&format!("test {test}"), 4))
                .count()
        };
        assert!((70..130).contains(&drawn(1)), "{}", drawn(1));
        assert_eq!(drawn(1), drawn(1), "the same seed draws the same tests");
        let all_seeds = |name| (0..40).any(|seed| Selection::Seeded(seed).draws(name, 4));
        assert!(all_seeds("one") && all_seeds("two"));
        assert!((0..10).all(|test| Selection::All.draws(&test.to_string(), 4)));
    }

    #[test]
    fn many_samples_cover_every_case() {
        let mut covered: Vec<usize> = (0..40)
            .flat_map(|seed| Selection::Seeded(seed).sample(0..20, 5))
            .collect();
        covered.sort_unstable();
        covered.dedup();
        assert_eq!(covered, Vec::from_iter(0..20));
    }
}
