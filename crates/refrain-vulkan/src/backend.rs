//! The seam between the runtime's logic and what carries it out: a driver, or nothing at all.
//! Memory classes, staging, waits and counters lie above it and are the same for both.

use std::time::Duration;

use crate::class::MemoryClass;
use crate::command::Command;
use crate::error::Error;
use crate::info::Heap;
use crate::mapped::Mapped;
use crate::null::NullEvent;
use crate::pipeline::{Kernel, Statistic};

/// One of a device's two queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Queue {
    /// Runs kernels, and copies where there is no transfer queue.
    Compute,
    /// Runs copies alone, beside the kernels.
    Transfer,
}

impl Queue {
    pub(crate) const BOTH: [Self; 2] = [Self::Compute, Self::Transfer];

    pub(crate) fn other(self) -> Self {
        match self {
            Self::Compute => Self::Transfer,
            Self::Transfer => Self::Compute,
        }
    }
}

/// Why a call below the seam failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// No memory left of the wanted type.
    OutOfMemory,
    /// The device is gone.
    Lost,
    /// Anything else: the call and its result.
    Call(&'static str, String),
}

impl Failure {
    /// The error for the user, where neither memory nor a lost device has a better text.
    pub fn plain(self) -> Error {
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

/// A block of memory with one buffer over all of it. Handles are the driver's, as integers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawMemory {
    pub memory: u64,
    pub buffer: u64,
    pub memory_type: usize,
    pub bytes: u64,
    /// Device address of the buffer's first byte.
    pub address: u64,
    /// Where the host sees it, for classes that are mapped.
    pub mapped: Option<Mapped>,
}

/// A pipeline and its layout.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawPipeline {
    pub pipeline: u64,
    pub layout: u64,
}

/// A translated command list, good for one submission unless it was asked to be reusable.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawRecording {
    pub queue: Queue,
    pub pool: u64,
    pub commands: u64,
    /// A pool with one timestamp per region and one for the end, or 0.
    pub queries: u64,
    pub query_count: u32,
}

/// What to translate.
pub(crate) struct RecordRequest<'a> {
    pub queue: Queue,
    pub name: &'a str,
    pub commands: &'a [Command],
    /// End with a barrier that lets the host read what was written.
    pub host_reads: bool,
    /// It is submitted more than once, and may be in flight more than once.
    pub reusable: bool,
}

/// Carries out what the runtime decides. Every method may be called from any thread; the caller
/// keeps submissions to one queue in order.
pub(crate) trait Backend: Send + Sync {
    /// The heaps with what is used of them now.
    fn heaps(&self) -> Vec<Heap>;
    /// Allocates memory with a buffer over it.
    fn allocate(&self, class: MemoryClass, memory_type: usize, bytes: u64) -> Result<RawMemory, Failure>;
    /// Frees memory that no submission uses any more.
    fn free(&self, memory: &RawMemory);
    /// Creates a compute pipeline; true: the driver found it in its cache.
    fn create_pipeline(&self, kernel: &Kernel, spirv: &[u32]) -> Result<(RawPipeline, bool), Failure>;
    /// What the driver tells of a pipeline's machine code.
    fn statistics(&self, _pipeline: RawPipeline) -> Result<Vec<Statistic>, Failure> {
        Ok(Vec::new())
    }
    /// Destroys a pipeline that no submission uses any more.
    fn destroy_pipeline(&self, pipeline: RawPipeline);
    /// Adds what another process or an earlier one stored to the driver's pipeline cache.
    fn merge_pipeline_cache(&self, data: &[u8]);
    /// The content of the driver's pipeline cache.
    fn pipeline_cache_data(&self) -> Vec<u8>;
    /// Translates commands.
    fn record(&self, request: &RecordRequest<'_>) -> Result<RawRecording, Failure>;
    /// Takes back a recording whose submission has completed.
    fn recycle(&self, recording: RawRecording);
    /// Submits recordings by one call: the first starts after `waits`, and each sets its queue's timeline
    /// to the next value from `signal` on.
    fn submit(
        &self,
        queue: Queue,
        recordings: &[RawRecording],
        waits: &[(Queue, u64)],
        signal: u64,
    ) -> Result<(), Failure>;
    /// The value that a queue's timeline has reached.
    fn completed(&self, queue: Queue) -> Result<u64, Failure>;
    /// As [`Backend::completed`], asked by a caller who polls until work is done.
    fn poll(&self, queue: Queue) -> Result<u64, Failure> {
        self.completed(queue)
    }
    /// Blocks until a queue's timeline has reached a value, or for so long; whether it has.
    fn wait(&self, queue: Queue, value: u64, timeout: Duration) -> Result<bool, Failure>;
    /// Whether the device still works, as far as the driver tells.
    fn status(&self) -> Result<(), Failure>;
    /// From one timestamp of a completed recording to the next, in the device's steps.
    fn intervals(&self, recording: &RawRecording) -> Vec<u64>;
    /// Blocks until nothing runs. Only for the end, when all timelines have reached their last values or the
    /// device is lost.
    fn wait_idle(&self);
    /// Leaves everything as it is from here on, for a device that stands still: nothing is destroyed or freed.
    fn abandon(&self);
    /// Everything that happened, on a null device.
    fn recorded(&self) -> Vec<NullEvent> {
        Vec::new()
    }
}
