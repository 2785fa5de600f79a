//! Recorded command lists, which can be submitted any number of times.

use std::sync::Arc;

use crate::backend::{Backend, RawRecording};
use crate::command::Command;
use crate::counters::Counters;
use crate::queue::Queue;
use crate::recording_uses::RecordingUses;

/// A recorded command list. Its command buffer is recycled once neither the caller nor the queue that runs it holds a
/// reference.
pub(crate) struct RecordedList {
    pub backend: Arc<dyn Backend>,
    pub raw: RawRecording,
    /// Name of the list.
    pub name: String,
    /// Regions of the list, in order.
    pub regions: Vec<String>,
    /// What one submission of a command list adds to the counters.
    pub counts: CommandCounts,
}

/// What one submission of a command list adds to the counters.
#[derive(Clone, Copy, Default)]
pub(crate) struct CommandCounts {
    dispatches: u64,
    barriers: u64,
    copies: u64,
}

impl CommandCounts {
    pub fn of(commands: &[Command], host_reads: bool) -> Self {
        let mut counts = Self {
            // Each recording begins with a barrier that orders it after earlier ones.
            barriers: 1 + u64::from(host_reads),
            ..Self::default()
        };
        for command in commands {
            match command {
                Command::Dispatch { .. } | Command::DispatchIndirect { .. } => counts.dispatches += 1,
                Command::Barrier | Command::FullBarrier => counts.barriers += 1,
                Command::Copy { bytes, .. } => counts.copies += u64::from(*bytes > 0),
                Command::Timestamp { .. } => {}
            }
        }
        counts
    }

    pub fn add_to(self, counters: &mut Counters) {
        counters.batches += 1;
        counters.dispatches += self.dispatches;
        counters.barriers += self.barriers;
        counters.copies += self.copies;
    }
}

impl Drop for RecordedList {
    fn drop(&mut self) {
        self.backend.recycle(self.raw);
    }
}

/// A command list recorded once for any number of submissions, several of which may be in flight.
pub struct Recording {
    pub(crate) recorded: Arc<RecordedList>,
    /// Shared by all recordings of one list.
    pub(crate) uses: Arc<RecordingUses>,
}

impl Recording {
    pub(crate) fn new(recorded: Arc<RecordedList>, uses: Arc<RecordingUses>) -> Self {
        debug_assert_eq!(recorded.raw.queue, Queue::Compute);
        Self { recorded, uses }
    }
}

impl std::fmt::Debug for Recording {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "recording {:?}", self.recorded.name)
    }
}
