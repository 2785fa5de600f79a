//! Quantisation: how encoders choose scales and quants.
//!
//! In formats with two levels of scales, about twenty trial scales are tried for each group. Each trial rounds the
//! values to quants, and the group's scale (and minimum) is their weighted least-squares fit. The best fit is kept.
//! Then the groups' scales are rounded to integers times the block's f16 factors, and the quants are computed again.

use half::f16;

/// Rounds to f16, little-endian. Returns `None` if the result is infinite.
pub fn f16_bytes(value: f32) -> Option<[u8; 2]> {
    let rounded = f16::from_f32(value);
    rounded.is_finite().then(|| rounded.to_le_bytes())
}

/// A quantised block of 256 values with two levels of scales.
pub(crate) struct Nested {
    /// One quant per byte.
    pub quants: [u8; 256],
    /// The scale record: two f16 factors and 16 integers.
    pub record: [u8; 20],
}

/// Returns 1 / scale, or 0 for 0.
pub(crate) fn reciprocal(scale: f32) -> f32 {
    if scale == 0.0 { 0.0 } else { 1.0 / scale }
}

/// Returns the value with the largest magnitude, with its sign. Of equal magnitudes the first wins.
pub fn largest_magnitude(block: &[f32]) -> f32 {
    let larger = |found: f32, &value: &f32| if value.abs() > found.abs() { value } else { found };
    block.iter().fold(0.0, larger)
}

/// Quantises 32 values symmetrically to `2·middle` levels. The value of the largest magnitude becomes level 0.
pub(crate) fn centred(block: &[f32], middle: u8) -> (f32, [u8; 32]) {
    let scale = largest_magnitude(block) / -f32::from(middle);
    let inverse = f64::from(reciprocal(scale));
    let mut quants = [0; 32];
    for (q, &value) in quants.iter_mut().zip(block) {
        // f32 would round some sums up to the next integer.
        let level = f64::from(value) * inverse + (f64::from(middle) + 0.5);
        *q = (level as u8).min(2 * middle - 1);
    }
    (scale, quants)
}

/// Quantises a block of groups of 16: value = d·factor·q, with q in −`half_range`..`half_range` and the factor in
/// −`max_factor`..`max_factor`.
pub(crate) fn nested_centred(half_range: u8, max_factor: u8, block: &[f32]) -> Option<Nested> {
    let (half_range, max_factor) = (f32::from(half_range), f32::from(max_factor));
    let mut scales = [0.0; 16];
    for (scale, group) in scales.iter_mut().zip(block.chunks_exact(16)) {
        *scale = fit_centred(group, half_range);
    }
    let stored = f16_bytes(largest_magnitude(&scales) / -max_factor)?;
    let d = f16::from_le_bytes(stored).to_f32();
    let (mut quants, mut record) = ([half_range as u8; 256], [0; 20]);
    if d != 0.0 {
        for (g, scale) in scales.iter().enumerate() {
            let factor = (scale / d).round().clamp(-max_factor, max_factor - 1.0);
            record[4 + g] = factor as i8 as u8;
            let step = d * factor;
            if step != 0.0 {
                for (q, value) in quants[16 * g..][..16].iter_mut().zip(&block[16 * g..]) {
                    *q = ((value / step).round().clamp(-half_range, half_range - 1.0) + half_range) as u8;
                }
            }
        }
    }
    record[..2].copy_from_slice(&stored);
    Some(Nested { quants, record })
}

/// Quantises a block of groups of 32: value = scale·q − minimum, with q in 0..=`max_quant`.
pub(crate) fn nested_with_minima(max_quant: u8, block: &[f32]) -> Option<Nested> {
    let (mut scales, mut minima) = ([0.0f32; 8], [0.0f32; 8]);
    for (g, group) in block.chunks_exact(32).enumerate() {
        (scales[g], minima[g]) = fit_affine(group, f32::from(max_quant));
    }
    let largest = |of: &[f32; 8]| of.iter().copied().fold(0.0, f32::max);
    let stored = [f16_bytes(largest(&scales) / 63.0)?, f16_bytes(largest(&minima) / 63.0)?];
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
    let (mut quants, mut record) = ([0; 256], [0; 20]);
    record[..2].copy_from_slice(&stored[0]);
    record[2..4].copy_from_slice(&stored[1]);
    record[4..12].copy_from_slice(&scales);
    record[12..].copy_from_slice(&minima);
    for (g, (quants, group)) in quants.chunks_exact_mut(32).zip(block.chunks_exact(32)).enumerate() {
        let (step, minimum) = (d * f32::from(scales[g]), m * f32::from(minima[g]));
        if step != 0.0 {
            for (q, value) in quants.iter_mut().zip(group) {
                *q = ((value + minimum) / step).round().clamp(0.0, f32::from(max_quant)) as u8;
            }
        }
    }
    Some(Nested { quants, record })
}

/// Returns scale and minimum (both at least 0) of a group: value ≈ scale·q − minimum, with q in 0..=`max_quant`. The
/// weight of a value grows with its magnitude.
pub(crate) fn fit_affine(group: &[f32], max_quant: f32) -> (f32, f32) {
    let min = group.iter().copied().fold(0.0, f32::min);
    let max = group.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if max <= min {
        return (0.0, -min);
    }
    let mean_square = group.iter().map(|x| x * x).sum::<f32>() / group.len() as f32;
    let weight = |x: f32| mean_square.sqrt() + x.abs();
    let mut best = (f32::INFINITY, 0.0, 0.0);
    for trial in 0..=20 {
        let inverse = (max_quant - 1.0 + 0.1 * trial as f32) / (max - min);
        let quant = |x: f32| ((x - min) * inverse).round().clamp(0.0, max_quant);
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
        // The determinant is nearly 0 if all quants are equal.
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

/// Returns the scale of a group: value ≈ scale·q, with q in −`half`..`half`. The weight of a value is its square.
pub(crate) fn fit_centred(group: &[f32], half: f32) -> f32 {
    let extreme = largest_magnitude(group);
    if extreme == 0.0 {
        return 0.0;
    }
    // The squared error is a constant minus what the fit explains.
    let (mut most_explained, mut best) = (0.0, 0.0);
    for trial in -9..=9 {
        let inverse = -(half + 0.1 * trial as f32) / extreme;
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

/// Returns the index of the codebook entry nearest to `value`. Of equal distances the first wins.
pub fn nearest(value: f32, book: &[i8; 16]) -> u8 {
    let distance = |index: u8| (f32::from(book[usize::from(index)]) - value).abs();
    (1..16).fold(
        0,
        |best, index| if distance(index) < distance(best) { index } else { best },
    )
}

/// Returns the scale of a group: value ≈ scale·book[q]. The weight of a value is its square.
pub(crate) fn fit_book(group: &[f32], book: &[i8; 16]) -> f32 {
    let extreme = largest_magnitude(group);
    if extreme == 0.0 {
        return 0.0;
    }
    // The squared error is a constant minus what the fit explains.
    let (mut most_explained, mut best) = (0.0, 0.0);
    for trial in -7..=7 {
        let inverse = (f32::from(book[0]) + trial as f32) / extreme;
        let (mut wxq, mut wqq) = (0.0f32, 0.0f32);
        for &x in group {
            let q = f32::from(book[usize::from(nearest(x * inverse, book))]);
            wxq += x * x * x * q;
            wqq += x * x * q * q;
        }
        if wqq > 0.0 && wxq * wxq > most_explained * wqq {
            (most_explained, best) = (wxq * wxq / wqq, wxq / wqq);
        }
    }
    best
}
