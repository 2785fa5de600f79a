//! A share of many like cases.

use std::sync::OnceLock;
use std::time::SystemTime;

/// `all`, or the seed of a draw.
const VARIABLE: &str = "REFRAIN_TESTS";

/// Which cases a process takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Draw {
    All,
    Seeded(u64),
}

impl Draw {
    /// What the variable asks for; without it all in CI, elsewhere a draw of the clock's.
    fn of(asked: Option<&str>, in_ci: bool) -> Draw {
        match asked {
            Some("all") => Draw::All,
            Some(seed) => {
                let seed = seed.parse();
                Draw::Seeded(seed.unwrap_or_else(|_| panic!("{VARIABLE} is neither `all` nor a number")))
            }
            None if in_ci => Draw::All,
            None => {
                let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
                // Short, since people type it.
                Draw::Seeded(u64::from(now.expect("a clock").subsec_micros()))
            }
        }
    }

    /// The draw of this process.
    fn own() -> Draw {
        static OWN: OnceLock<Draw> = OnceLock::new();
        *OWN.get_or_init(|| Draw::of(std::env::var(VARIABLE).ok().as_deref(), crate::in_ci()))
    }

    /// The first case and at least one other, one in `one_in` of all, in their order.
    fn sample<T>(self, cases: impl IntoIterator<Item = T>, one_in: usize) -> Vec<T> {
        let cases: Vec<T> = cases.into_iter().collect();
        let Draw::Seeded(seed) = self else {
            return cases;
        };
        let all = cases.len();
        let share = all.div_ceil(one_in).max(2).min(all);
        let mut drawn: Vec<usize> = (0..all).collect();
        drawn.sort_by_key(|&case| (case > 0, mixed(seed, case as u64)));
        drawn.truncate(share);
        // A test that fails shows it.
        eprintln!("{share} of {all} cases; {VARIABLE}={seed} draws them again, {VARIABLE}=all takes all");
        let numbered = cases.into_iter().enumerate();
        let kept = numbered.filter(|(case, _)| drawn.contains(case));
        kept.map(|(_, case)| case).collect()
    }
}

/// The output function of SplitMix64 (Steele, Lea and Flood, 2014).
fn mixed(seed: u64, case: u64) -> u64 {
    let mut z = (seed ^ case << 32).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// One in `one_in` of many like cases, the first and another always among them; all of them in CI. Says how a draw is
/// repeated.
pub fn sample<T>(cases: impl IntoIterator<Item = T>, one_in: usize) -> Vec<T> {
    Draw::own().sample(cases, one_in)
}

/// Of what is done `whole` times alike, one in `one_in`, but at least once; all in CI.
pub fn share(whole: usize, one_in: usize) -> usize {
    match Draw::own() {
        Draw::All => whole,
        Draw::Seeded(_) => whole.div_ceil(one_in),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_cases_run_where_they_are_asked_for_and_in_ci() {
        assert_eq!(Draw::of(Some("all"), false), Draw::All);
        assert_eq!(Draw::of(None, true), Draw::All);
        assert_eq!(Draw::of(Some("7"), true), Draw::Seeded(7));
        assert_ne!(Draw::of(None, false), Draw::All);
        assert_eq!(Draw::All.sample(0..5, 3), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn a_draw_keeps_the_first_case_and_another_and_as_many_as_the_share() {
        for seed in 0..20 {
            let drawn = Draw::Seeded(seed).sample(0..10, 4);
            assert_eq!((drawn[0], drawn.len()), (0, 3), "{drawn:?}");
            assert!(drawn.is_sorted());
            assert_eq!(
                Draw::Seeded(seed).sample(0..10, 4),
                drawn,
                "the same seed draws the same"
            );
            assert_eq!(Draw::Seeded(seed).sample(0..3, 9).len(), 2);
            assert_eq!(Draw::Seeded(seed).sample(["only"], 9), ["only"]);
        }
        assert_eq!(Draw::Seeded(1).sample(0..0, 4), [0; 0]);
    }

    #[test]
    fn draws_together_meet_every_case() {
        let mut met: Vec<usize> = (0..40).flat_map(|seed| Draw::Seeded(seed).sample(0..20, 5)).collect();
        met.sort_unstable();
        met.dedup();
        assert_eq!(met, Vec::from_iter(0..20));
    }
}
