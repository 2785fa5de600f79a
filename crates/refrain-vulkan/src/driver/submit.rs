//! Submits recordings to a queue.

use ash::vk::{self, Handle};

use super::failure::failed;
use super::gpu::Gpu;
use crate::backend::{Failure, RawRecording};
use crate::queue::Queue;

/// Submits recordings in one call. The first waits for `waits`. Each signals the timeline of its queue with the next
/// value, starting at `signal`.
pub(super) fn submit(
    gpu: &Gpu,
    queue: Queue,
    recordings: &[RawRecording],
    waits: &[(Queue, u64)],
    signal: u64,
) -> Result<(), Failure> {
    if gpu.instance.gpu_assisted {
        return submit_instrumented(gpu, queue, recordings, waits, signal);
    }
    let at = |queue: Queue, value: u64| {
        vk::SemaphoreSubmitInfo::default()
            .semaphore(gpu.timelines[queue as usize])
            .value(value)
            .stage_mask(vk::PipelineStageFlags2::ALL_COMMANDS)
    };
    let waits: Vec<_> = waits.iter().map(|(queue, value)| at(*queue, *value)).collect();
    let signals: Vec<_> = (signal..)
        .take(recordings.len())
        .map(|value| at(queue, value))
        .collect();
    let commands = |recording: &RawRecording| {
        vk::CommandBufferSubmitInfo::default().command_buffer(vk::CommandBuffer::from_raw(recording.commands))
    };
    let commands: Vec<_> = recordings.iter().map(commands).collect();
    let mut submits: Vec<_> = (commands.chunks(1).zip(signals.chunks(1)))
        .map(|(commands, signal)| {
            vk::SubmitInfo2::default()
                .command_buffer_infos(commands)
                .signal_semaphore_infos(signal)
        })
        .collect();
    if let Some(first) = submits.first_mut() {
        *first = first.wait_semaphore_infos(&waits);
    }
    // SAFETY: the recordings are complete, and those in flight were recorded for simultaneous use. The caller
    // serialises submissions to a queue.
    unsafe {
        gpu.device
            .queue_submit2(gpu.queues[queue as usize], &submits, vk::Fence::null())
    }
    .map_err(failed("vkQueueSubmit2"))
}

/// Submits with Vulkan 1.0 calls. GPU-assisted validation 1.3.239 (Debian 12) does not track `vkQueueSubmit2` and then
/// reports that every wait never ends.
fn submit_instrumented(
    gpu: &Gpu,
    queue: Queue,
    recordings: &[RawRecording],
    waits: &[(Queue, u64)],
    signal: u64,
) -> Result<(), Failure> {
    for (number, recording) in recordings.iter().enumerate() {
        let waits = if number == 0 { waits } else { &[] };
        let (semaphores, values): (Vec<_>, Vec<_>) = waits
            .iter()
            .map(|(queue, value)| (gpu.timelines[*queue as usize], *value))
            .unzip();
        let stages = vec![vk::PipelineStageFlags::ALL_COMMANDS; semaphores.len()];
        let (signals, signal_values) = ([gpu.timelines[queue as usize]], [signal + number as u64]);
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
        .map_err(|code| match number {
            0 => failed("vkQueueSubmit")(code),
            // The earlier submissions cannot be taken back.
            _ => Failure::Lost,
        })?;
    }
    Ok(())
}
