//! Whether prefixes are read from disk or computed: whatever took less time.

use std::time::Duration;

use super::recent_mean::recent_mean;

/// Computed tokens of a prompt from which its time tells something.
const MIN_MEASURED_TOKENS: usize = 256;
/// Factor of the time of reading each time that it is too long: it is tried again now and then.
const PENALTY_DECAY: f64 = 0.9;

/// How long a token of a prefix takes to read and to compute, once each was done.
#[derive(Default)]
pub(super) struct PrefixTimes {
    read: Option<Duration>,
    computed: Option<Duration>,
}

impl PrefixTimes {
    /// Notes how long a prompt took of which so many tokens were computed.
    pub fn note_computed(&mut self, took: Duration, tokens: usize) {
        if tokens >= MIN_MEASURED_TOKENS {
            self.computed = Some(recent_mean(self.computed, took.div_f64(tokens as f64)));
        }
    }

    /// Notes how long it took to read so many tokens.
    pub fn note_read(&mut self, took: Duration, tokens: usize) {
        if tokens > 0 {
            self.read = Some(recent_mean(self.read, took.div_f64(tokens as f64)));
        }
    }

    /// Whether reading is not slower than computing.
    pub fn reading_pays(&mut self) -> bool {
        let (Some(read), Some(computed)) = (&mut self.read, self.computed) else {
            return true;
        };
        let pays = *read <= computed;
        if !pays {
            *read = read.mul_f64(PENALTY_DECAY);
        }
        pays
    }
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
