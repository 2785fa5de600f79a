//! Counters of what the runtime did since the device was opened.

use std::ops::Sub;
use std::sync::Mutex;

use crate::class::MemoryClass;

/// A snapshot; subtract an earlier one for what happened between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// `vkQueueSubmit2` calls, on any queue.
    pub submits: u64,
    /// `VkSubmitInfo2` batches in those calls.
    pub batches: u64,
    /// Of the submits, those that carry uploads and read-backs and no command list.
    pub transfer_submits: u64,
    /// `vkCmdDispatch` and `vkCmdDispatchIndirect` commands submitted.
    pub dispatches: u64,
    /// `vkCmdPipelineBarrier2` commands submitted, those at a submission's ends included.
    pub barriers: u64,
    /// `vkCmdCopyBuffer` commands submitted.
    pub copies: u64,
    /// Bytes that went through the staging ring, in either direction.
    pub bytes_staged: u64,
    /// Times that a host read or a full staging ring had to wait for the device.
    pub waits: u64,
    /// Shaders compiled from GLSL to SPIR-V, not found in the cache on disk.
    pub glsl_compiled: u64,
    /// Pipelines created.
    pub pipelines_compiled: u64,
    /// Of those, the ones that the driver found in its pipeline cache (creation feedback).
    pub pipeline_cache_hits: u64,
    /// `vkAllocateMemory` calls that succeeded.
    pub allocations: u64,
    /// Bytes now allocated from the driver, by [`MemoryClass::index`].
    pub allocated: [u64; MemoryClass::ALL.len()],
    /// The largest total that `allocated` ever reached.
    pub peak_allocated: u64,
    /// Thread CPU nanoseconds spent translating command lists into command buffers.
    pub record_cpu_ns: u64,
}

impl Counters {
    /// Bytes now allocated for a class.
    pub fn bytes(&self, class: MemoryClass) -> u64 {
        self.allocated[class.index()]
    }

    /// Bytes now allocated in all.
    pub fn total_bytes(&self) -> u64 {
        self.allocated.iter().sum()
    }
}

impl Sub for Counters {
    type Output = Self;

    /// What happened since `earlier`. The two levels, `allocated` and `peak_allocated`, are kept.
    fn sub(self, earlier: Self) -> Self {
        Self {
            submits: self.submits - earlier.submits,
            batches: self.batches - earlier.batches,
            transfer_submits: self.transfer_submits - earlier.transfer_submits,
            dispatches: self.dispatches - earlier.dispatches,
            barriers: self.barriers - earlier.barriers,
            copies: self.copies - earlier.copies,
            bytes_staged: self.bytes_staged - earlier.bytes_staged,
            waits: self.waits - earlier.waits,
            glsl_compiled: self.glsl_compiled - earlier.glsl_compiled,
            pipelines_compiled: self.pipelines_compiled - earlier.pipelines_compiled,
            pipeline_cache_hits: self.pipeline_cache_hits - earlier.pipeline_cache_hits,
            allocations: self.allocations - earlier.allocations,
            allocated: self.allocated,
            peak_allocated: self.peak_allocated,
            record_cpu_ns: self.record_cpu_ns - earlier.record_cpu_ns,
        }
    }
}

/// Counters shared by the parts of a device.
#[derive(Default)]
pub(crate) struct Tally(Mutex<Counters>);

impl Tally {
    /// Changes the counters.
    pub fn count(&self, change: impl FnOnce(&mut Counters)) {
        change(&mut self.0.lock().unwrap_or_else(|broken| broken.into_inner()));
    }

    /// Notes memory taken from the driver.
    pub fn allocated(&self, class: MemoryClass, bytes: u64) {
        self.count(|counters| {
            counters.allocations += 1;
            counters.allocated[class.index()] += bytes;
            counters.peak_allocated = counters.peak_allocated.max(counters.total_bytes());
        });
    }

    /// Notes memory given back to the driver.
    pub fn freed(&self, class: MemoryClass, bytes: u64) {
        self.count(|counters| counters.allocated[class.index()] -= bytes);
    }

    /// The counters now.
    pub fn snapshot(&self) -> Counters {
        *self.0.lock().unwrap_or_else(|broken| broken.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_outlives_what_was_freed() {
        let tally = Tally::default();
        tally.allocated(MemoryClass::Weight, 100);
        tally.allocated(MemoryClass::State, 50);
        let before = tally.snapshot();
        tally.freed(MemoryClass::Weight, 100);
        tally.allocated(MemoryClass::Scratch, 20);
        let after = tally.snapshot();
        assert_eq!((after.total_bytes(), after.peak_allocated), (70, 150));
        assert_eq!(after.bytes(MemoryClass::Weight), 0);
        assert_eq!((after - before).allocations, 1);
    }
}
