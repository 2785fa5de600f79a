//! Handing recordings to a queue.

use ash::vk::{self, Handle};

use super::gpu::{Gpu, failed};
use crate::backend::{Failure, Queue, RawRecording};

/// Submits a recording: it starts after `waits`, and sets its queue's timeline to `signal`.
pub(super) fn submit(
    gpu: &Gpu,
    queue: Queue,
    recording: &RawRecording,
    waits: &[(Queue, u64)],
    signal: u64,
) -> Result<(), Failure> {
    if gpu.instance.gpu_assisted {
        return submit_instrumented(gpu, queue, recording, waits, signal);
    }
    let at = |queue: Queue, value: u64| {
        vk::SemaphoreSubmitInfo::default()
            .semaphore(gpu.timelines[queue as usize])
            .value(value)
            .stage_mask(vk::PipelineStageFlags2::ALL_COMMANDS)
    };
    let waits: Vec<_> = waits.iter().map(|(queue, value)| at(*queue, *value)).collect();
    let signals = [at(queue, signal)];
    let commands =
        [vk::CommandBufferSubmitInfo::default().command_buffer(vk::CommandBuffer::from_raw(recording.commands))];
    let submit = vk::SubmitInfo2::default()
        .wait_semaphore_infos(&waits)
        .command_buffer_infos(&commands)
        .signal_semaphore_infos(&signals);
    // SAFETY: the recording is complete and not in flight; the caller keeps submissions to a
    // queue one after another.
    unsafe {
        gpu.device
            .queue_submit2(gpu.queues[queue as usize], &[submit], vk::Fence::null())
    }
    .map_err(failed("vkQueueSubmit2"))
}

/// The same by the call of Vulkan 1.0: GPU-assisted validation 1.3.239, which Debian 12 has, does
/// not follow `vkQueueSubmit2` and then takes every wait for one that nothing ends.
fn submit_instrumented(
    gpu: &Gpu,
    queue: Queue,
    recording: &RawRecording,
    waits: &[(Queue, u64)],
    signal: u64,
) -> Result<(), Failure> {
    let (semaphores, values): (Vec<_>, Vec<_>) = waits
        .iter()
        .map(|(queue, value)| (gpu.timelines[*queue as usize], *value))
        .unzip();
    let stages = vec![vk::PipelineStageFlags::ALL_COMMANDS; semaphores.len()];
    let (signals, signal_values) = ([gpu.timelines[queue as usize]], [signal]);
    let commands = [vk::CommandBuffer::from_raw(recording.commands)];
    let mut timelines = vk::TimelineSemaphoreSubmitInfo::default()
        .wait_semaphore_values(&values)
        .signal_semaphore_values(&signal_values);
    let submit = vk::SubmitInfo::default()
        .wait_semaphores(&semaphores)
        .wait_dst_stage_mask(&stages)
        .command_buffers(&commands)
        .signal_semaphores(&signals)
        .push_next(&mut timelines);
    // SAFETY: as in `submit`.
    unsafe {
        gpu.device
            .queue_submit(gpu.queues[queue as usize], &[submit], vk::Fence::null())
    }
    .map_err(failed("vkQueueSubmit"))
}
