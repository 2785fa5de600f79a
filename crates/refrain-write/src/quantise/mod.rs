//! Quantising rows of values: the opposite of [`refrain_formats::Tensor::dequantise`].
//!
//! Each format's own file in `refrain-quant` says how, and by whose measure.

#[cfg(test)]
mod tests;

use refrain_formats::Encoding;

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
    let Some(block) = encoding.block() else {
        return narrow(encoding, values, out);
    };
    let encode = block.encode?;
    let values = values.chunks_exact(block.values);
    let mut out = out.chunks_exact_mut(block.bytes);
    values.zip(&mut out).try_for_each(|(values, out)| encode(values, out))
}

/// Round values to F32, F16 or BF16; `None` if one becomes infinite, or the encoding is another.
pub(crate) fn narrow(encoding: Encoding, values: &[f32], out: &mut [u8]) -> Option<()> {
    let stored = encoding.as_scales()?;
    let mut out = out.chunks_exact_mut(stored.size());
    let mut pairs = values.iter().zip(&mut out);
    pairs.try_for_each(|(&value, out)| stored.write(value, out))
}
