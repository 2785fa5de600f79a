//! Measures how fast a device reads weights, which bounds the speed of decoding.

use std::time::{Duration, Instant};

use refrain_kernels::cpu;
use refrain_vulkan::{MemoryClass, speed};

use crate::{Device, Error};

/// Bytes read on the CPU: more than its caches hold, and quick even on the slowest.
const HOST_BYTES: u64 = 256 << 20;
/// Number of pieces that the bytes are split into. A piece is summed within a scheduler time slice, so that the fastest
/// of many sums is one that no other program interrupted.
const PIECES: usize = 4;
/// Minimum duration of the measurement on the CPU.
const MIN_DURATION: Duration = Duration::from_millis(150);

/// Memory read bandwidth in bytes per second, the best of many short measurements. GPUs run a kernel that only reads;
/// the CPU executor sums on all threads. Takes up to half a second and, on discrete GPUs, 2 GiB of memory.
///
/// # Errors
/// Fails if memory runs out or the device fails.
pub fn read_bandwidth(device: &Device) -> Result<f64, Error> {
    match device.as_vulkan() {
        Some(vulkan) => Ok(speed::measure_class(vulkan, MemoryClass::Weight)?.bytes_per_second),
        None => host_bandwidth(device.free_memory().map_or(HOST_BYTES, |free| HOST_BYTES.min(free / 4))),
    }
}

fn host_bandwidth(bytes: u64) -> Result<f64, Error> {
    let count = (bytes as usize / size_of::<f32>()).max(PIECES);
    let mut values = Vec::new();
    values
        .try_reserve_exact(count)
        .map_err(|_| Error::HostMemory { bytes })?;
    // Pages of zeros might never be backed by memory.
    values.resize(count, 1.0f32);
    Ok(cpu::with_awake_pool(|| {
        let (start, mut best) = (Instant::now(), 0.0f64);
        loop {
            for piece in values.chunks_exact(count / PIECES) {
                let begin = Instant::now();
                std::hint::black_box(cpu::sum(piece));
                best = best.max(size_of_val(piece) as f64 / begin.elapsed().as_secs_f64());
            }
            if start.elapsed() > MIN_DURATION {
                return best;
            }
        }
    }))
}

/// Duration in seconds of a trivial step that waits for the step before it. 0 on the CPU executor, which has no
/// barriers.
///
/// # Errors
/// Fails if the device fails.
pub fn step_seconds(device: &Device) -> Result<f64, Error> {
    match device.as_vulkan() {
        Some(vulkan) => Ok(speed::dependent_dispatch_seconds(vulkan)?),
        None => Ok(0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_bandwidth_is_measured_with_any_amount_of_memory() {
        for bytes in [0, 1000, 8 << 20] {
            let speed = host_bandwidth(bytes).unwrap();
            assert!(speed.is_finite() && speed > 0.0, "{bytes} bytes: {speed}");
        }
    }
}
