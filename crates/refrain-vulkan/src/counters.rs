//! Counters of the work done since a device was opened.

use std::ops::Sub;
use std::sync::Mutex;

use crate::class::MemoryClass;

/// A snapshot of the counters. Subtract an earlier one to get the difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// `vkQueueSubmit2` calls, on any queue.
    pub submits: u64,
    /// `VkSubmitInfo2` batches in those calls.
    pub batches: u64,
    /// Submits that only carry uploads and read-backs.
    pub transfer_submits: u64,
    /// `vkCmdDispatch` and `vkCmdDispatchIndirect` commands submitted.
    pub dispatches: u64,
    /// `vkCmdPipelineBarrier2` commands submitted, including those at the start and end of a submission.
    pub barriers: u64,
    /// `vkCmdCopyBuffer` commands submitted.
    pub copies: u64,
    /// Bytes copied through the staging ring, in either direction.
    pub bytes_staged: u64,
    /// Number of times that the host blocked on the device, for a read or a full staging ring.
    pub waits: u64,
    /// Shaders compiled from GLSL to SPIR-V because the disk cache did not have them.
    pub glsl_compiled: u64,
    /// Pipelines created.
    pub pipelines_compiled: u64,
    /// Pipelines that the driver found in its pipeline cache (creation feedback).
    pub pipeline_cache_hits: u64,
    /// Successful `vkAllocateMemory` calls.
    pub allocations: u64,
    /// Bytes currently allocated from the driver, by [`MemoryClass::index`].
    pub allocated: [u64; MemoryClass::ALL.len()],
    /// Maximum of the total of `allocated`.
    pub peak_allocated: u64,
    /// Thread CPU time spent recording command buffers, in nanoseconds.
    pub record_cpu_ns: u64,
}

impl Counters {
    /// Bytes currently allocated for a class.
    pub fn bytes(&self, class: MemoryClass) -> u64 {
        self.allocated[class.index()]
    }

    /// Bytes currently allocated in total.
    pub fn total_bytes(&self) -> u64 {
        self.allocated.iter().sum()
    }
}

impl Sub for Counters {
    type Output = Self;

    /// Returns the difference since `earlier`. `allocated` and `peak_allocated` are levels and stay as they are.
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

/// Counters shared by the components of a device.
#[derive(Default)]
pub(crate) struct SharedCounters(Mutex<Counters>);

impl SharedCounters {
    /// Updates the counters.
    pub fn update(&self, change: impl FnOnce(&mut Counters)) {
        change(&mut self.0.lock().unwrap_or_else(|broken| broken.into_inner()));
    }

    /// Counts memory allocated from the driver.
    pub fn allocated(&self, class: MemoryClass, bytes: u64) {
        self.update(|counters| {
            counters.allocations += 1;
            counters.allocated[class.index()] += bytes;
            counters.peak_allocated = counters.peak_allocated.max(counters.total_bytes());
        });
    }

    /// Counts memory freed to the driver.
    pub fn freed(&self, class: MemoryClass, bytes: u64) {
        self.update(|counters| counters.allocated[class.index()] -= bytes);
    }

    /// Returns the current counters.
    pub fn snapshot(&self) -> Counters {
        *self.0.lock().unwrap_or_else(|broken| broken.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peak_stays_after_memory_is_freed() {
        let counters = SharedCounters::default();
        counters.allocated(MemoryClass::Weight, 100);
        counters.allocated(MemoryClass::State, 50);
        let before = counters.snapshot();
        counters.freed(MemoryClass::Weight, 100);
        counters.allocated(MemoryClass::Scratch, 20);
        let after = counters.snapshot();
        assert_eq!((after.total_bytes(), after.peak_allocated), (70, 150));
        assert_eq!(after.bytes(MemoryClass::Weight), 0);
        assert_eq!((after - before).allocations, 1);
    }
}
