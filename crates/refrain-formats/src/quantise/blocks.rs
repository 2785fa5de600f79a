//! Blocks of 32 values with one scale.

use super::half_float;
use crate::Encoding;
use crate::blocks::values;

/// One over a scale; 0 for 0.
fn reciprocal(scale: f32) -> f32 {
    if scale == 0.0 { 0.0 } else { 1.0 / scale }
}

/// The value that is furthest from 0, the first of those.
fn furthest(block: &[f32]) -> f32 {
    let further = |found: f32, &value: &f32| if value.abs() > found.abs() { value } else { found };
    block.iter().fold(0.0, further)
}

/// Quants of a scale that takes the furthest value to the lowest of `2·middle` levels.
fn centred(block: &[f32], middle: u8) -> (f32, [u8; 32]) {
    let scale = furthest(block) / -f32::from(middle);
    let inverse = f64::from(reciprocal(scale));
    let mut quants = [0; 32];
    for (q, &value) in quants.iter_mut().zip(block) {
        // In f64: f32 rounds some sums up to the next integer.
        let level = f64::from(value) * inverse + (f64::from(middle) + 0.5);
        *q = (level as u8).min(2 * middle - 1);
    }
    (scale, quants)
}

pub(super) fn q8_0(block: &[f32], out: &mut [u8]) -> Option<()> {
    let scale = furthest(block).abs() / 127.0;
    let inverse = reciprocal(scale);
    out[..2].copy_from_slice(&half_float(scale)?);
    for (out, value) in out[2..].iter_mut().zip(block) {
        *out = (value * inverse).round() as i8 as u8;
    }
    Some(())
}

pub(super) fn q4_0(block: &[f32], out: &mut [u8]) -> Option<()> {
    let (scale, quants) = centred(block, 8);
    out[..2].copy_from_slice(&half_float(scale)?);
    values::store(Encoding::Q4_0, &quants, out);
    Some(())
}

pub(super) fn q5_0(block: &[f32], out: &mut [u8]) -> Option<()> {
    let (scale, quants) = centred(block, 16);
    out[..2].copy_from_slice(&half_float(scale)?);
    values::store(Encoding::Q5_0, &quants, out);
    Some(())
}

pub(super) fn q5_1(block: &[f32], out: &mut [u8]) -> Option<()> {
    let least = block.iter().copied().fold(f32::INFINITY, f32::min);
    let most = block.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let scale = (most - least) / 31.0;
    let inverse = reciprocal(scale);
    let mut quants = [0; 32];
    for (q, value) in quants.iter_mut().zip(block) {
        *q = (((value - least) * inverse + 0.5) as u8).min(31);
    }
    out[..2].copy_from_slice(&half_float(scale)?);
    out[2..4].copy_from_slice(&half_float(least)?);
    values::store(Encoding::Q5_1, &quants, out);
    Some(())
}
