//! How long a wait for the device polls before it blocks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Waking from a blocking wait takes 30 to 300 µs, so short waits poll.
const SHORT: Duration = Duration::from_micros(100);

/// A program that generates tokens waits for each of them. If such waits last a millisecond, waking would be a tenth of
/// a token's time, so they poll to their end.
const LONGEST: Duration = Duration::from_millis(2);

/// One of this many parts of the mean is the last wait.
const PARTS: u64 = 8;

/// Decides it by how long recent waits took.
pub(super) struct Polling {
    is_allowed: bool,
    /// The mean of recent waits.
    mean_ns: AtomicU64,
}

impl Polling {
    /// A software driver needs the CPU itself, so waits for it do not poll.
    pub fn new(is_software: bool) -> Polling {
        Polling {
            is_allowed: !is_software,
            mean_ns: AtomicU64::new(0),
        }
    }

    /// How long the next wait polls.
    pub fn limit(&self) -> Duration {
        let usual = Duration::from_nanos(2 * self.mean_ns.load(Ordering::Relaxed));
        match self.is_allowed {
            false => Duration::ZERO,
            true if usual <= LONGEST => usual.max(SHORT),
            true => SHORT,
        }
    }

    /// Counts a wait that is over.
    pub fn waited(&self, time: Duration) {
        // Long waits are not told apart, so that some short ones after them poll again.
        let time = time.min(2 * LONGEST).as_nanos() as u64;
        let mean = self.mean_ns.load(Ordering::Relaxed);
        self.mean_ns
            .store((mean * (PARTS - 1) + time) / PARTS, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(waits: &[u64]) -> Duration {
        let polling = Polling::new(false);
        waits.iter().for_each(|&us| polling.waited(Duration::from_micros(us)));
        polling.limit()
    }

    #[test]
    fn waits_poll_to_their_end_while_they_are_short() {
        assert_eq!(after(&[]), SHORT);
        assert_eq!(after(&[10; 50]), SHORT);
        let limit = after(&[700; 50]);
        assert!(limit > Duration::from_micros(1000) && limit <= LONGEST, "{limit:?}");
        assert_eq!(after(&[5_000; 50]), SHORT);
        let again = [[10_000_000; 50], [700; 50]].concat();
        assert!(after(&again) > Duration::from_micros(1000));
    }

    #[test]
    fn waits_for_a_software_driver_do_not_poll() {
        let polling = Polling::new(true);
        polling.waited(Duration::from_micros(700));
        assert_eq!(polling.limit(), Duration::ZERO);
    }
}
