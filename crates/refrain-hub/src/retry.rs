//! Retries after a failure: exponential backoff with a limit on attempts.

use std::thread;
use std::time::Duration;

use crate::{Error, Watcher};

/// Maximum number of consecutive failures without progress.
const MAX_FAILURES: u32 = 5;
/// The same when this computer has no network and the operation has made no progress yet.
const MAX_FAILURES_OFFLINE: u32 = 2;
/// Maximum wait of the exponential backoff.
const MAX_WAIT: Duration = Duration::from_secs(30);
/// Maximum wait that a server may ask for. Beyond it the operation fails, and the user decides.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(300);

/// Why an attempt failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A retry may succeed.
    Transient {
        /// What went wrong.
        reason: String,
        /// Wait that the server asks for.
        wait: Option<Duration>,
    },
    /// A retry succeeds only when this computer has a network.
    NoNetwork {
        /// What went wrong.
        reason: String,
    },
    /// A retry cannot succeed.
    Permanent(Error),
}

impl Failure {
    /// A transient failure without a wait from the server.
    pub fn transient(reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self::Transient { reason, wait: None }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Permanent(error)
    }
}

/// Counts the failures of one operation and waits between attempts.
pub(crate) struct Backoff<'a> {
    what: &'a str,
    initial_backoff: Duration,
    watcher: &'a dyn Watcher,
    failures: u32,
    /// Whether the operation has made progress yet.
    progressed: bool,
}

impl<'a> Backoff<'a> {
    pub fn new(what: &'a str, initial_backoff: Duration, watcher: &'a dyn Watcher) -> Self {
        Self {
            what,
            initial_backoff,
            watcher,
            failures: 0,
            progressed: false,
        }
    }

    /// Resets the count of failures after progress.
    pub fn reset(&mut self) {
        self.failures = 0;
        self.progressed = true;
    }

    /// Waits before the next attempt, and sends a notice.
    ///
    /// # Errors
    /// If there should be no further attempt.
    pub fn wait_after(&mut self, failure: Failure) -> Result<(), Error> {
        let (reason, asked, max_failures) = match failure {
            Failure::Permanent(error) => return Err(error),
            Failure::Transient { reason, wait } => (reason, wait, MAX_FAILURES),
            Failure::NoNetwork { reason } if self.progressed => (reason, None, MAX_FAILURES),
            Failure::NoNetwork { reason } => (reason, None, MAX_FAILURES_OFFLINE),
        };
        self.failures += 1;
        let too_long = asked.is_some_and(|wait| wait > MAX_RETRY_AFTER);
        if self.failures >= max_failures || too_long {
            let reason = match asked {
                Some(wait) => format!("{reason} (the server asks to wait {} s)", wait.as_secs()),
                None => reason,
            };
            return Err(Error::GaveUp {
                what: self.what.to_owned(),
                reason,
                attempts: self.failures,
            });
        }
        let wait = asked.unwrap_or_else(|| (self.initial_backoff * (1 << (self.failures - 1))).min(MAX_WAIT));
        self.watcher.notice(&format!(
            "{}: {reason}; retrying in {:.1} s",
            self.what,
            wait.as_secs_f64()
        ));
        thread::sleep(wait);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Default)]
    struct RecordingWatcher(Mutex<Vec<String>>);

    impl Watcher for RecordingWatcher {
        fn notice(&self, line: &str) {
            self.0.lock().unwrap().push(line.to_owned());
        }
    }

    #[test]
    fn waits_double_until_the_limit_of_attempts() {
        let notices = RecordingWatcher::default();
        let mut backoff = Backoff::new("x", Duration::from_millis(1), &notices);
        backoff.initial_backoff = Duration::from_millis(100);
        assert!(backoff.wait_after(Failure::transient("cut")).is_ok());
        assert!(backoff.wait_after(Failure::transient("cut")).is_ok());
        let lines = notices.0.lock().unwrap().clone();
        assert_eq!(lines, ["x: cut; retrying in 0.1 s", "x: cut; retrying in 0.2 s"]);
        backoff.initial_backoff = Duration::ZERO;
        assert!(backoff.wait_after(Failure::transient("cut")).is_ok());
        backoff.reset();
        for _ in 0..4 {
            assert!(backoff.wait_after(Failure::transient("cut")).is_ok());
        }
        let error = backoff.wait_after(Failure::transient("cut")).unwrap_err().to_string();
        assert!(error.contains("5 attempts"), "{error}");
    }

    #[test]
    fn gives_up_early_without_a_network_unless_there_was_one() {
        let none = || Failure::NoNetwork {
            reason: "no address".to_owned(),
        };
        let mut backoff = Backoff::new("x", Duration::ZERO, &());
        assert!(backoff.wait_after(none()).is_ok());
        assert!(backoff.wait_after(none()).is_err());
        backoff.reset();
        (1..MAX_FAILURES).for_each(|_| assert!(backoff.wait_after(none()).is_ok()));
        assert!(backoff.wait_after(none()).is_err());
    }

    #[test]
    fn rejects_a_wait_of_hours() {
        let mut backoff = Backoff::new("x", Duration::ZERO, &());
        let failure = Failure::Transient {
            reason: "busy".to_owned(),
            wait: Some(Duration::from_secs(7200)),
        };
        let error = backoff.wait_after(failure).unwrap_err().to_string();
        assert!(error.contains("7200 s"), "{error}");
    }
}
