//! Command lists after translation, from their first submission to their last.

use std::sync::Arc;

use crate::backend::{Backend, Queue, RawRecording};
use crate::command::Command;
use crate::counters::Counters;
use crate::stamps::SharedUses;

/// A translated command list. Its command buffer is given back when nobody holds this any more: neither
/// the caller nor the queue that runs it.
pub(crate) struct Translated {
    pub backend: Arc<dyn Backend>,
    pub raw: RawRecording,
    /// The list's name.
    pub name: String,
    /// The list's regions, in order.
    pub regions: Vec<String>,
    /// What one submission of it adds to the counters.
    pub cost: Cost,
}

/// What one submission of a command list adds to the counters.
#[derive(Clone, Copy, Default)]
pub(crate) struct Cost {
    dispatches: u64,
    barriers: u64,
    copies: u64,
}

impl Cost {
    pub fn of(commands: &[Command], host_reads: bool) -> Self {
        let mut cost = Self {
            // Each recording begins with one that orders it after its predecessors.
            barriers: 1 + u64::from(host_reads),
            ..Self::default()
        };
        for command in commands {
            match command {
                Command::Dispatch { .. } | Command::DispatchIndirect { .. } => cost.dispatches += 1,
                Command::Barrier | Command::FullBarrier => cost.barriers += 1,
                Command::Copy { bytes, .. } => cost.copies += u64::from(*bytes > 0),
                Command::Timestamp { .. } => {}
            }
        }
        cost
    }

    pub fn add_to(self, counters: &mut Counters) {
        counters.batches += 1;
        counters.dispatches += self.dispatches;
        counters.barriers += self.barriers;
        counters.copies += self.copies;
    }
}

impl Drop for Translated {
    fn drop(&mut self) {
        self.backend.recycle(self.raw);
    }
}

/// A command list translated once, for any number of submissions, of which several may be in flight.
pub struct Recording {
    pub(crate) translated: Arc<Translated>,
    /// Shared by recordings of one list.
    pub(crate) uses: Arc<SharedUses>,
}

impl Recording {
    pub(crate) fn new(translated: Arc<Translated>, uses: Arc<SharedUses>) -> Self {
        debug_assert_eq!(translated.raw.queue, Queue::Compute);
        Self { translated, uses }
    }
}

impl std::fmt::Debug for Recording {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "recording {:?}", self.translated.name)
    }
}
