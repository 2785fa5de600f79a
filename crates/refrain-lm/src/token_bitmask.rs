//! Masking of logits by a bitmask of allowed tokens.

use refrain::{Array, DType};

/// Tokens per word of a bitmask.
const WORD_BITS: usize = 32;

/// Returns the number of u32 words of a vocabulary's bitmask.
pub fn token_bitmask_words(vocabulary: usize) -> usize {
    vocabulary.div_ceil(WORD_BITS)
}

/// Masks logits f32 `[S, V]`: keeps those whose token's bit is set, and makes the others minus infinity.
///
/// `bits` is u32 `[S, ⌈V / 32⌉]`; token 0 is the lowest bit of the first word. The result is invalid if shapes do not match.
#[track_caller]
pub fn apply_token_bitmask(logits: &Array, bits: &Array) -> Array {
    let device = logits.device();
    let shifts = Array::arange(device, DType::U32, WORD_BITS);
    let one = Array::ones(device, DType::U32, &[1]);
    let each = bits.expand_dims(-1).shift_right(&shifts).bit_and(&one);
    let vocabulary = logits.shape().last().copied().unwrap_or(0);
    let rows = logits.shape().first().copied().unwrap_or(0);
    let each = each.reshape(&[rows as isize, -1]).slice(-1, 0, vocabulary);
    each.select(logits, f32::NEG_INFINITY)
}
