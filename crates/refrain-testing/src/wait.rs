//! Waiting for what others do.

use std::time::{Duration, Instant};

/// Far longer than anything takes that a test waits for, on a machine that does much else.
const LONGEST: Duration = Duration::from_secs(60);

/// Waits until `is_so`, looking often.
///
/// # Panics
///
/// Panics with `what`, if it is not so after a minute: a test never waits for ever.
#[track_caller]
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < LONGEST, "waited for {LONGEST:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_ends_as_soon_as_it_is_so() {
        let mut looks = 0;
        wait_until("three looks", || {
            looks += 1;
            looks == 3
        });
        assert_eq!(looks, 3);
    }
}
