//! When buffers were last used, as values of the queues' timelines.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::backend::Queue;
use crate::command::Access;
use crate::memory::Buffer;

/// Buffers that a list uses, and how.
pub(crate) type Uses = [(Buffer, Access)];

/// A value of each queue's timeline; 0 is before everything.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Moment([u64; 2]);

impl Moment {
    pub fn of(self, queue: Queue) -> u64 {
        self.0[queue as usize]
    }

    pub fn values(self) -> [(Queue, u64); 2] {
        Queue::BOTH.map(|queue| (queue, self.of(queue)))
    }

    fn max(self, other: Moment) -> Moment {
        Moment(Queue::BOTH.map(|queue| self.of(queue).max(other.of(queue))))
    }
}

#[derive(Debug, Default)]
struct Stamp([AtomicU64; 2]);

impl Stamp {
    fn moment(&self) -> Moment {
        Moment(Queue::BOTH.map(|queue| self.0[queue as usize].load(Ordering::Acquire)))
    }

    fn raise(&self, to: Moment) {
        for (queue, value) in to.values() {
            self.0[queue as usize].fetch_max(value, Ordering::AcqRel);
        }
    }
}

/// When a buffer was last used.
#[derive(Debug, Default)]
pub(crate) struct Stamps {
    used: Stamp,
    written: Stamp,
    /// Those of recordings that use it.
    shared: Mutex<Vec<(Arc<Stamp>, Access)>>,
}

impl Stamps {
    /// By any submission.
    pub fn used(&self) -> Moment {
        self.last(&self.used, |_| true)
    }

    /// By a submission that writes it.
    pub fn written(&self) -> Moment {
        self.last(&self.written, |access| access == Access::Write)
    }

    fn last(&self, own: &Stamp, counts: impl Fn(Access) -> bool) -> Moment {
        let shared = self.shared.lock().unwrap_or_else(|broken| broken.into_inner());
        let counting = shared.iter().filter(|(_, access)| counts(*access));
        counting.fold(own.moment(), |last, (stamp, _)| last.max(stamp.moment()))
    }

    /// Notes a submission.
    pub fn raise(&self, access: Access, queue: Queue, value: u64) {
        let mut moment = Moment::default();
        moment.0[queue as usize] = value;
        self.raise_to(access, moment);
    }

    fn raise_to(&self, access: Access, moment: Moment) {
        self.used.raise(moment);
        if access == Access::Write {
            self.written.raise(moment);
        }
    }
}

/// What recordings of one list use: stamped all at once, since a decode step uses hundreds of buffers and is
/// submitted for every few tokens.
pub(crate) struct SharedUses {
    uses: Box<Uses>,
    stamp: Arc<Stamp>,
    /// The transfer queue's last submission when these recordings were last submitted, and one more.
    after: AtomicU64,
}

impl SharedUses {
    pub fn new(uses: Vec<(Buffer, Access)>) -> Self {
        let stamp = Arc::new(Stamp::default());
        for (buffer, access) in &uses {
            let shared = &buffer.stamps().shared;
            let mut shared = shared.lock().unwrap_or_else(|broken| broken.into_inner());
            shared.push((stamp.clone(), *access));
        }
        Self {
            uses: uses.into(),
            stamp,
            after: AtomicU64::new(0),
        }
    }

    pub fn all(&self) -> &Uses {
        &self.uses
    }

    /// Whether they were submitted when the transfer queue's last submission was already `transfer`: there is
    /// nothing new then that they would have to wait for.
    pub fn ran_after(&self, transfer: u64) -> bool {
        self.after.load(Ordering::Acquire) == transfer + 1
    }

    /// Notes a submission behind what the transfer queue did until `transfer`.
    pub fn raise(&self, queue: Queue, value: u64, transfer: u64) {
        let mut moment = Moment::default();
        moment.0[queue as usize] = value;
        self.stamp.raise(moment);
        self.after.store(transfer + 1, Ordering::Release);
    }
}

impl Drop for SharedUses {
    fn drop(&mut self) {
        // What is under way is still to be waited for.
        for (buffer, access) in &self.uses {
            let stamps = buffer.stamps();
            stamps.raise_to(*access, self.stamp.moment());
            let mut shared = stamps.shared.lock().unwrap_or_else(|broken| broken.into_inner());
            shared.retain(|(stamp, _)| !Arc::ptr_eq(stamp, &self.stamp));
        }
    }
}
