//! How far the device has come, and whether it goes on at all.
//!
//! A timeline is believed only as far as it can be right: after a reset some drivers signal everything, or
//! count to the end of numbers, and waits succeed. No wait is longer than the device may go without ending
//! a single list.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Queues, lock};
use crate::backend::{Failure, Queue};
use crate::error::Error;
use crate::stamps::Moment;

/// Into how many slices the patience with the device is cut. Slices are counted, not the clock: a process
/// that was stopped for a while has lost but one.
const SLICES: u32 = 16;
/// Between two questions to a driver that answers at once, and wrongly.
const PAUSE: Duration = Duration::from_millis(1);

impl Queues {
    /// Whether the timeline is known to have reached the value, without asking the device.
    pub fn known_done(&self, queue: Queue, value: u64) -> bool {
        self.lanes[queue as usize].completed.load(Ordering::Acquire) >= value
    }

    /// Whether everything up to the moment is known to be done, without asking the device.
    pub fn is_known_past(&self, moment: Moment) -> bool {
        // A lost device finishes nothing any more, so nothing has to be kept for it.
        self.is_lost()
            || moment
                .values()
                .iter()
                .all(|(queue, value)| self.known_done(*queue, *value))
    }

    /// Whether everything up to the moment is done. What cannot be found out is not.
    pub fn is_past(&self, moment: Moment) -> bool {
        let done = |(queue, value)| self.done(queue, value).unwrap_or(false);
        moment.values().into_iter().all(done) || self.is_lost()
    }

    /// Asks the device once how far each queue is, where it is not known to be idle.
    pub fn refresh(&self) {
        for queue in Queue::BOTH {
            if !self.known_done(queue, self.due(queue)) {
                // What cannot be found out stays as it was.
                let _ = self.note(queue, self.backend.completed(queue));
            }
        }
    }

    /// Whether a submission has completed, asked by a caller who polls.
    pub fn poll(&self, queue: Queue, value: u64) -> Result<bool, Error> {
        if !self.known_done(queue, value) {
            self.check()?;
            self.note(queue, self.backend.poll(queue))?;
        }
        Ok(self.known_done(queue, value))
    }

    /// Blocks until the timeline has reached the value.
    pub fn wait(&self, queue: Queue, value: u64) -> Result<(), Error> {
        self.check()?;
        if !self.done(queue, value)? {
            let last = self.due(queue);
            if value > last {
                return Err(Error::NeverSubmitted { value, last });
            }
            self.tally.count(|counters| counters.waits += 1);
            self.block(queue, value)?;
        }
        self.retire(queue);
        Ok(())
    }

    /// Blocks until everything up to the moment is done.
    pub fn wait_until(&self, moment: Moment) -> Result<(), Error> {
        for (queue, value) in moment.values() {
            if value > 0 {
                self.wait(queue, value)?;
            }
        }
        Ok(())
    }

    /// Whether the timeline has reached the value; the device is asked only if that is not known.
    fn done(&self, queue: Queue, value: u64) -> Result<bool, Error> {
        if !self.known_done(queue, value) {
            self.note(queue, self.backend.completed(queue))?;
        }
        Ok(self.known_done(queue, value))
    }

    fn block(&self, queue: Queue, value: u64) -> Result<(), Error> {
        let slice = self.patience / SLICES;
        let (mut idle, mut before) = (0, self.completed());
        while idle < SLICES {
            let woken = self.backend.wait(queue, value, slice);
            let woken = woken.map_err(|failure| self.error(failure))?;
            if self.done(queue, value)? {
                return Ok(());
            }
            if woken {
                std::thread::sleep(PAUSE.min(slice));
            }
            self.refresh();
            let now = self.completed();
            idle = if now == before { idle + 1 } else { 0 };
            before = now;
        }
        // A lost device's calls may still fail; if they do not, it hangs.
        self.check_device()?;
        self.stalled.store(true, Ordering::Release);
        Err(self.stall())
    }

    /// The last value that a queue's timeline may reach.
    fn due(&self, queue: Queue) -> u64 {
        self.lanes[queue as usize].due.load(Ordering::Acquire)
    }

    fn completed(&self) -> [u64; 2] {
        Queue::BOTH.map(|queue| self.lanes[queue as usize].completed.load(Ordering::Acquire))
    }

    /// Takes the driver's word for how far a timeline is.
    fn note(&self, queue: Queue, answer: Result<u64, Failure>) -> Result<(), Error> {
        let value = answer.map_err(|failure| self.error(failure))?;
        if value > self.due(queue) {
            return Err(self.lose());
        }
        if self.lanes[queue as usize].completed.fetch_max(value, Ordering::AcqRel) < value {
            self.stalled.store(false, Ordering::Release);
        }
        Ok(())
    }

    /// Whether the device was lost, as far as is known.
    pub fn is_lost(&self) -> bool {
        self.lost.get().is_some()
    }

    /// # Errors
    /// If the device is known to be lost, or was left behind.
    pub fn check(&self) -> Result<(), Error> {
        match (self.lost.get(), self.abandoned.get()) {
            (Some(during), _) => Err(Error::DeviceLost { during: during.clone() }),
            (_, Some(during)) => Err(self.stalled_during(during.clone())),
            _ => Ok(()),
        }
    }

    /// Asks the driver whether the device still works.
    ///
    /// # Errors
    /// If it is lost.
    pub fn check_device(&self) -> Result<(), Error> {
        self.check()?;
        self.backend.status().map_err(|failure| self.error(failure))
    }

    /// The failure as an error; if the device was lost, with what was in flight.
    pub fn error(&self, failure: Failure) -> Error {
        match failure {
            Failure::Lost => self.lose(),
            other => other.plain(),
        }
    }

    /// An error that may not know of a loss yet.
    pub fn noted(&self, error: Error) -> Error {
        match error {
            Error::DeviceLost { .. } => self.lose(),
            other => other,
        }
    }

    /// Notes that the device is lost: from here on, everything fails alike.
    pub fn lose(&self) -> Error {
        let during = self.lost.get_or_init(|| self.in_flight()).clone();
        Error::DeviceLost { during }
    }

    fn stall(&self) -> Error {
        self.stalled_during(self.in_flight())
    }

    fn stalled_during(&self, during: String) -> Error {
        let patience = self.patience;
        Error::Stalled { during, patience }
    }

    /// The lists that have not completed, each name once.
    fn in_flight(&self) -> String {
        let mut names: Vec<(String, usize)> = Vec::new();
        for lane in &self.lanes {
            let completed = lane.completed.load(Ordering::Acquire);
            for list in lock(&lane.in_flight).iter().filter(|list| list.value > completed) {
                let (name, regions) = (&list.list.name, list.list.regions.join(", "));
                let name = if regions.is_empty() {
                    format!("{name:?}")
                } else {
                    format!("{name:?} (regions {regions})")
                };
                match names.iter_mut().find(|(known, _)| *known == name) {
                    Some((_, times)) => *times += 1,
                    None => names.push((name, 1)),
                }
            }
        }
        let times = |(name, times): (String, usize)| match times {
            1 => name,
            times => format!("{name} ({times} times)"),
        };
        if names.is_empty() {
            "no command list".to_owned()
        } else {
            names.into_iter().map(times).collect::<Vec<_>>().join(", ")
        }
    }

    /// Waits for everything and gives all recordings back. What a device that stands still may be using stays
    /// as it is until the process ends: it cannot be waited for, nor taken from it.
    pub fn close(&self) {
        let ends = |queue| self.wait(queue, self.due(queue)).is_ok() || self.is_lost();
        let stands = self.stalled.load(Ordering::Acquire) && {
            self.refresh();
            self.stalled.load(Ordering::Acquire)
        };
        if stands || !Queue::BOTH.into_iter().all(ends) {
            self.abandoned.get_or_init(|| self.in_flight());
            self.backend.abandon();
        } else {
            self.backend.wait_idle();
        }
        for lane in &self.lanes {
            lane.completed.fetch_max(*lock(&lane.last), Ordering::AcqRel);
            lock(&lane.in_flight).clear();
        }
    }
}
