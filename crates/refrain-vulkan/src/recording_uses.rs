//! The buffers used by recordings of a list, marked as used all at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::access::Access;
use crate::buffer_uses::{AtomicPoint, TimelinePoint};
use crate::memory::Buffer;
use crate::queue::Queue;

/// The buffers that a list uses, with their access.
pub(crate) type Uses = [(Buffer, Access)];

/// The buffers that all recordings of a list use. One shared point marks them all at once, since a decode step uses
/// hundreds of buffers and is submitted every few tokens.
pub(crate) struct RecordingUses {
    uses: Box<Uses>,
    point: Arc<AtomicPoint>,
    /// Last submission of the transfer queue when these recordings were last submitted, plus 1.
    after: AtomicU64,
}

impl RecordingUses {
    pub fn new(uses: Vec<(Buffer, Access)>) -> Self {
        let point = Arc::new(AtomicPoint::default());
        for (buffer, access) in &uses {
            buffer.uses().attach(point.clone(), *access);
        }
        Self {
            uses: uses.into(),
            point,
            after: AtomicU64::new(0),
        }
    }

    pub fn all(&self) -> &Uses {
        &self.uses
    }

    /// Whether these were submitted after submission `transfer` of the transfer queue. Then they need to wait for
    /// nothing new.
    pub fn ran_after(&self, transfer: u64) -> bool {
        self.after.load(Ordering::Acquire) == transfer + 1
    }

    /// Records a submission that comes after submission `transfer` of the transfer queue.
    pub fn raise(&self, queue: Queue, value: u64, transfer: u64) {
        self.point.raise(TimelinePoint::at(queue, value));
        self.after.store(transfer + 1, Ordering::Release);
    }
}

impl Drop for RecordingUses {
    fn drop(&mut self) {
        // Submissions in flight must still be waited for.
        for (buffer, access) in &self.uses {
            buffer.uses().detach(&self.point, *access);
        }
    }
}
