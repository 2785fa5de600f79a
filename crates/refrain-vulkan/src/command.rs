//! Command lists: into_error data that describes a submission.

use crate::access::Access;
use crate::error::Error;
use crate::info::Limits;
use crate::memory::Buffer;
use crate::pipeline::Pipeline;

/// A command of a command list.
#[derive(Debug, Clone)]
pub enum Command {
    /// Runs a kernel.
    Dispatch {
        /// The kernel.
        pipeline: Pipeline,
        /// Workgroups along x, y and z.
        groups: [u32; 3],
        /// Push constants, at most as many bytes as the kernel declares.
        push: Vec<u8>,
    },
    /// Runs a kernel with workgroup counts that the device computed: three `u32` at `offset`.
    DispatchIndirect {
        /// The kernel.
        pipeline: Pipeline,
        /// Buffer that holds the counts.
        counts: Buffer,
        /// Byte offset of the counts, a multiple of 4.
        offset: u64,
        /// Push constants, at most as many bytes as the kernel declares.
        push: Vec<u8>,
    },
    /// Makes the writes of earlier kernels visible to later kernels: one memory barrier between compute shader stages.
    Barrier,
    /// Orders all later commands (kernels, copies, indirect counts) after all earlier ones, and makes their writes
    /// visible.
    FullBarrier,
    /// Copies bytes between buffers. Needs a [`Command::FullBarrier`] between it and kernels that use the same bytes.
    Copy {
        /// Source buffer.
        src: Buffer,
        /// Byte offset in `src`.
        src_offset: u64,
        /// Destination buffer.
        dst: Buffer,
        /// Byte offset in `dst`.
        dst_offset: u64,
        /// Number of bytes; 0 does nothing.
        bytes: u64,
    },
    /// Starts a timed region, which lasts until the next region or the end of the list. Free unless the device was
    /// opened with timestamps.
    Timestamp {
        /// The region's name.
        region: String,
    },
}

/// The commands of one submission, in order.
///
/// The runtime orders submissions: a list sees all effects of lists submitted before it, and of uploads to the buffers
/// it names. The caller places barriers within the list.
#[derive(Debug, Clone, Default)]
pub struct CommandList {
    /// Name shown in errors, such as a lost device.
    pub name: String,
    /// Commands in order.
    pub commands: Vec<Command>,
    /// Every buffer that the commands access, including those reached only by address.
    pub uses: Vec<(Buffer, Access)>,
}

/// Names of the timed regions, in order.
pub(crate) fn regions(commands: &[Command]) -> impl Iterator<Item = &str> {
    commands.iter().filter_map(|command| match command {
        Command::Timestamp { region } => Some(region.as_str()),
        _ => None,
    })
}

impl CommandList {
    /// An empty list.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            ..Self::default()
        }
    }

    /// Whether the commands may write memory that the host maps.
    pub(crate) fn host_reads(&self) -> bool {
        let written = self.uses.iter().filter(|(_, access)| *access == Access::Write);
        written.into_iter().any(|(buffer, _)| buffer.class().mapped())
    }

    /// Validates every command.
    ///
    /// # Errors
    /// Fails if a command exceeds a device limit or the range of its buffer.
    pub(crate) fn check(&self, limits: &Limits) -> Result<(), Error> {
        let push_fits = |pipeline: &Pipeline, push: &[u8]| {
            if push.len() > pipeline.push_bytes() as usize || !push.len().is_multiple_of(4) {
                return Err(Error::Limit {
                    message: format!(
                        "{} bytes of push constants for kernel {}, which declares {}",
                        push.len(),
                        pipeline.name(),
                        pipeline.push_bytes()
                    ),
                });
            }
            Ok(())
        };
        for command in &self.commands {
            match command {
                Command::Dispatch { pipeline, groups, push } => {
                    push_fits(pipeline, push)?;
                    let max = limits.max_group_count;
                    if groups.iter().zip(max).any(|(groups, max)| *groups > max) {
                        return Err(Error::Limit {
                            message: format!(
                                "{groups:?} workgroups of kernel {} exceed the device limit of {max:?}",
                                pipeline.name()
                            ),
                        });
                    }
                }
                Command::DispatchIndirect {
                    pipeline,
                    counts,
                    offset,
                    push,
                } => {
                    push_fits(pipeline, push)?;
                    counts.check(*offset, 12)?;
                }
                Command::Copy {
                    src,
                    src_offset,
                    dst,
                    dst_offset,
                    bytes,
                } => {
                    src.check(*src_offset, *bytes)?;
                    dst.check(*dst_offset, *bytes)?;
                }
                Command::Barrier | Command::FullBarrier | Command::Timestamp { .. } => {}
            }
        }
        Ok(())
    }
}
