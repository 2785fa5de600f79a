//! MLX's affine quantisation: unsigned integers of `bits` bits, packed into u32 words along the last axis, with a scale
//! and a bias for each group; value = scale·q + bias.

use crate::QuantFormat;
use crate::record::{QuantRecord, RandomScales};
#[cfg(feature = "encode")]
use crate::{ScaleType, bits::pack_bits};

/// One record per number of bits and group size.
pub(super) const RECORDS: [QuantRecord; 18] = [
    record(2, 32, "mlx2g32", "MLX 2-bit/32", &["mlx2-g32"]),
    record(2, 64, "mlx2g64", "MLX 2-bit/64", &["mlx2", "mlx2-g64"]),
    record(2, 128, "mlx2g128", "MLX 2-bit/128", &["mlx2-g128"]),
    record(3, 32, "mlx3g32", "MLX 3-bit/32", &["mlx3-g32"]),
    record(3, 64, "mlx3g64", "MLX 3-bit/64", &["mlx3", "mlx3-g64"]),
    record(3, 128, "mlx3g128", "MLX 3-bit/128", &["mlx3-g128"]),
    record(4, 32, "mlx4g32", "MLX 4-bit/32", &["mlx4-g32"]),
    record(4, 64, "mlx4g64", "MLX 4-bit/64", &["mlx4", "mlx4-g64"]),
    record(4, 128, "mlx4g128", "MLX 4-bit/128", &["mlx4-g128"]),
    record(5, 32, "mlx5g32", "MLX 5-bit/32", &["mlx5-g32"]),
    record(5, 64, "mlx5g64", "MLX 5-bit/64", &["mlx5", "mlx5-g64"]),
    record(5, 128, "mlx5g128", "MLX 5-bit/128", &["mlx5-g128"]),
    record(6, 32, "mlx6g32", "MLX 6-bit/32", &["mlx6-g32"]),
    record(6, 64, "mlx6g64", "MLX 6-bit/64", &["mlx6", "mlx6-g64"]),
    record(6, 128, "mlx6g128", "MLX 6-bit/128", &["mlx6-g128"]),
    record(8, 32, "mlx8g32", "MLX 8-bit/32", &["mlx8-g32"]),
    record(8, 64, "mlx8g64", "MLX 8-bit/64", &["mlx8", "mlx8-g64"]),
    record(8, 128, "mlx8g128", "MLX 8-bit/128", &["mlx8-g128"]),
];

const fn record(
    bits: u32,
    group: u32,
    name: &'static str,
    label: &'static str,
    spellings: &'static [&'static str],
) -> QuantRecord {
    QuantRecord {
        name,
        label,
        spellings,
        format: QuantFormat::mlx(bits, group),
        block: None,
        mode: Some("affine"),
        // bf16, from ±2^-(bits + 4).
        random: RandomScales::Floats {
            random: 0x803f,
            fixed: (123 - bits as u16) << 7,
        },
    }
}

/// Quantises a row of whole groups, with scales and biases rounded to `stored`. Returns `None` if a value is not finite
/// or if a scale or bias is out of range.
#[cfg(feature = "encode")]
pub fn quantise_affine(
    format: QuantFormat,
    stored: ScaleType,
    values: &[f32],
    [quants, scales, biases]: [&mut [u8]; 3],
) -> Option<()> {
    let (bits, group) = (format.bits as usize, format.group as usize);
    let size = stored.size();
    let mut levels = vec![0u8; group];
    let quants = quants.chunks_exact_mut(group * bits / 8);
    let factors = scales.chunks_exact_mut(size).zip(biases.chunks_exact_mut(size));
    for ((values, quants), (scale_out, bias_out)) in values.chunks_exact(group).zip(quants).zip(factors) {
        if !values.iter().all(|value| value.is_finite()) {
            return None;
        }
        let max = ((1u32 << bits) - 1) as f32;
        let (scale, bias) = factors_of(values, max);
        for (level, value) in levels.iter_mut().zip(values) {
            *level = ((value - bias) / scale).round_ties_even().clamp(0.0, max) as u8;
        }
        pack_bits(bits, &levels, quants);
        stored.write(scale, scale_out)?;
        stored.write(bias, bias_out)?;
    }
    Some(())
}

/// Returns scale and bias of a group. The value of the largest magnitude is represented exactly, and so is 0 if a level
/// can represent it.
#[cfg(feature = "encode")]
fn factors_of(values: &[f32], max: f32) -> (f32, f32) {
    let min_value = values.iter().copied().fold(f32::INFINITY, f32::min);
    let max_value = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let down = min_value.abs() > max_value.abs();
    let width = ((max_value - min_value) / max).max(1e-7);
    let (edge, scale) = if down { (min_value, width) } else { (max_value, -width) };
    let steps = (edge / scale).round_ties_even();
    if steps == 0.0 {
        (scale, 0.0)
    } else {
        (edge / steps, edge)
    }
}
