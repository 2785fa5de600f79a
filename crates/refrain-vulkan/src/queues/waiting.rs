//! Waits, timeline progress, and detection of lost and hanging devices.
//!
//! A timeline value is only trusted if it is possible. After a reset, some drivers signal everything or jump to the
//! maximum value, and waits succeed. No wait lasts longer than the stall timeout without a completed list.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Queues, lock};
use crate::backend::Failure;
use crate::buffer_uses::TimelinePoint;
use crate::error::Error;
use crate::queue::Queue;

/// Number of slices of the stall timeout. Counting slices instead of clock time means that a process that was suspended
/// loses only one slice.
const WAIT_SLICES: u32 = 16;
/// Pause between polls of a driver whose wait returns early.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

impl Queues {
    /// Whether the timeline is known to have reached the value. Does not ask the device.
    pub fn known_done(&self, queue: Queue, value: u64) -> bool {
        self.states[queue as usize].completed.load(Ordering::Acquire) >= value
    }

    /// Whether all work up to the point is known to be done. Does not ask the device.
    pub fn is_known_passed(&self, point: TimelinePoint) -> bool {
        // A lost device completes nothing more, so nothing needs to be kept for it.
        self.is_lost()
            || point
                .values()
                .iter()
                .all(|(queue, value)| self.known_done(*queue, *value))
    }

    /// Whether all work up to the point is done. If the device cannot tell, it is not.
    pub fn has_passed(&self, point: TimelinePoint) -> bool {
        let done = |(queue, value)| self.done(queue, value).unwrap_or(false);
        point.values().into_iter().all(done) || self.is_lost()
    }

    /// Reads the timeline of each queue that is not known to be idle.
    pub fn refresh(&self) {
        for queue in Queue::ALL {
            if !self.known_done(queue, self.upper_bound(queue)) {
                // On failure, the known value stays.
                let _ = self.update_completed(queue, self.backend.completed(queue));
            }
        }
    }

    /// Whether a submission has completed, for callers that poll.
    pub fn poll(&self, queue: Queue, value: u64) -> Result<bool, Error> {
        if !self.known_done(queue, value) {
            self.check()?;
            self.update_completed(queue, self.backend.poll(queue))?;
        }
        Ok(self.known_done(queue, value))
    }

    /// Blocks until the timeline has reached the value.
    pub fn wait(&self, queue: Queue, value: u64) -> Result<(), Error> {
        self.check()?;
        if !self.done(queue, value)? {
            let last = self.upper_bound(queue);
            if value > last {
                return Err(Error::NeverSubmitted { value, last });
            }
            self.counters.update(|counters| counters.waits += 1);
            self.block(queue, value)?;
        }
        self.retire(queue);
        Ok(())
    }

    /// Blocks until the timeline has reached the last value submitted.
    pub fn wait_for_last(&self, queue: Queue) -> Result<(), Error> {
        let last = *lock(&self.states[queue as usize].last);
        self.wait(queue, last)
    }

    /// Blocks until all work up to the point is done.
    pub fn wait_for_point(&self, point: TimelinePoint) -> Result<(), Error> {
        for (queue, value) in point.values() {
            if value > 0 {
                self.wait(queue, value)?;
            }
        }
        Ok(())
    }

    /// Whether the timeline has reached the value. Asks the device only if that is not known.
    fn done(&self, queue: Queue, value: u64) -> Result<bool, Error> {
        if !self.known_done(queue, value) {
            self.update_completed(queue, self.backend.completed(queue))?;
        }
        Ok(self.known_done(queue, value))
    }

    fn block(&self, queue: Queue, value: u64) -> Result<(), Error> {
        let slice = self.stall_timeout / WAIT_SLICES;
        let (mut idle, mut previous) = (0, self.completed());
        while idle < WAIT_SLICES {
            let woken = self.backend.wait(queue, value, slice);
            let woken = woken.map_err(|failure| self.error(failure))?;
            if self.done(queue, value)? {
                return Ok(());
            }
            if woken {
                std::thread::sleep(POLL_INTERVAL.min(slice));
            }
            self.refresh();
            let now = self.completed();
            idle = if now == previous { idle + 1 } else { 0 };
            previous = now;
        }
        // If the device is lost, this call may fail; otherwise the device hangs.
        self.check_device()?;
        self.stalled.store(true, Ordering::Release);
        Err(self.stall_error())
    }

    /// Returns the upper bound of the timeline value of a queue.
    fn upper_bound(&self, queue: Queue) -> u64 {
        self.states[queue as usize].upper_bound.load(Ordering::Acquire)
    }

    fn completed(&self) -> [u64; 2] {
        Queue::ALL.map(|queue| self.states[queue as usize].completed.load(Ordering::Acquire))
    }

    /// Updates the completed value from an answer of the driver.
    fn update_completed(&self, queue: Queue, answer: Result<u64, Failure>) -> Result<(), Error> {
        let value = answer.map_err(|failure| self.error(failure))?;
        if value > self.upper_bound(queue) {
            return Err(self.mark_lost());
        }
        if self.states[queue as usize].completed.fetch_max(value, Ordering::AcqRel) < value {
            self.stalled.store(false, Ordering::Release);
        }
        Ok(())
    }

    /// Whether the device is known to be lost.
    pub fn is_lost(&self) -> bool {
        self.lost.get().is_some()
    }

    /// Checks that the device is usable. Does not ask the driver.
    ///
    /// # Errors
    /// Fails if the device is known to be lost or was abandoned.
    pub fn check(&self) -> Result<(), Error> {
        match (self.lost.get(), self.abandoned.get()) {
            (Some(during), _) => Err(Error::DeviceLost { during: during.clone() }),
            (_, Some(during)) => Err(self.stalled_during(during.clone())),
            _ => Ok(()),
        }
    }

    /// Checks with the driver that the device still works.
    ///
    /// # Errors
    /// Fails if the device is lost.
    pub fn check_device(&self) -> Result<(), Error> {
        self.check()?;
        self.backend.status().map_err(|failure| self.error(failure))
    }

    /// Converts a failure to an error. Marks the device as lost if it is.
    pub fn error(&self, failure: Failure) -> Error {
        match failure {
            Failure::Lost => self.mark_lost(),
            other => other.into_error(),
        }
    }

    /// Marks the device as lost if the error says so, and completes the error.
    pub fn record_loss(&self, error: Error) -> Error {
        match error {
            Error::DeviceLost { .. } => self.mark_lost(),
            other => other,
        }
    }

    /// Marks the device as lost. From here on, every call fails with the same error.
    pub fn mark_lost(&self) -> Error {
        let during = self.lost.get_or_init(|| self.in_flight()).clone();
        Error::DeviceLost { during }
    }

    fn stall_error(&self) -> Error {
        self.stalled_during(self.in_flight())
    }

    fn stalled_during(&self, during: String) -> Error {
        let stall_timeout = self.stall_timeout;
        Error::Stalled { during, stall_timeout }
    }

    /// Describes the lists that have not completed, each name once.
    fn in_flight(&self) -> String {
        let mut names: Vec<(String, usize)> = Vec::new();
        for state in &self.states {
            let completed = state.completed.load(Ordering::Acquire);
            for list in lock(&state.in_flight).iter().filter(|list| list.value > completed) {
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

    /// Waits for all work and recycles all recordings. Objects of a hanging device are leaked until the process ends:
    /// it can neither be waited for nor be stopped.
    pub fn close(&self) {
        let completes = |queue| self.wait(queue, self.upper_bound(queue)).is_ok() || self.is_lost();
        let hangs = self.stalled.load(Ordering::Acquire) && {
            self.refresh();
            self.stalled.load(Ordering::Acquire)
        };
        if hangs || !Queue::ALL.into_iter().all(completes) {
            self.abandoned.get_or_init(|| self.in_flight());
            self.backend.abandon();
        } else {
            self.backend.wait_idle();
        }
        for state in &self.states {
            state.completed.fetch_max(*lock(&state.last), Ordering::AcqRel);
            lock(&state.in_flight).clear();
        }
    }
}
