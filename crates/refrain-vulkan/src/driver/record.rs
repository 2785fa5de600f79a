//! Records command lists into command buffers: the only place where commands become Vulkan calls.

use ash::vk::{self, Handle};

use super::failure::failed;
use super::gpu::Gpu;
use crate::backend::{Failure, RawRecording, RecordRequest};
use crate::command::Command;
use crate::memory::Buffer;
use crate::pipeline::Pipeline;
use crate::queue::Queue;

const KERNELS: vk::PipelineStageFlags2 = vk::PipelineStageFlags2::COMPUTE_SHADER;
const COPIES: vk::PipelineStageFlags2 = vk::PipelineStageFlags2::COPY;
const INDIRECT: vk::PipelineStageFlags2 = vk::PipelineStageFlags2::DRAW_INDIRECT;

/// Records a list into a command buffer.
///
/// The command buffer begins with a full barrier, since submission order alone makes no writes visible.
pub(super) fn record(gpu: &Gpu, request: &RecordRequest<'_>) -> Result<RawRecording, Failure> {
    let mut recording = acquire_pool(gpu, request.queue)?;
    let regions = request
        .commands
        .iter()
        .filter(|c| matches!(c, Command::Timestamp { .. }));
    let regions = if gpu.timestamps { regions.count() as u32 } else { 0 };
    let recorded = if regions > 0 && request.queue == Queue::Compute {
        create_queries(gpu, &mut recording, regions + 1)
    } else {
        Ok(())
    };
    let recorded = recorded.and_then(|()| Recorder::run(gpu, &recording, request));
    match recorded {
        Ok(()) => Ok(recording),
        Err(failure) => {
            recycle(gpu, recording);
            Err(failure)
        }
    }
}

/// Returns a command pool with its one command buffer, recycled or new.
fn acquire_pool(gpu: &Gpu, queue: Queue) -> Result<RawRecording, Failure> {
    let pool = gpu.free_pools[queue as usize]
        .lock()
        .unwrap_or_else(|e| e.into_inner())
        .pop();
    if let Some(recording) = pool {
        return Ok(recording);
    }
    let info = vk::CommandPoolCreateInfo::default()
        .flags(vk::CommandPoolCreateFlags::TRANSIENT)
        .queue_family_index(gpu.family(queue));
    // SAFETY: the family is one of the device's.
    let pool = unsafe { gpu.device.create_command_pool(&info, None) }.map_err(failed("vkCreateCommandPool"))?;
    let info = vk::CommandBufferAllocateInfo::default()
        .command_pool(pool)
        .command_buffer_count(1);
    // SAFETY: the pool is new, and no other thread knows it.
    match unsafe { gpu.device.allocate_command_buffers(&info) } {
        Ok(commands) => Ok(RawRecording {
            queue,
            pool: pool.as_raw(),
            commands: commands[0].as_raw(),
            queries: 0,
            query_count: 0,
        }),
        Err(code) => {
            // SAFETY: as above.
            unsafe { gpu.device.destroy_command_pool(pool, None) };
            Err(failed("vkAllocateCommandBuffers")(code))
        }
    }
}

fn create_queries(gpu: &Gpu, recording: &mut RawRecording, count: u32) -> Result<(), Failure> {
    let info = vk::QueryPoolCreateInfo::default()
        .query_type(vk::QueryType::TIMESTAMP)
        .query_count(count);
    // SAFETY: the compute family has timestamps; otherwise they are off.
    let queries = unsafe { gpu.device.create_query_pool(&info, None) }.map_err(failed("vkCreateQueryPool"))?;
    recording.queries = queries.as_raw();
    recording.query_count = count;
    Ok(())
}

/// Resets the command pool of a completed recording for reuse.
pub(super) fn recycle(gpu: &Gpu, mut recording: RawRecording) {
    let pool = vk::CommandPool::from_raw(recording.pool);
    // SAFETY: the submission has completed, and the pool belongs to this recording only.
    unsafe {
        gpu.device
            .destroy_query_pool(vk::QueryPool::from_raw(recording.queries), None);
        recording.queries = 0;
        recording.query_count = 0;
        if gpu
            .device
            .reset_command_pool(pool, vk::CommandPoolResetFlags::empty())
            .is_err()
        {
            gpu.device.destroy_command_pool(pool, None);
            return;
        }
    }
    let pools = &gpu.free_pools[recording.queue as usize];
    pools
        .lock()
        .unwrap_or_else(|broken| broken.into_inner())
        .push(recording);
}

/// Returns the ticks between consecutive timestamps of a completed recording; empty if the query fails.
pub(super) fn intervals(gpu: &Gpu, recording: &RawRecording) -> Vec<u64> {
    let mut ticks = vec![0u64; recording.query_count as usize];
    let queries = vk::QueryPool::from_raw(recording.queries);
    // SAFETY: the pool has that many queries, all written by the completed submission.
    let got = unsafe {
        let flags = vk::QueryResultFlags::TYPE_64;
        gpu.device.get_query_pool_results(queries, 0, &mut ticks, flags)
    };
    match got {
        Ok(()) => deltas(&ticks, gpu.families.timestamp_bits),
        Err(_) => Vec::new(),
    }
}

/// Returns the differences deltas consecutive values of a counter with `bits` valid bits. A 36-bit counter wraps
/// around every minute.
fn deltas(ticks: &[u64], bits: u32) -> Vec<u64> {
    let mask = u64::MAX.checked_shr(64 - bits.min(64)).unwrap_or(0);
    let delta = |pair: &[u64]| pair[1].wrapping_sub(pair[0]) & mask;
    ticks.windows(2).map(delta).collect()
}

struct Recorder<'a> {
    gpu: &'a Gpu,
    commands: vk::CommandBuffer,
    queries: vk::QueryPool,
    next_query: u32,
    bound: vk::Pipeline,
}

impl<'a> Recorder<'a> {
    fn run(gpu: &'a Gpu, recording: &RawRecording, request: &RecordRequest<'_>) -> Result<(), Failure> {
        let mut recorder = Self {
            gpu,
            commands: vk::CommandBuffer::from_raw(recording.commands),
            queries: vk::QueryPool::from_raw(recording.queries),
            next_query: 0,
            bound: vk::Pipeline::null(),
        };
        let flags = if request.reusable {
            vk::CommandBufferUsageFlags::SIMULTANEOUS_USE
        } else {
            vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT
        };
        let info = vk::CommandBufferBeginInfo::default().flags(flags);
        // SAFETY: the command buffer is reset, and no other thread has it.
        unsafe { gpu.device.begin_command_buffer(recorder.commands, &info) }.map_err(failed("vkBeginCommandBuffer"))?;
        if recording.query_count > 0 {
            // SAFETY: recording has begun; the pool has that many queries.
            unsafe {
                let (queries, count) = (recorder.queries, recording.query_count);
                gpu.device.cmd_reset_query_pool(recorder.commands, queries, 0, count);
            }
        }
        recorder.full_barrier(request.queue);
        for command in request.commands {
            recorder.command(command, request.queue);
        }
        if recording.query_count > 0 {
            recorder.timestamp();
        }
        if request.host_reads {
            recorder.host_barrier(request.queue);
        }
        // SAFETY: recording has begun.
        unsafe { gpu.device.end_command_buffer(recorder.commands) }.map_err(failed("vkEndCommandBuffer"))
    }

    fn command(&mut self, command: &Command, queue: Queue) {
        match command {
            Command::Dispatch {
                pipeline,
                groups: [x, y, z],
                push,
            } => {
                self.bind(pipeline, push);
                // SAFETY: a pipeline is bound, and the counts are within the limits.
                unsafe { self.gpu.device.cmd_dispatch(self.commands, *x, *y, *z) }
            }
            Command::DispatchIndirect {
                pipeline,
                counts,
                offset,
                push,
            } => {
                self.bind(pipeline, push);
                let (buffer, start) = handle_and_offset(counts);
                // SAFETY: a pipeline is bound, and the counts lie within the buffer.
                unsafe {
                    self.gpu
                        .device
                        .cmd_dispatch_indirect(self.commands, buffer, start + offset);
                }
            }
            Command::Barrier => {
                use vk::AccessFlags2 as Access;
                let access = Access::SHADER_STORAGE_READ | Access::SHADER_STORAGE_WRITE;
                self.barrier((KERNELS, Access::SHADER_STORAGE_WRITE), (KERNELS, access));
            }
            Command::FullBarrier => self.full_barrier(queue),
            Command::Copy { bytes: 0, .. } => {}
            Command::Copy {
                src,
                src_offset,
                dst,
                dst_offset,
                bytes,
            } => {
                let ((src, src_start), (dst, dst_start)) = (handle_and_offset(src), handle_and_offset(dst));
                let region = vk::BufferCopy {
                    src_offset: src_start + src_offset,
                    dst_offset: dst_start + dst_offset,
                    size: *bytes,
                };
                // SAFETY: both ranges lie within their buffers.
                unsafe { self.gpu.device.cmd_copy_buffer(self.commands, src, dst, &[region]) }
            }
            Command::Timestamp { .. } => {
                if self.queries != vk::QueryPool::null() {
                    self.timestamp();
                }
            }
        }
    }

    fn bind(&mut self, pipeline: &Pipeline, push: &[u8]) {
        let raw = pipeline.raw();
        let (handle, layout) = (
            vk::Pipeline::from_raw(raw.pipeline),
            vk::PipelineLayout::from_raw(raw.layout),
        );
        // SAFETY: pipeline and layout belong together, and the constants fit the layout.
        unsafe {
            if self.bound != handle {
                let point = vk::PipelineBindPoint::COMPUTE;
                self.gpu.device.cmd_bind_pipeline(self.commands, point, handle);
                self.bound = handle;
            }
            if !push.is_empty() {
                let stage = vk::ShaderStageFlags::COMPUTE;
                self.gpu
                    .device
                    .cmd_push_constants(self.commands, layout, stage, 0, push);
            }
        }
    }

    /// Orders all later commands of this queue after all earlier ones and makes their writes visible.
    fn full_barrier(&self, queue: Queue) {
        use vk::AccessFlags2 as Access;
        let copy = Access::TRANSFER_READ | Access::TRANSFER_WRITE;
        let kernel = Access::SHADER_STORAGE_READ | Access::SHADER_STORAGE_WRITE;
        match queue {
            Queue::Compute => self.barrier(
                (
                    KERNELS | COPIES | INDIRECT,
                    Access::SHADER_STORAGE_WRITE | Access::TRANSFER_WRITE,
                ),
                (
                    KERNELS | COPIES | INDIRECT,
                    kernel | copy | Access::INDIRECT_COMMAND_READ,
                ),
            ),
            Queue::Transfer => self.barrier((COPIES, Access::TRANSFER_WRITE), (COPIES, copy)),
        }
    }

    fn host_barrier(&self, queue: Queue) {
        use vk::{AccessFlags2 as Access, PipelineStageFlags2 as Stage};
        let written = match queue {
            Queue::Compute => (KERNELS | COPIES, Access::SHADER_STORAGE_WRITE | Access::TRANSFER_WRITE),
            Queue::Transfer => (COPIES, Access::TRANSFER_WRITE),
        };
        self.barrier(written, (Stage::HOST, Access::HOST_READ));
    }

    fn barrier(
        &self,
        (src_stage, src_access): (vk::PipelineStageFlags2, vk::AccessFlags2),
        (dst_stage, dst_access): (vk::PipelineStageFlags2, vk::AccessFlags2),
    ) {
        let barriers = [vk::MemoryBarrier2::default()
            .src_stage_mask(src_stage)
            .src_access_mask(src_access)
            .dst_stage_mask(dst_stage)
            .dst_access_mask(dst_access)];
        let info = vk::DependencyInfo::default().memory_barriers(&barriers);
        // SAFETY: recording has begun, and the queue has these stages.
        unsafe { self.gpu.device.cmd_pipeline_barrier2(self.commands, &info) }
    }

    fn timestamp(&mut self) {
        let stage = vk::PipelineStageFlags2::ALL_COMMANDS;
        // SAFETY: the pool has one query per region and one for the end, all reset.
        unsafe {
            let (queries, query) = (self.queries, self.next_query);
            self.gpu
                .device
                .cmd_write_timestamp2(self.commands, stage, queries, query);
        }
        self.next_query += 1;
    }
}

fn handle_and_offset(buffer: &Buffer) -> (vk::Buffer, u64) {
    let (raw, start) = buffer.handle_and_offset();
    (vk::Buffer::from_raw(raw), start)
}

#[cfg(test)]
mod tests {
    use super::deltas;

    #[test]
    fn deltas_survive_counter_wraparound() {
        let full = 1 << 36;
        // Invalid bits may hold anything.
        assert_eq!(deltas(&[full - 10, 5, 7 | 1 << 40], 36), [15, 2]);
        assert_eq!(deltas(&[u64::MAX, 1], 64), [2]);
        assert_eq!(deltas(&[3, 9], 0), [0]);
    }
}
