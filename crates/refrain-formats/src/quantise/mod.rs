//! Quantising rows of values: the opposite of [`crate::dequantise`].
//!
//! Q8_0, Q4_0, Q5_0 and Q5_1 are byte-equal to the `gguf` Python package's, MLX's affine quantisation to
//! `mlx.core.quantize`'s. The K-quants leave their writer free to choose factors; see [`k_quants`].

pub(crate) mod affine;
mod blocks;
mod k_quants;
#[cfg(test)]
mod tests;

use crate::Encoding;

/// Quantise a row of whole blocks, or round it, into `out`: GGUF blocks, F32, F16 or BF16. `None` if a value or a
/// factor lies outside of what the encoding can hold.
pub(crate) fn row(encoding: Encoding, values: &[f32], out: &mut [u8]) -> Option<()> {
    if !values.iter().all(|value| value.is_finite()) {
        return None;
    }
    // Further out than any block reaches, squares and their sums might not be finite.
    if encoding.block_bytes().is_some() && values.iter().any(|value| value.abs() > 1e9) {
        return None;
    }
    let block: fn(&[f32], &mut [u8]) -> Option<()> = match encoding {
        Encoding::F32 | Encoding::F16 | Encoding::BF16 => return narrow(encoding, values, out),
        Encoding::Q8_0 => blocks::q8_0,
        Encoding::Q4_0 => blocks::q4_0,
        Encoding::Q5_0 => blocks::q5_0,
        Encoding::Q5_1 => blocks::q5_1,
        Encoding::Q3_K => k_quants::q3_k,
        Encoding::Q4_K => k_quants::q4_k,
        Encoding::Q5_K => k_quants::q5_k,
        Encoding::Q6_K => k_quants::q6_k,
        _ => return None,
    };
    let values = values.chunks_exact(encoding.block_values());
    let mut out = out.chunks_exact_mut(encoding.block_bytes().unwrap_or(1));
    values.zip(&mut out).try_for_each(|(values, out)| block(values, out))
}

/// Round values to F32, F16 or BF16; `None` if one becomes infinite.
pub(crate) fn narrow(encoding: Encoding, values: &[f32], out: &mut [u8]) -> Option<()> {
    match encoding {
        Encoding::F32 => {
            for (out, value) in out.as_chunks_mut().0.iter_mut().zip(values) {
                *out = value.to_le_bytes();
            }
        }
        Encoding::BF16 => {
            for (out, &value) in out.as_chunks_mut().0.iter_mut().zip(values) {
                let rounded = half::bf16::from_f32(value);
                *out = rounded.is_finite().then_some(rounded)?.to_le_bytes();
            }
        }
        _ => {
            for (out, &value) in out.as_chunks_mut().0.iter_mut().zip(values) {
                *out = half_float(value)?;
            }
        }
    }
    Some(())
}

/// An f16, `None` if it becomes infinite.
fn half_float(value: f32) -> Option<[u8; 2]> {
    let rounded = half::f16::from_f32(value);
    rounded.is_finite().then(|| rounded.to_le_bytes())
}
