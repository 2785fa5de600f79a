//! How fast a device reads weights, measured now: what bounds the speed of decoding on it.

use std::time::{Duration, Instant};

use refrain_kernels::quantised::QuantFormat;
use refrain_vulkan::{MemoryClass, speed};

use crate::{Array, DType, Device, Error, Function, Quantised};

/// Columns of the CPU executor's probing matrices.
const COLUMNS: usize = 4096;
/// Larger than the caches of a processor, and quick on the slowest.
const HOST_BYTES: usize = 128 << 20;
/// Matrices into which that is cut. A product of one is over before the system gives the processor to another
/// program, so the best of many had it for itself.
const MATRICES: usize = 64;
/// How long to measure on the CPU at least, and at most if the products are so slow that these are few.
const MEASURE: [Duration; 2] = [Duration::from_millis(150), Duration::from_millis(600)];

/// How a weight's values are stored on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WeightFormat {
    /// One by one.
    Dense(DType),
    /// In a few bits each, as the planes of a [`Quantised`].
    Quantised(QuantFormat),
}

impl WeightFormat {
    /// Nothing but numbers: f32.
    pub const PLAIN: WeightFormat = WeightFormat::Dense(DType::F32);
}

/// Bytes per second at which the device reads weights of this format, the best of many short measurements: by
/// a kernel that does nothing else, which reads all formats alike, or on the CPU executor by its own products
/// of a matrix and a vector, as decoding computes them. Takes up to half a second and, on cards, 2 GiB.
///
/// # Errors
/// If the device fails or lacks the memory.
pub fn read_bandwidth(device: &Device, format: WeightFormat) -> Result<f64, Error> {
    match device.as_vulkan() {
        Some(vulkan) => Ok(speed::of_class(vulkan, MemoryClass::Weight)?.bytes_per_second),
        None => product_bandwidth(device, format),
    }
}

fn product_bandwidth(device: &Device, format: WeightFormat) -> Result<f64, Error> {
    let free = device.free_memory().map_or(HOST_BYTES, |free| (free / 4) as usize);
    let bytes = HOST_BYTES.min(free) / MATRICES;
    let products: Vec<(usize, Function)> = (0..MATRICES)
        .map(|_| product(device, format, bytes))
        .collect::<Result<_, _>>()?;
    let (start, mut best, mut calls) = (Instant::now(), 0.0f64, 0);
    for (bytes, product) in products.iter().cycle() {
        let call = Instant::now();
        product.call(&[])?;
        best = best.max(*bytes as f64 / call.elapsed().as_secs_f64());
        calls += 1;
        let enough = MEASURE[usize::from(calls < MATRICES)];
        if start.elapsed() > enough {
            break;
        }
    }
    Ok(best)
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

/// A vector's product with a matrix of about so many bytes, and the bytes that it has.
fn product(device: &Device, format: WeightFormat, bytes: usize) -> Result<(usize, Function), Error> {
    let mut taken = 0;
    // Small positive numbers in every format; zeros might never be brought to memory.
    let mut plane = |dtype, rows, columns| {
        taken += rows * columns * DType::size(dtype);
        Array::weight(device, dtype, &[rows, columns], &mut |_, piece| piece.fill(0x3c))
    };
    let vector = Array::ones(device, DType::F32, &[1, COLUMNS]);
    let result = match format {
        WeightFormat::Dense(dtype) => {
            let rows = (bytes / (COLUMNS * dtype.size())).max(1);
            vector.matmul(&plane(dtype, rows, COLUMNS)?.transpose())
        }
        WeightFormat::Quantised(format) => {
            let scale = if format.nested { DType::U32 } else { DType::F16 };
            let (words, scales) = (format.words(COLUMNS), format.scales(COLUMNS));
            let biases = usize::from(format.has_biases());
            let row = words * DType::U32.size() + (1 + biases) * scales * scale.size();
            let rows = (bytes / row).max(1);
            let weight = Quantised {
                format,
                quants: plane(DType::U32, rows, words)?,
                scales: plane(scale, rows, scales)?,
                biases: match format.has_biases() {
                    true => Some(plane(scale, rows, scales)?),
                    false => None,
                },
            };
            weight.matmul(&vector)
        }
    };
    Ok((taken, Function::trace(&[&result])?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_of_every_format_are_measured_with_the_bytes_that_they_read() {
        let device = Device::cpu();
        let dense = [DType::F32, DType::F16, DType::BF16].map(WeightFormat::Dense);
        let quantised = QuantFormat::ALL.map(WeightFormat::Quantised);
        for format in dense.into_iter().chain(quantised) {
            let (bytes, product) = product(&device, format, 64 << 10).unwrap();
            assert!((32 << 10..=64 << 10).contains(&bytes), "{format:?}: {bytes}");
            product.call(&[]).unwrap();
        }
    }
}
