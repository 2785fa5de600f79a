//! The interface between the runtime and what executes its requests: a Vulkan driver or the null device. Memory
//! classes, staging, waits and counters are implemented above it, once for both.

use std::time::Duration;

use crate::class::MemoryClass;
use crate::command::Command;
use crate::error::Error;
use crate::info::Heap;
use crate::kernel::{Kernel, Statistic};
use crate::mapped::Mapped;
use crate::null_event::NullEvent;
use crate::queue::Queue;

/// Why a backend call failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// No memory of the requested type is left.
    OutOfMemory,
    /// The device is lost.
    Lost,
    /// Any other failure: the call and its result code.
    Call(&'static str, String),
}

impl Failure {
    /// Converts the failure to an [`Error`]. Callers that know the memory class or the running lists build better
    /// errors for out of memory and device loss.
    pub fn into_error(self) -> Error {
        match self {
            Self::OutOfMemory => Error::Driver {
                call: "an allocation",
                code: "out of memory".to_owned(),
            },
            Self::Lost => Error::DeviceLost {
                during: "no command list".to_owned(),
            },
            Self::Call(call, code) => Error::Driver { call, code },
        }
    }
}

/// A memory block with one buffer that spans it. Handles are those of the driver, as integers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawMemory {
    pub memory: u64,
    pub buffer: u64,
    pub memory_type: usize,
    pub bytes: u64,
    /// Device address of the first byte of the buffer.
    pub address: u64,
    /// Host mapping, for classes that are mapped.
    pub mapped: Option<Mapped>,
}

/// A pipeline and its layout.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawPipeline {
    pub pipeline: u64,
    pub layout: u64,
}

/// A recorded command buffer. It is valid for one submission unless recorded as reusable.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawRecording {
    pub queue: Queue,
    pub pool: u64,
    pub commands: u64,
    /// Query pool with one timestamp per region and one for the end, or 0 for none.
    pub queries: u64,
    pub query_count: u32,
}

/// Arguments of [`Backend::record`].
pub(crate) struct RecordRequest<'a> {
    pub queue: Queue,
    pub name: &'a str,
    pub commands: &'a [Command],
    /// Whether to end with a barrier that makes writes visible to the host.
    pub host_reads: bool,
    /// Whether it may be submitted more than once, and be in flight more than once.
    pub reusable: bool,
}

/// Executes what the runtime decides. Every method may be called from any thread. The caller serialises submissions to
/// one queue.
pub(crate) trait Backend: Send + Sync {
    /// Returns the heaps with their current usage.
    fn heaps(&self) -> Vec<Heap>;
    /// Allocates memory with a buffer bound to it.
    fn allocate(&self, class: MemoryClass, memory_type: usize, bytes: u64) -> Result<RawMemory, Failure>;
    /// Frees memory. No submission may still use it.
    fn free(&self, memory: &RawMemory);
    /// Creates a compute pipeline. The flag is true if the driver found it in its pipeline cache.
    fn create_pipeline(&self, kernel: &Kernel, spirv: &[u32]) -> Result<(RawPipeline, bool), Failure>;
    /// Returns the driver's statistics of a pipeline's machine code.
    fn statistics(&self, _pipeline: RawPipeline) -> Result<Vec<Statistic>, Failure> {
        Ok(Vec::new())
    }
    /// Destroys a pipeline. No submission may still use it.
    fn destroy_pipeline(&self, pipeline: RawPipeline);
    /// Merges previously saved data into the pipeline cache of the driver.
    fn merge_pipeline_cache(&self, data: &[u8]);
    /// Returns the data of the driver's pipeline cache.
    fn pipeline_cache_data(&self) -> Vec<u8>;
    /// Records commands into a command buffer.
    fn record(&self, request: &RecordRequest<'_>) -> Result<RawRecording, Failure>;
    /// Recycles a recording. Its submissions must have completed.
    fn recycle(&self, recording: RawRecording);
    /// Submits recordings in one call. The first waits for `waits`. Each signals the timeline of its queue with the
    /// next value, starting at `signal`.
    fn submit(
        &self,
        queue: Queue,
        recordings: &[RawRecording],
        waits: &[(Queue, u64)],
        signal: u64,
    ) -> Result<(), Failure>;
    /// Returns the current value of a queue's timeline.
    fn completed(&self, queue: Queue) -> Result<u64, Failure>;
    /// As [`Backend::completed`], for callers that poll until work is done.
    fn poll(&self, queue: Queue) -> Result<u64, Failure> {
        self.completed(queue)
    }
    /// Blocks until the timeline of a queue reaches `value` or `timeout` expires. Returns whether it was reached.
    fn wait(&self, queue: Queue, value: u64, timeout: Duration) -> Result<bool, Failure>;
    /// Checks that the device still works, as far as the driver reports it.
    fn status(&self) -> Result<(), Failure>;
    /// Returns the differences between consecutive timestamps of a completed recording, in ticks of the device.
    fn intervals(&self, recording: &RawRecording) -> Vec<u64>;
    /// Blocks until the device is idle. Called only on close, when all timelines have reached their last values or the
    /// device is lost.
    fn wait_idle(&self);
    /// Leaks all objects from here on, for a device that hangs: nothing is destroyed or freed.
    fn abandon(&self);
    /// Returns all events of a null device.
    fn recorded(&self) -> Vec<NullEvent> {
        Vec::new()
    }
}
