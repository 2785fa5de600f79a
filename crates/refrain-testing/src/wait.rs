//! Waiting for conditions with a timeout.

use std::time::{Duration, Instant};

/// Timeout of [`wait_until`]: far longer than any wait of a test on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Waits until `condition` holds, polling every 5 ms.
///
/// # Panics
///
/// Panics with `what` if the condition does not hold after a minute, so that a test never hangs.
#[track_caller]
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < TIMEOUT, "timed out after {TIMEOUT:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_ends_when_the_condition_holds() {
        let mut polls = 0;
        wait_until("three polls", || {
            polls += 1;
            polls == 3
        });
        assert_eq!(polls, 3);
    }
}
