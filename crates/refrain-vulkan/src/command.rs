//! Command lists: plain data that says what a submission does.

use crate::error::Error;
use crate::info::Limits;
use crate::memory::Buffer;
use crate::pipeline::Pipeline;

/// How a command list touches a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// It only reads.
    Read,
    /// It writes, and perhaps reads.
    Write,
}

/// One step of a command list.
#[derive(Debug, Clone)]
pub enum Command {
    /// Runs a kernel.
    Dispatch {
        /// The kernel.
        pipeline: Pipeline,
        /// Workgroups along x, y and z.
        groups: [u32; 3],
        /// Push constants: at most as many bytes as the kernel declares.
        push: Vec<u8>,
    },
    /// Runs a kernel over workgroups that the device itself counted: three u32 at `offset`.
    DispatchIndirect {
        /// The kernel.
        pipeline: Pipeline,
        /// Where the counts lie.
        counts: Buffer,
        /// Byte offset of the counts, a multiple of 4.
        offset: u64,
        /// Push constants: at most as many bytes as the kernel declares.
        push: Vec<u8>,
    },
    /// Kernels after it see what kernels before it wrote: one memory barrier from compute shader
    /// to compute shader.
    Barrier,
    /// Everything after it (kernels, copies, indirect counts) sees everything before it.
    FullBarrier,
    /// Copies bytes between buffers. Needs a [`Command::FullBarrier`] wherever it meets kernels.
    Copy {
        /// Where the bytes come from.
        src: Buffer,
        /// Byte offset in `src`.
        src_offset: u64,
        /// Where the bytes go.
        dst: Buffer,
        /// Byte offset in `dst`.
        dst_offset: u64,
        /// How many; 0 does nothing.
        bytes: u64,
    },
    /// Starts a region: it lasts to the next region or the end of the list. Costs nothing unless
    /// the device was opened with timestamps.
    Timestamp {
        /// The region's name.
        region: String,
    },
}

/// Commands of one submission, in order.
///
/// The runtime orders submissions against each other: a list sees all effects of the lists
/// submitted before it, and of uploads to the buffers it names. Within the list, barriers are the
/// caller's.
#[derive(Debug, Clone, Default)]
pub struct CommandList {
    /// Shown when the device is lost.
    pub name: String,
    /// What to do.
    pub commands: Vec<Command>,
    /// Every buffer that the commands touch, also those reached only by address.
    pub uses: Vec<(Buffer, Access)>,
}

impl CommandList {
    /// An empty list.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            ..Self::default()
        }
    }

    /// Whether the commands may write what the host reads where it lies.
    pub(crate) fn host_reads(&self) -> bool {
        let written = self.uses.iter().filter(|(_, access)| *access == Access::Write);
        written.into_iter().any(|(buffer, _)| buffer.class().mapped())
    }

    /// The regions in order.
    pub(crate) fn regions(&self) -> impl Iterator<Item = &str> {
        self.commands.iter().filter_map(|command| match command {
            Command::Timestamp { region } => Some(region.as_str()),
            _ => None,
        })
    }

    /// # Errors
    /// If a command exceeds a limit or its buffer.
    pub(crate) fn check(&self, limits: &Limits) -> Result<(), Error> {
        let push_fits = |pipeline: &Pipeline, push: &[u8]| {
            if push.len() > pipeline.push_bytes() as usize || !push.len().is_multiple_of(4) {
                return Err(Error::Limit {
                    what: format!(
                        "{} bytes of push constants for kernel {}, which takes {}",
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
                    let most = limits.max_group_count;
                    if groups.iter().zip(most).any(|(groups, most)| *groups > most) {
                        return Err(Error::Limit {
                            what: format!(
                                "{groups:?} workgroups of kernel {}, and the device allows {most:?}",
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
