//! How fast a device reads weights, measured now: what bounds the speed of decoding on it.

use std::time::{Duration, Instant};

use refrain_kernels::cpu;
use refrain_vulkan::{MemoryClass, speed};

use crate::{Device, Error};

/// Larger than the caches of a processor, and quick on the slowest.
const HOST_BYTES: u64 = 256 << 20;
/// Pieces into which that is cut. A sum of one is over before the system gives the processor to another
/// program, so the best of many had it for itself.
const PIECES: usize = 4;
/// How long to measure on the CPU at least.
const MEASURE: Duration = Duration::from_millis(150);

/// Bytes per second that the device reads, the best of many short measurements: by a kernel that does nothing
/// else, or on the CPU executor by plain sums on all threads. Takes up to half a second and, on cards, 2 GiB.
///
/// # Errors
/// If the device fails or lacks the memory.
pub fn read_bandwidth(device: &Device) -> Result<f64, Error> {
    match device.as_vulkan() {
        Some(vulkan) => Ok(speed::of_class(vulkan, MemoryClass::Weight)?.bytes_per_second),
        None => host_bandwidth(device.free_memory().map_or(HOST_BYTES, |free| HOST_BYTES.min(free / 4))),
    }
}

fn host_bandwidth(bytes: u64) -> Result<f64, Error> {
    let count = (bytes as usize / size_of::<f32>()).max(PIECES);
    let mut values = Vec::new();
    values
        .try_reserve_exact(count)
        .map_err(|_| Error::HostMemory { bytes })?;
    // Zeros might never be brought to memory.
    values.resize(count, 1.0f32);
    Ok(cpu::in_team(|| {
        let (start, mut best) = (Instant::now(), 0.0f64);
        loop {
            for piece in values.chunks_exact(count / PIECES) {
                let begin = Instant::now();
                std::hint::black_box(cpu::sum(piece));
                best = best.max(size_of_val(piece) as f64 / begin.elapsed().as_secs_f64());
            }
            if start.elapsed() > MEASURE {
                return best;
            }
        }
    }))
}

/// Seconds that a step which does next to nothing takes, when it waits for the step before it; 0 on the CPU
/// executor, where no step waits.
///
/// # Errors
/// If the device fails.
pub fn step_seconds(device: &Device) -> Result<f64, Error> {
    match device.as_vulkan() {
        Some(vulkan) => Ok(speed::step_seconds(vulkan)?),
        None => Ok(0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_reads_however_little_memory_there_is_to_measure_with() {
        for bytes in [0, 1000, 8 << 20] {
            let speed = host_bandwidth(bytes).unwrap();
            assert!(speed.is_finite() && speed > 0.0, "{bytes} bytes: {speed}");
        }
    }
}
