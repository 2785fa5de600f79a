//! Events that a null device records.

use crate::class::MemoryClass;
use crate::kernel::Kernel;
use crate::queue::Queue;

/// An event on a null device.
#[derive(Debug, Clone, PartialEq)]
pub enum NullEvent {
    /// Memory was allocated.
    Allocate {
        /// Class of the memory.
        class: MemoryClass,
        /// Memory type.
        memory_type: usize,
        /// Size in bytes.
        bytes: u64,
    },
    /// Memory was freed.
    Free {
        /// Memory type.
        memory_type: usize,
        /// Size in bytes.
        bytes: u64,
    },
    /// A pipeline was created.
    Pipeline {
        /// Its kernel.
        kernel: Kernel,
    },
    /// A command list was submitted, alone or after others in the same call.
    Submit {
        /// Queue of the submission.
        queue: Queue,
        /// Name of the list.
        list: String,
        /// Values of other timelines that it waits for.
        waits: Vec<(Queue, u64)>,
        /// Value that it signals on the timeline of its queue.
        value: u64,
        /// Its commands.
        commands: Vec<RecordedCommand>,
        /// Whether it ends with a barrier for host reads.
        host_reads: bool,
    },
    /// The host waited.
    Wait {
        /// Queue that was waited for.
        queue: Queue,
        /// Timeline value that was waited for.
        value: u64,
    },
}

/// A command as recorded by a null device.
#[derive(Debug, Clone, PartialEq)]
pub enum RecordedCommand {
    /// A kernel was dispatched.
    Dispatch {
        /// Name of the kernel.
        kernel: String,
        /// Workgroup counts; `None` for an indirect dispatch.
        groups: Option<[u32; 3]>,
        /// Push constants.
        push: Vec<u8>,
    },
    /// A barrier between kernels.
    Barrier,
    /// A full barrier.
    FullBarrier,
    /// Bytes were copied.
    Copy {
        /// Source address.
        src: u64,
        /// Destination address.
        dst: u64,
        /// Number of bytes.
        bytes: u64,
    },
    /// A timed region began.
    Timestamp {
        /// Name of the kernel.
        region: String,
    },
}
