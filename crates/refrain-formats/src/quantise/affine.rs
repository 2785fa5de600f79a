//! MLX's affine quantisation: value = scale·q + bias over groups of a row.

use super::narrow;
use crate::Encoding;
use crate::blocks::values::pack;

/// Quantise a row of whole groups. `scale_encoding` is what scales and biases are rounded to. `None` if a value or
/// a factor lies outside of what can be held.
pub(crate) fn row(
    (bits, group): (u8, u16),
    scale_encoding: Encoding,
    values: &[f32],
    [quants, scales, biases]: [&mut [u8]; 3],
) -> Option<()> {
    let (bits, group) = (usize::from(bits), usize::from(group));
    let size = scale_encoding.value_bytes().unwrap_or(2);
    let mut levels = vec![0u8; group];
    let quants = quants.chunks_exact_mut(group * bits / 8);
    let factors = scales.chunks_exact_mut(size).zip(biases.chunks_exact_mut(size));
    for ((values, quants), (scale_out, bias_out)) in values.chunks_exact(group).zip(quants).zip(factors) {
        if !values.iter().all(|value| value.is_finite()) {
            return None;
        }
        let most = ((1u32 << bits) - 1) as f32;
        let (scale, bias) = factors_of(values, most);
        for (level, value) in levels.iter_mut().zip(values) {
            *level = ((value - bias) / scale).round_ties_even().clamp(0.0, most) as u8;
        }
        pack(bits, &levels, quants);
        narrow(scale_encoding, &[scale], scale_out)?;
        narrow(scale_encoding, &[bias], bias_out)?;
    }
    Some(())
}

/// Scale and bias of a group: the extreme value that is further from 0 is met, and 0 too where a level can.
fn factors_of(values: &[f32], most: f32) -> (f32, f32) {
    let least = values.iter().copied().fold(f32::INFINITY, f32::min);
    let largest = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let down = least.abs() > largest.abs();
    let width = ((largest - least) / most).max(1e-7);
    let (edge, scale) = if down { (least, width) } else { (largest, -width) };
    let steps = (edge / scale).round_ties_even();
    if steps == 0.0 {
        (scale, 0.0)
    } else {
        (edge / steps, edge)
    }
}
