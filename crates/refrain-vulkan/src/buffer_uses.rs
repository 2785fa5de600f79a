//! Tracks when buffers were last used, as timeline values of the queues.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::access::Access;
use crate::queue::Queue;

/// A timeline value for each queue; 0 is before all submissions.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct TimelinePoint([u64; 2]);

impl TimelinePoint {
    /// A point on the timeline of one queue.
    pub fn at(queue: Queue, value: u64) -> Self {
        let mut point = Self::default();
        point.0[queue as usize] = value;
        point
    }

    pub fn of(self, queue: Queue) -> u64 {
        self.0[queue as usize]
    }

    pub fn values(self) -> [(Queue, u64); 2] {
        Queue::ALL.map(|queue| (queue, self.of(queue)))
    }

    fn max(self, other: TimelinePoint) -> TimelinePoint {
        TimelinePoint(Queue::ALL.map(|queue| self.of(queue).max(other.of(queue))))
    }
}

/// A [`TimelinePoint`] that several threads may raise.
#[derive(Debug, Default)]
pub(crate) struct AtomicPoint([AtomicU64; 2]);

impl AtomicPoint {
    pub fn load(&self) -> TimelinePoint {
        TimelinePoint(Queue::ALL.map(|queue| self.0[queue as usize].load(Ordering::Acquire)))
    }

    pub fn raise(&self, to: TimelinePoint) {
        for (queue, value) in to.values() {
            self.0[queue as usize].fetch_max(value, Ordering::AcqRel);
        }
    }
}

/// The last uses of a buffer.
#[derive(Debug, Default)]
pub(crate) struct BufferUses {
    used: AtomicPoint,
    written: AtomicPoint,
    /// Points of the recordings that use it.
    shared: Mutex<Vec<(Arc<AtomicPoint>, Access)>>,
}

impl BufferUses {
    /// Returns the last use by any submission.
    pub fn used(&self) -> TimelinePoint {
        self.last(&self.used, |_| true)
    }

    /// Returns the last use by a submission that writes the buffer.
    pub fn written(&self) -> TimelinePoint {
        self.last(&self.written, |access| access == Access::Write)
    }

    fn last(&self, own: &AtomicPoint, counts: impl Fn(Access) -> bool) -> TimelinePoint {
        let shared = self.shared.lock().unwrap_or_else(|broken| broken.into_inner());
        let counting = shared.iter().filter(|(_, access)| counts(*access));
        counting.fold(own.load(), |last, (point, _)| last.max(point.load()))
    }

    /// Records a use by a submission.
    pub fn raise(&self, access: Access, queue: Queue, value: u64) {
        self.raise_to(access, TimelinePoint::at(queue, value));
    }

    fn raise_to(&self, access: Access, point: TimelinePoint) {
        self.used.raise(point);
        if access == Access::Write {
            self.written.raise(point);
        }
    }

    /// Adds the point of a recording that uses the buffer.
    pub fn attach(&self, point: Arc<AtomicPoint>, access: Access) {
        let mut shared = self.shared.lock().unwrap_or_else(|broken| broken.into_inner());
        shared.push((point, access));
    }

    /// Removes the point of a recording, keeping its last use.
    pub fn detach(&self, point: &Arc<AtomicPoint>, access: Access) {
        self.raise_to(access, point.load());
        let mut shared = self.shared.lock().unwrap_or_else(|broken| broken.into_inner());
        shared.retain(|(other, _)| !Arc::ptr_eq(other, point));
    }
}
