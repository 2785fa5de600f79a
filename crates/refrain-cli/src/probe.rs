//! Measuring how fast a device reads memory.

mod heap;

use std::time::{Duration, Instant};

use refrain::{Array, DType, Device, Error, Function};
use refrain_vulkan::MemoryClass;

use crate::host;

pub(crate) use heap::{HeapSpeed, speeds, step_seconds};

/// Columns of the CPU executor's probing matrix.
const COLUMNS: usize = 4096;
/// Larger than the caches of a processor, and quick on the slowest.
const HOST_BYTES: u64 = 128 << 20;
/// How long to measure on the CPU.
const MEASURE: Duration = Duration::from_millis(200);

/// Bytes per second at which the device reads weights, the best of several: by a kernel that does
/// nothing else, or on the CPU executor by its own matrix-vector product. Takes up to half a second
/// and, on cards, 2 GiB.
///
/// # Errors
/// If the device fails or lacks the memory.
pub(crate) fn read_bandwidth(device: &Device) -> Result<f64, Error> {
    match device.as_vulkan() {
        Some(vulkan) => Ok(heap::speed(vulkan, MemoryClass::Weight)?.bytes_per_second),
        None => host_bandwidth(device),
    }
}

fn host_bandwidth(device: &Device) -> Result<f64, Error> {
    let bytes = HOST_BYTES.min(host::available_memory().unwrap_or(HOST_BYTES) / 4);
    let rows = bytes as usize / (COLUMNS * DType::F32.size());
    let weight = Array::weight(device, DType::F32, &[rows, COLUMNS], &mut |_, piece| {
        // Small positive numbers; zeros might never be brought to memory.
        piece.fill(0x3c);
    })?;
    let vector = Array::ones(device, DType::F32, &[1, COLUMNS]);
    let product = Function::trace(&[&vector.matmul(&weight.transpose())])?;
    let (start, mut best) = (Instant::now(), f64::INFINITY);
    while best.is_infinite() || start.elapsed() < MEASURE {
        let call = Instant::now();
        product.call(&[])?;
        best = best.min(call.elapsed().as_secs_f64());
    }
    Ok(bytes as f64 / best)
}
