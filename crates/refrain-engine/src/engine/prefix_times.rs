//! Whether prefixes are read from disk or computed: whatever took less time.

use std::time::Duration;

/// Computed tokens of a prompt from which its time tells something.
const MIN_MEASURED_TOKENS: usize = 256;
/// Weight of the newest time in a mean.
const NEWEST_WEIGHT: f64 = 0.25;
/// Factor of the time of reading each time that it is too long: it is tried again now and then.
const PENALTY_DECAY: f64 = 0.9;

/// How long tokens of prefixes take to read and to compute, in seconds, once each was done.
#[derive(Default)]
pub(super) struct PrefixTimes {
    read: Option<f64>,
    computed: Option<f64>,
}

impl PrefixTimes {
    /// Notes how long a prompt took of which so many tokens were computed.
    pub fn note_computed(&mut self, took: Duration, tokens: usize) {
        if tokens >= MIN_MEASURED_TOKENS {
            note(&mut self.computed, took, tokens);
        }
    }

    /// Notes how long it took to read so many tokens.
    pub fn note_read(&mut self, took: Duration, tokens: usize) {
        if tokens > 0 {
            note(&mut self.read, took, tokens);
        }
    }

    /// Whether reading is not slower than computing.
    pub fn reading_pays(&mut self) -> bool {
        let (Some(read), Some(computed)) = (&mut self.read, self.computed) else {
            return true;
        };
        let pays = *read <= computed;
        if !pays {
            *read *= PENALTY_DECAY;
        }
        pays
    }
}

/// Adds the time of so many tokens to the mean time of one.
fn note(mean: &mut Option<f64>, took: Duration, tokens: usize) {
    let each = took.as_secs_f64() / tokens as f64;
    *mean = Some(mean.map_or(each, |mean| mean + NEWEST_WEIGHT * (each - mean)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_reading_is_tried_again_now_and_then() {
        let mut times = PrefixTimes::default();
        assert!(times.reading_pays(), "nothing is known");
        times.note_read(Duration::from_secs(2), 1000);
        times.note_computed(Duration::from_secs(1), 10);
        assert!(times.reading_pays(), "few tokens tell nothing");
        times.note_computed(Duration::from_secs(1), 1000);
        let refused = (0..100).take_while(|_| !times.reading_pays()).count();
        assert!((3..20).contains(&refused), "{refused}");
        // It became fast.
        (0..20).for_each(|_| times.note_read(Duration::from_secs(1), 10_000));
        assert!((0..100).all(|_| times.reading_pays()));
    }
}
