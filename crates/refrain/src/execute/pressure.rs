//! Back-pressure: how many lists of one evaluation may be under way.
//!
//! A queue runs what it is given in order. A caller who hands over a whole prompt at once would keep everybody
//! else's tokens waiting behind it; so each has a few lists there, and others' come between them.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use refrain_vulkan::{Device, Submission};

use crate::Error;

/// How long the device may be busy with what one caller has given it, unless that are but two lists.
const LONGEST: Duration = Duration::from_millis(50);
/// One runs, and the next stands by: the device never waits for the host.
const FEWEST: usize = 2;
/// Lists so short that more would be needed cost the host more than they keep others waiting.
const MOST: usize = 32;

/// How long lists of a plan take, once that is known.
#[derive(Default)]
pub(super) struct Pressure(Mutex<Option<Duration>>);

impl Pressure {
    fn lists(&self) -> usize {
        let list = *self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let fit = |list: Duration| LONGEST.as_nanos() / list.as_nanos().max(1);
        list.map_or(FEWEST, |list| fit(list).clamp(FEWEST as u128, MOST as u128) as usize)
    }

    fn took(&self, time: Duration) {
        let mut list = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        *list = Some(list.map_or(time, |list| (3 * list + time) / 4));
    }
}

/// The lists of one evaluation that were submitted and not seen to end.
pub(super) struct UnderWay<'a> {
    device: &'a Device,
    pressure: &'a Pressure,
    lists: VecDeque<Submission>,
    /// When one was last seen to end.
    ended: Option<Instant>,
}

impl<'a> UnderWay<'a> {
    pub fn new(device: &'a Device, pressure: &'a Pressure) -> Self {
        UnderWay {
            device,
            pressure,
            lists: VecDeque::new(),
            ended: None,
        }
    }

    /// Blocks until one list more may be submitted.
    ///
    /// # Errors
    /// If the device fails.
    pub fn make_room(&mut self) -> Result<(), Error> {
        while self.lists.len() >= self.pressure.lists() {
            let Some(oldest) = self.lists.pop_front() else {
                break;
            };
            self.device.wait(&oldest)?;
            let now = Instant::now();
            if let Some(before) = self.ended.replace(now) {
                self.pressure.took(now - before);
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
    fn short_lists_may_be_more_than_two() {
        let pressure = Pressure::default();
        assert_eq!(pressure.lists(), 2, "nothing is known of them");
        pressure.took(Duration::from_millis(5));
        assert_eq!(pressure.lists(), 10);
        (0..40).for_each(|_| pressure.took(Duration::from_secs(1)));
        assert_eq!(pressure.lists(), 2);
        (0..400).for_each(|_| pressure.took(Duration::ZERO));
        assert_eq!(pressure.lists(), 32);
    }
}
