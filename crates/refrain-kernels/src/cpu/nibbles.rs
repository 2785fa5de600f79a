//! Integer products of four-bit weights with one vector, on processors that multiply 16 or 32 bytes at a time.
//!
//! Each value of the vector becomes a 24-bit integer times a power of two that its block shares. The rounding error is
//! no larger than that of sums of floats.

use std::ops::Range;

use multiversion::multiversion;
use multiversion::target::{match_target, target_cfg_f};

use super::blocks::{BlockRows, PackedVector};
use super::f32x8::{BLOCK, F32x8, F32x32};
use super::packed::{Packed, Unsigned};
use super::scales::{CHUNK, StoredParameters};

/// Rows of four-bit values. A block holds one group or a part of one.
pub(super) struct NibbleRows<'a, P>(pub Packed<'a, 16, Unsigned, P>);

/// A vector to multiply with rows of four-bit values.
pub(super) enum NibbleVector {
    Integers(IntegerVector),
    Floats(PackedVector),
}

/// `x = (256 · high + low) · factor`, with zeros after the last block.
#[derive(Default)]
pub(super) struct IntegerVector {
    /// Per two blocks. Value `j` of each 16-bit word is in part `j`.
    high: Vec<[[i16; 16]; 4]>,
    /// Per two blocks. Parts 0 and 2 alternate in the first array, parts 1 and 3 in the second.
    low: Vec<[[i8; 32]; 2]>,
    /// For each chunk, the factors of its blocks and the sums of their values.
    factors: Vec<[F32x8; 2]>,
}

/// Maximum integer: its rounded high part still fits 16 bits with the sign.
const MAX_INTEGER: f32 = (32_767 * 256 + 127) as f32;

#[multiversion(targets("x86_64+avx2+fma+f16c"))]
fn integers(x: &[f32]) -> Option<IntegerVector> {
    if !target_cfg_f!(all(
        target_feature = "avx2",
        target_feature = "fma",
        target_feature = "f16c"
    )) {
        return None;
    }
    let (blocks, _) = x.as_chunks::<BLOCK>();
    let mut vector = IntegerVector {
        high: vec![[[0; 16]; 4]; blocks.len().div_ceil(2)],
        low: vec![[[0; 32]; 2]; blocks.len().div_ceil(2)],
        factors: vec![[F32x8::ZERO; 2]; blocks.len().div_ceil(CHUNK)],
    };
    for (number, block) in blocks.iter().enumerate() {
        let (high, low) = (&mut vector.high[number / 2], &mut vector.low[number / 2]);
        let largest = block.iter().fold(0.0f32, |max, value| max.max(value.abs()));
        // The exponent of the largest value, minus 22; never subnormal.
        let power = (largest.to_bits() & 0x7f80_0000).max(24 << 23);
        let (factor, inverse) = (
            f32::from_bits(power - (22 << 23)),
            f32::from_bits((254 << 23) + (22 << 23) - power),
        );
        let mut rounded = [0i32; BLOCK];
        for (rounded, value) in rounded.iter_mut().zip(block) {
            *rounded = (value * inverse).round_ties_even().clamp(-MAX_INTEGER, MAX_INTEGER) as i32;
        }
        let first = number % 2 * (BLOCK / 4);
        for (place, rounded) in rounded.iter().enumerate() {
            let (l, j, upper) = (first + place / 4, place % 4, (rounded + 128) >> 8);
            high[j][l] = upper as i16;
            low[j % 2][2 * l + j / 2] = (rounded - (upper << 8)) as i8;
        }
        let [factors, sums] = &mut vector.factors[number / CHUNK];
        factors.0[number % CHUNK] = factor;
        // The sum is below 2^28. A block with non-finite values yields NaN.
        let is_finite = block.iter().all(|value| value.is_finite());
        sums.0[number % CHUNK] = if is_finite {
            rounded.iter().sum::<i32>() as f32 * factor
        } else {
            f32::NAN
        };
    }
    Some(vector)
}

impl<'a, P: StoredParameters<'a>> BlockRows for NibbleRows<'a, P> {
    const INTERLEAVED: bool = true;
    type Vector = NibbleVector;

    fn vector(x: &[f32]) -> NibbleVector {
        match integers(x) {
            Some(x) => NibbleVector::Integers(x),
            None => NibbleVector::Floats(Packed::<16, Unsigned, P>::vector(x)),
        }
    }

    fn multiply_one(&self, rows: Range<usize>, x: &NibbleVector, out: &mut [f32]) {
        match x {
            NibbleVector::Integers(x) => multiply_integers(&self.0, rows, x, out),
            NibbleVector::Floats(x) => self.0.multiply_one(rows, x, out),
        }
    }

    fn unpack(&self, rows: Range<usize>, length: usize, unpacked: &mut [F32x32]) {
        self.0.unpack(rows, length, unpacked);
    }
}

/// Dot products of some rows with one vector, `[rows]`.
#[multiversion(targets("x86_64+avx2+fma+f16c"))]
fn multiply_integers<'a, P: StoredParameters<'a>>(
    w: &Packed<'a, 16, Unsigned, P>,
    rows: Range<usize>,
    x: &IntegerVector,
    out: &mut [f32],
) {
    match_target! {
        "x86_64+avx2+fma+f16c" => avx2::multiply(w, rows, x, out),
        _ => {
            let _ = (w, rows, x, out);
            unreachable!("integer vectors exist only with AVX2");
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    use bytemuck::cast;

    use super::*;
    use crate::cpu::packed::{ROWS_AT_ONCE, quarters};

    /// Pairs of blocks per chunk.
    const PAIRS: usize = CHUNK / 2;

    #[target_feature(enable = "avx2,fma,f16c")]
    pub fn multiply<'a, P: StoredParameters<'a>>(
        w: &Packed<'a, 16, Unsigned, P>,
        rows: Range<usize>,
        x: &IntegerVector,
        out: &mut [f32],
    ) {
        for places in quarters(rows.len()) {
            let numbers = places.map(|place| rows.start + place);
            let blocks = numbers.map(|number| w.row(number));
            let mut sums = [_mm256_setzero_ps(); ROWS_AT_ONCE];
            let pairs = x.high.chunks(PAIRS).zip(x.low.chunks(PAIRS));
            for (chunk, ([factors, x_sums], (high, low))) in x.factors.iter().zip(pairs).enumerate() {
                for r in 0..ROWS_AT_ONCE {
                    let read = w.parameters(numbers[r], chunk, |bytes| F32x8(cast(_mm256_cvtph_ps(cast(bytes)))));
                    let scales = _mm256_mul_ps(cast(read.scales[0].0), cast(factors.0));
                    let mut sum = _mm256_fmadd_ps(cast(read.biases[0].0), cast(x_sums.0), sums[r]);
                    let mut accumulate_pair = |pair: usize, words| {
                        let of_pair = [0, 0, 0, 0, 1, 1, 1, 1].map(|second| 2 * pair as i32 + second);
                        let scales = _mm256_permutevar8x32_ps(scales, cast(of_pair));
                        let products = _mm256_cvtepi32_ps(accumulate(words, &high[pair], &low[pair]));
                        sum = _mm256_fmadd_ps(products, scales, sum);
                    };
                    let blocks = &blocks[r][chunk * CHUNK..];
                    match blocks.first_chunk::<CHUNK>() {
                        Some(blocks) if high.len() == PAIRS && low.len() == PAIRS => {
                            (0..PAIRS)
                                .for_each(|pair| accumulate_pair(pair, cast([blocks[2 * pair], blocks[2 * pair + 1]])));
                        }
                        _ => (0..high.len()).for_each(|pair| accumulate_pair(pair, last(blocks, pair))),
                    }
                    sums[r] = sum;
                }
            }
            for (place, sum) in places.into_iter().zip(sums) {
                out[place] = F32x8(cast(sum)).sum();
            }
        }
    }

    /// Two blocks; the second is zero beyond the end.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn last(row: &[[u8; 16]], pair: usize) -> __m256i {
        match row[2 * pair..] {
            [first, second, ..] => cast([first, second]),
            ref rest => cast([rest[0], [0; 16]]),
        }
    }

    /// Products of two blocks with those of a vector, as eight sums.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn accumulate(words: __m256i, high: &[[i16; 16]; 4], low: &[[i8; 32]; 2]) -> __m256i {
        let nibbles = |shifted| _mm256_and_si256(shifted, _mm256_set1_epi8(15));
        let [even, odd] = [nibbles(words), nibbles(_mm256_srli_epi16::<4>(words))];
        let first = |bytes| _mm256_and_si256(bytes, _mm256_set1_epi16(255));
        let second = |bytes| _mm256_srli_epi16::<8>(bytes);
        let by = |values, part: usize| _mm256_madd_epi16(values, cast(high[part]));
        let (a, b) = (by(first(even), 0), by(first(odd), 1));
        let (c, d) = (by(second(even), 2), by(second(odd), 3));
        let upper = _mm256_add_epi32(_mm256_add_epi32(a, b), _mm256_add_epi32(c, d));
        let [even, odd] = [
            _mm256_maddubs_epi16(even, cast(low[0])),
            _mm256_maddubs_epi16(odd, cast(low[1])),
        ];
        let lower = _mm256_madd_epi16(_mm256_add_epi16(even, odd), _mm256_set1_epi16(1));
        _mm256_add_epi32(_mm256_slli_epi32::<8>(upper), lower)
    }
}
