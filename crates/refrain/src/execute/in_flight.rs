//! A limit on the command lists of one evaluation that are in flight.
//!
//! A queue runs submissions in order. If one caller submitted a whole prompt at once, all other callers' tokens would
//! wait behind it. So each evaluation keeps a few lists in flight, and others' lists run in between.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use refrain_vulkan::{Device, Submission};

use crate::Error;

/// Maximum time that the lists in flight may take, unless these are only [`MIN_LISTS`].
const MAX_QUEUED_TIME: Duration = Duration::from_millis(50);
/// Minimum lists in flight: one runs and one is queued, so that the device never waits for the host.
const MIN_LISTS: usize = 2;
/// Maximum lists in flight. If lists are so short that more would fit, more would cost the host more than it helps.
const MAX_LISTS: usize = 32;

/// The running average of the time that a list of a plan takes, once one was measured.
#[derive(Default)]
pub(super) struct InFlightLimit(Mutex<Option<Duration>>);

impl InFlightLimit {
    fn lists(&self) -> usize {
        let list = *self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let fit = |list: Duration| MAX_QUEUED_TIME.as_nanos() / list.as_nanos().max(1);
        list.map_or(MIN_LISTS, |list| {
            fit(list).clamp(MIN_LISTS as u128, MAX_LISTS as u128) as usize
        })
    }

    fn record_time(&self, time: Duration) {
        let mut list = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        *list = Some(list.map_or(time, |list| (3 * list + time) / 4));
    }
}

/// The lists of one evaluation that were submitted and are not known to be done.
pub(super) struct InFlight<'a> {
    device: &'a Device,
    limit: &'a InFlightLimit,
    lists: VecDeque<Submission>,
    /// When a list was last seen to end.
    ended: Option<Instant>,
}

impl<'a> InFlight<'a> {
    pub fn new(device: &'a Device, limit: &'a InFlightLimit) -> Self {
        InFlight {
            device,
            limit,
            lists: VecDeque::new(),
            ended: None,
        }
    }

    /// Blocks until another list may be submitted.
    ///
    /// # Errors
    /// Fails if the device fails.
    pub fn wait_for_room(&mut self) -> Result<(), Error> {
        while self.lists.len() >= self.limit.lists() {
            let Some(oldest) = self.lists.pop_front() else {
                break;
            };
            self.device.wait(&oldest)?;
            let now = Instant::now();
            if let Some(before) = self.ended.replace(now) {
                self.limit.record_time(now - before);
            }
        }
        Ok(())
    }

    pub fn add(&mut self, list: Submission) {
        self.lists.push_back(list);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_lists_raise_the_limit() {
        let limit = InFlightLimit::default();
        assert_eq!(limit.lists(), 2, "no list was measured yet");
        limit.record_time(Duration::from_millis(5));
        assert_eq!(limit.lists(), 10);
        (0..40).for_each(|_| limit.record_time(Duration::from_secs(1)));
        assert_eq!(limit.lists(), 2);
        (0..400).for_each(|_| limit.record_time(Duration::ZERO));
        assert_eq!(limit.lists(), 32);
    }
}
