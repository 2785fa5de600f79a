//! Measuring how fast a device reads memory, with the program's own matrix-vector product.

use std::time::{Duration, Instant};

use refrain::{Array, DType, Device, Error, Function};
use refrain_vulkan::DeviceKind;

use crate::host;

/// Columns of the probing matrix.
const COLUMNS: usize = 4096;
/// A discrete card's caches hold less than a tenth of this.
const LARGE_BYTES: u64 = 1 << 30;
/// Larger than the caches of a processor, and quick on the slowest.
const SMALL_BYTES: u64 = 128 << 20;
/// Clocks need load before they are at their height.
const WARM_UP: Duration = Duration::from_millis(100);
/// How long to measure.
const MEASURE: Duration = Duration::from_millis(150);

/// Bytes per second at which the device reads weights in a matrix-vector product, the best of
/// several. Takes up to half a second and, on cards, 1 GiB.
///
/// # Errors
/// If the device fails or lacks the memory.
pub(crate) fn read_bandwidth(device: &Device) -> Result<f64, Error> {
    let bytes = size(device);
    let rows = bytes as usize / (COLUMNS * DType::F32.size());
    let weight = Array::weight(device, DType::F32, &[rows, COLUMNS], &mut |_, piece| {
        // Small positive numbers; zeros might be compressed or never be brought to memory.
        piece.fill(0x3c);
    })?;
    let vector = Array::ones(device, DType::F32, &[1, COLUMNS]);
    let product = Function::trace(&[&vector.matmul(&weight.transpose())])?;
    let run = |least: Duration| -> Result<f64, Error> {
        let (start, mut best) = (Instant::now(), f64::INFINITY);
        while best.is_infinite() || start.elapsed() < least {
            let call = Instant::now();
            product.call(&[])?;
            // Reading one value waits for the product.
            product.read_range::<f32>(0, 0, 1)?;
            best = best.min(call.elapsed().as_secs_f64());
        }
        Ok(bytes as f64 / best)
    };
    run(WARM_UP)?;
    run(MEASURE)
}

fn size(device: &Device) -> u64 {
    let Some(vulkan) = device.as_vulkan() else {
        return SMALL_BYTES.min(host::available_memory().unwrap_or(SMALL_BYTES) / 4);
    };
    let heaps = vulkan.heaps();
    let free = heaps
        .iter()
        .filter(|heap| heap.device_local)
        .map(|heap| heap.free())
        .max();
    let wanted = match vulkan.info().kind {
        DeviceKind::Discrete => LARGE_BYTES,
        _ => SMALL_BYTES,
    };
    wanted
        .min(free.unwrap_or(wanted) / 4)
        .min(vulkan.info().limits.max_allocation_bytes)
}
