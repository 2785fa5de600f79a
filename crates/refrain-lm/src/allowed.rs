//! Which tokens may be picked.

use refrain::{Array, DType};

/// Tokens that a word of [`only_allowed`]'s bits stands for.
const BITS: usize = 32;

/// Words of the bits of a vocabulary.
pub fn words_of_bits(vocabulary: usize) -> usize {
    vocabulary.div_ceil(BITS)
}

/// Logits f32 `[S, V]` where the bit of a token is set, bits u32 `[S, ⌈V / 32⌉]`, token 0 the lowest bit of the first
/// word; minus infinity elsewhere. Invalid where shapes do not fit.
#[track_caller]
pub fn only_allowed(logits: &Array, bits: &Array) -> Array {
    let device = logits.device();
    let places = Array::arange(device, DType::U32, BITS);
    let one = Array::ones(device, DType::U32, &[1]);
    let each = bits.expand_dims(-1).shift_right(&places).bit_and(&one);
    let vocabulary = logits.shape().last().copied().unwrap_or(0);
    let rows = logits.shape().first().copied().unwrap_or(0);
    let each = each.reshape(&[rows as isize, -1]).slice(-1, 0, vocabulary);
    each.select(logits, f32::NEG_INFINITY)
}
