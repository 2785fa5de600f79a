//! Quantises rows of values, the inverse of [`refrain_formats::Tensor::dequantise`].
//!
//! The algorithm of each format lives in its file in `refrain-quant`.

#[cfg(test)]
mod tests;

use refrain_formats::Encoding;

/// Encodes a row of whole blocks into `out`, as GGUF blocks, F32, F16 or BF16. Returns `None` if a value or scale
/// is out of the encoding's range.
pub(crate) fn row(encoding: Encoding, values: &[f32], out: &mut [u8]) -> Option<()> {
    if !values.iter().all(|value| value.is_finite()) {
        return None;
    }
    // No block format reaches further, and squares and their sums might overflow.
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

/// Rounds values to F32, F16 or BF16; `None` if one overflows or the encoding is another.
pub(crate) fn narrow(encoding: Encoding, values: &[f32], out: &mut [u8]) -> Option<()> {
    let stored = encoding.to_scale_type()?;
    let mut out = out.chunks_exact_mut(stored.size());
    let mut pairs = values.iter().zip(&mut out);
    pairs.try_for_each(|(&value, out)| stored.write(value, out))
}
