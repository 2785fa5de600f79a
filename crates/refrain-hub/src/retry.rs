//! What to do after a failure: wait longer and longer, and know when to give up.

use std::thread;
use std::time::Duration;

use crate::{Error, Watcher};

/// Failures in a row, with nothing gained between them, after which nothing more is tried.
const MAX_FAILURES: u32 = 5;
/// The same where this computer has no network, and never had since the undertaking began.
const MAX_FAILURES_OFFLINE: u32 = 2;
/// The longest wait that doubling leads to.
const MAX_WAIT: Duration = Duration::from_secs(30);
/// The longest wait that a server may ask for; beyond it the user decides.
const MAX_ASKED_WAIT: Duration = Duration::from_secs(300);

/// Why an attempt failed.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// Trying again may help.
    Passing {
        /// What went wrong.
        reason: String,
        /// How long the server asks to wait.
        wait: Option<Duration>,
    },
    /// Trying again helps once this computer has a network.
    NoNetwork {
        /// What went wrong.
        reason: String,
    },
    /// Trying again cannot help.
    Final(Error),
}

impl Trouble {
    /// Trouble of which the server said nothing.
    pub fn passing(reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self::Passing { reason, wait: None }
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Final(error)
    }
}

/// Counts the failures of one undertaking.
pub(crate) struct Patience<'a> {
    what: &'a str,
    first_wait: Duration,
    watcher: &'a dyn Watcher,
    failures: u32,
    /// Whether anything was gained yet.
    gained: bool,
}

impl<'a> Patience<'a> {
    pub fn new(what: &'a str, first_wait: Duration, watcher: &'a dyn Watcher) -> Self {
        Self {
            what,
            first_wait,
            watcher,
            failures: 0,
            gained: false,
        }
    }

    /// Something was gained: failures are counted anew.
    pub fn renew(&mut self) {
        self.failures = 0;
        self.gained = true;
    }

    /// Waits before the next attempt, and says so.
    ///
    /// # Errors
    /// If there should be no next attempt.
    pub fn after(&mut self, trouble: Trouble) -> Result<(), Error> {
        let (reason, asked, most) = match trouble {
            Trouble::Final(error) => return Err(error),
            Trouble::Passing { reason, wait } => (reason, wait, MAX_FAILURES),
            Trouble::NoNetwork { reason } if self.gained => (reason, None, MAX_FAILURES),
            Trouble::NoNetwork { reason } => (reason, None, MAX_FAILURES_OFFLINE),
        };
        self.failures += 1;
        let too_long = asked.is_some_and(|wait| wait > MAX_ASKED_WAIT);
        if self.failures >= most || too_long {
            let reason = match asked {
                Some(wait) => format!("{reason} (it asks to wait {} s)", wait.as_secs()),
                None => reason,
            };
            return Err(Error::GaveUp {
                what: self.what.to_owned(),
                reason,
                attempts: self.failures,
            });
        }
        let wait = asked.unwrap_or_else(|| (self.first_wait * (1 << (self.failures - 1))).min(MAX_WAIT));
        self.watcher.notice(&format!(
            "{}: {reason}; trying again in {:.1} s",
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
    struct Notices(Mutex<Vec<String>>);

    impl Watcher for Notices {
        fn notice(&self, line: &str) {
            self.0.lock().unwrap().push(line.to_owned());
        }
    }

    #[test]
    fn waits_double_and_end() {
        let notices = Notices::default();
        let mut patience = Patience::new("x", Duration::from_millis(1), &notices);
        patience.first_wait = Duration::from_millis(100);
        assert!(patience.after(Trouble::passing("cut")).is_ok());
        assert!(patience.after(Trouble::passing("cut")).is_ok());
        let lines = notices.0.lock().unwrap().clone();
        assert_eq!(
            lines,
            ["x: cut; trying again in 0.1 s", "x: cut; trying again in 0.2 s"]
        );
        patience.first_wait = Duration::ZERO;
        assert!(patience.after(Trouble::passing("cut")).is_ok());
        patience.renew();
        for _ in 0..4 {
            assert!(patience.after(Trouble::passing("cut")).is_ok());
        }
        let error = patience.after(Trouble::passing("cut")).unwrap_err().to_string();
        assert!(error.contains("5 attempts"), "{error}");
    }

    #[test]
    fn without_a_network_little_is_tried_unless_there_was_one() {
        let none = || Trouble::NoNetwork {
            reason: "no address".to_owned(),
        };
        let mut patience = Patience::new("x", Duration::ZERO, &());
        assert!(patience.after(none()).is_ok());
        assert!(patience.after(none()).is_err());
        patience.renew();
        (1..MAX_FAILURES).for_each(|_| assert!(patience.after(none()).is_ok()));
        assert!(patience.after(none()).is_err());
    }

    #[test]
    fn a_wait_of_hours_is_left_to_the_user() {
        let mut patience = Patience::new("x", Duration::ZERO, &());
        let trouble = Trouble::Passing {
            reason: "busy".to_owned(),
            wait: Some(Duration::from_secs(7200)),
        };
        let error = patience.after(trouble).unwrap_err().to_string();
        assert!(error.contains("7200 s"), "{error}");
    }
}
