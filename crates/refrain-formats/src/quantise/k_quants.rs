//! K-quants: blocks of 256 values in groups, whose factors are integers times the block's f16 factors.
//!
//! Each group's scale (and minimum) is the weighted least-squares fit to the quants that some trial scale gives;
//! of about twenty trial scales the best is kept. Then the groups' factors are rounded, and the quants taken again.

use half::f16;

use super::half_float;
use crate::Encoding;
use crate::blocks::records::{self, RECORD_BYTES};
use crate::blocks::values::{self, MOST_VALUES};

pub(super) fn q4_k(block: &[f32], out: &mut [u8]) -> Option<()> {
    with_minima(Encoding::Q4_K, 15, block, out)
}

pub(super) fn q5_k(block: &[f32], out: &mut [u8]) -> Option<()> {
    with_minima(Encoding::Q5_K, 31, block, out)
}

pub(super) fn q3_k(block: &[f32], out: &mut [u8]) -> Option<()> {
    centred(Encoding::Q3_K, 4, 32, block, out)
}

pub(super) fn q6_k(block: &[f32], out: &mut [u8]) -> Option<()> {
    centred(Encoding::Q6_K, 32, 128, block, out)
}

/// A block of Q3_K or Q6_K: groups of 16, value = d·factor·q, with q from −`half` to `half` − 1 and the factor from
/// −`most` to `most` − 1.
fn centred(encoding: Encoding, half: u8, most: u8, block: &[f32], out: &mut [u8]) -> Option<()> {
    let (half, most) = (f32::from(half), f32::from(most));
    let mut scales = [0.0; 16];
    for (scale, group) in scales.iter_mut().zip(block.chunks_exact(16)) {
        *scale = fit_centred(group, half);
    }
    let furthest = scales
        .iter()
        .fold(0.0f32, |a, &b| if b.abs() > a.abs() { b } else { a });
    let stored = half_float(furthest / -most)?;
    let d = f16::from_le_bytes(stored).to_f32();
    let (mut quants, mut record) = ([half as u8; MOST_VALUES], [0; RECORD_BYTES]);
    if d != 0.0 {
        for (g, scale) in scales.iter().enumerate() {
            let factor = (scale / d).round().clamp(-most, most - 1.0);
            record[4 + g] = factor as i8 as u8;
            let step = d * factor;
            if step != 0.0 {
                for (q, value) in quants[16 * g..][..16].iter_mut().zip(&block[16 * g..]) {
                    *q = ((value / step).round().clamp(-half, half - 1.0) + half) as u8;
                }
            }
        }
    }
    record[..2].copy_from_slice(&stored);
    records::store(encoding, &record, out);
    values::store(encoding, &quants, out);
    Some(())
}

/// A block of Q4_K or Q5_K: groups of 32, value = scale·q − minimum, q from 0 to `most`.
fn with_minima(encoding: Encoding, most: u8, block: &[f32], out: &mut [u8]) -> Option<()> {
    let (mut scales, mut minima) = ([0.0f32; 8], [0.0f32; 8]);
    for (g, group) in block.chunks_exact(32).enumerate() {
        (scales[g], minima[g]) = fit_affine(group, f32::from(most));
    }
    let largest = |of: &[f32; 8]| of.iter().copied().fold(0.0, f32::max);
    let stored = [
        half_float(largest(&scales) / 63.0)?,
        half_float(largest(&minima) / 63.0)?,
    ];
    let [d, m] = stored.map(|bytes| f16::from_le_bytes(bytes).to_f32());
    let integers = |of: &[f32; 8], unit: f32| {
        of.map(|factor| {
            if unit == 0.0 {
                0
            } else {
                (factor / unit).round().clamp(0.0, 63.0) as u8
            }
        })
    };
    let (scales, minima) = (integers(&scales, d), integers(&minima, m));
    let (mut quants, mut record) = ([0; MOST_VALUES], [0; RECORD_BYTES]);
    record[..2].copy_from_slice(&stored[0]);
    record[2..4].copy_from_slice(&stored[1]);
    record[4..12].copy_from_slice(&scales);
    record[12..].copy_from_slice(&minima);
    for (g, (quants, group)) in quants.chunks_exact_mut(32).zip(block.chunks_exact(32)).enumerate() {
        let (step, minimum) = (d * f32::from(scales[g]), m * f32::from(minima[g]));
        if step != 0.0 {
            for (q, value) in quants.iter_mut().zip(group) {
                *q = ((value + minimum) / step).round().clamp(0.0, f32::from(most)) as u8;
            }
        }
    }
    records::store(encoding, &record, out);
    values::store(encoding, &quants, out);
    Some(())
}

/// Scale and minimum (both at least 0) of a group; value ≈ scale·q − minimum with q from 0 to `most`. Values weigh
/// the more the larger they are.
fn fit_affine(group: &[f32], most: f32) -> (f32, f32) {
    let least = group.iter().copied().fold(0.0, f32::min);
    let largest = group.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if largest <= least {
        return (0.0, -least);
    }
    let mean_square = group.iter().map(|x| x * x).sum::<f32>() / group.len() as f32;
    let weight = |x: f32| mean_square.sqrt() + x.abs();
    let mut best = (f32::INFINITY, 0.0, 0.0);
    for trial in 0..=20 {
        let inverse = (most - 1.0 + 0.1 * trial as f32) / (largest - least);
        let quant = |x: f32| ((x - least) * inverse).round().clamp(0.0, most);
        let (mut w, mut wq, mut wqq, mut wx, mut wxq) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for &x in group {
            let (weight, q) = (weight(x), quant(x));
            w += weight;
            wq += weight * q;
            wqq += weight * q * q;
            wx += weight * x;
            wxq += weight * x * q;
        }
        let determinant = w * wqq - wq * wq;
        let (mut scale, mut offset) = (wxq / wqq, 0.0);
        // Nearly 0 if all quants are the same.
        if determinant > 1e-6 * w * wqq && wqq * wx < wq * wxq {
            scale = (w * wxq - wx * wq) / determinant;
            offset = (wqq * wx - wq * wxq) / determinant;
        }
        let error = |x: f32| weight(x) * (scale * quant(x) + offset - x).powi(2);
        let error: f32 = group.iter().map(|&x| error(x)).sum();
        if scale > 0.0 && error < best.0 {
            best = (error, scale, -offset);
        }
    }
    (best.1, best.2)
}

/// Scale of a group; value ≈ scale·q with q from −`half` to `half` − 1. Values weigh by their squares.
fn fit_centred(group: &[f32], half: f32) -> f32 {
    let furthest = group.iter().fold(0.0f32, |a, &b| if b.abs() > a.abs() { b } else { a });
    if furthest == 0.0 {
        return 0.0;
    }
    // The error falls by what the fit explains.
    let (mut most_explained, mut best) = (0.0, 0.0);
    for trial in -9..=9 {
        let inverse = -(half + 0.1 * trial as f32) / furthest;
        let (mut wxq, mut wqq) = (0.0f32, 0.0f32);
        for &x in group {
            let q = (x * inverse).round().clamp(-half, half - 1.0);
            wxq += x * x * x * q;
            wqq += x * x * q * q;
        }
        if wqq > 0.0 && wxq * wxq > most_explained * wqq {
            (most_explained, best) = (wxq * wxq / wqq, wxq / wqq);
        }
    }
    best
}
