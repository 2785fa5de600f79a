//! One vector and rows of four-bit values, by integers, where the processor multiplies 16 or 32 of them at a time:
//! a number of the vector is one of 24 bits and a power of two that its block shares, which loses no more than sums
//! of floats do.

use std::ops::Range;

use multiversion::multiversion;
use multiversion::target::{match_target, target_cfg_f};

use super::blocks::{BlockRows, PackedVector};
use super::octet::{BLOCK, Octet, Quartet};
use super::packed::{Packed, Unsigned};
use super::scales::{CHUNK, StoredParameters};

/// Rows of four-bit values, one group or a part of one to a block.
pub(super) struct Nibbles<'a, P>(pub Packed<'a, 16, Unsigned, P>);

/// A vector that rows of nibbles meet.
pub(super) enum NibbleVector {
    Integers(IntegerVector),
    Floats(PackedVector),
}

/// `x = (256 · high + low) · factor`, zeros after the last block.
#[derive(Default)]
pub(super) struct IntegerVector {
    /// By two blocks; the four values of a word of them are in one place of the four parts.
    high: Vec<[[i16; 16]; 4]>,
    /// By two blocks; parts 0 and 2 take turns in the first, parts 1 and 3 in the second.
    low: Vec<[[i8; 32]; 2]>,
    /// For each chunk the factors of its blocks, and the sums of their values.
    factors: Vec<[Octet; 2]>,
}

/// The largest number: 16 bits with the sign when rounded to its high part.
const MOST: f32 = (32_767 * 256 + 127) as f32;

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
        factors: vec![[Octet::ZERO; 2]; blocks.len().div_ceil(CHUNK)],
    };
    for (number, block) in blocks.iter().enumerate() {
        let (high, low) = (&mut vector.high[number / 2], &mut vector.low[number / 2]);
        let largest = block.iter().fold(0.0f32, |most, value| most.max(value.abs()));
        // The power of two that the largest one has, 22 bits lower; none that is subnormal.
        let power = (largest.to_bits() & 0x7f80_0000).max(24 << 23);
        let (factor, inverse) = (
            f32::from_bits(power - (22 << 23)),
            f32::from_bits((254 << 23) + (22 << 23) - power),
        );
        let mut rounded = [0i32; BLOCK];
        for (rounded, value) in rounded.iter_mut().zip(block) {
            *rounded = (value * inverse).round_ties_even().clamp(-MOST, MOST) as i32;
        }
        let first = number % 2 * (BLOCK / 4);
        for (place, rounded) in rounded.iter().enumerate() {
            let (l, j, upper) = (first + place / 4, place % 4, (rounded + 128) >> 8);
            high[j][l] = upper as i16;
            low[j % 2][2 * l + j / 2] = (rounded - (upper << 8)) as i8;
        }
        let [factors, sums] = &mut vector.factors[number / CHUNK];
        factors.0[number % CHUNK] = factor;
        // Below 2^28; what is not finite is no number.
        let is_finite = block.iter().all(|value| value.is_finite());
        sums.0[number % CHUNK] = if is_finite {
            rounded.iter().sum::<i32>() as f32 * factor
        } else {
            f32::NAN
        };
    }
    Some(vector)
}

impl<'a, P: StoredParameters<'a>> BlockRows for Nibbles<'a, P> {
    const INTERLEAVED: bool = true;
    type Vector = NibbleVector;

    fn vector(x: &[f32]) -> NibbleVector {
        match integers(x) {
            Some(x) => NibbleVector::Integers(x),
            None => NibbleVector::Floats(Packed::<16, Unsigned, P>::vector(x)),
        }
    }

    fn one(&self, rows: Range<usize>, x: &NibbleVector, out: &mut [f32]) {
        match x {
            NibbleVector::Integers(x) => by_integers(&self.0, rows, x, out),
            NibbleVector::Floats(x) => self.0.one(rows, x, out),
        }
    }

    fn unpack(&self, rows: Range<usize>, length: usize, unpacked: &mut [Quartet]) {
        self.0.unpack(rows, length, unpacked);
    }
}

/// Products of some rows with one vector, `[rows]`.
#[multiversion(targets("x86_64+avx2+fma+f16c"))]
fn by_integers<'a, P: StoredParameters<'a>>(
    w: &Packed<'a, 16, Unsigned, P>,
    rows: Range<usize>,
    x: &IntegerVector,
    out: &mut [f32],
) {
    match_target! {
        "x86_64+avx2+fma+f16c" => avx2::multiply(w, rows, x, out),
        _ => {
            let _ = (w, rows, x, out);
            unreachable!("integers are made where they are multiplied");
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    use bytemuck::cast;

    use super::*;
    use crate::cpu::packed::{TOGETHER, quarters};

    /// Pairs of a chunk's blocks.
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
            let mut sums = [_mm256_setzero_ps(); TOGETHER];
            let pairs = x.high.chunks(PAIRS).zip(x.low.chunks(PAIRS));
            for (chunk, ([factors, x_sums], (high, low))) in x.factors.iter().zip(pairs).enumerate() {
                for r in 0..TOGETHER {
                    let read = w.parameters(numbers[r], chunk, |bytes| Octet(cast(_mm256_cvtph_ps(cast(bytes)))));
                    let scales = _mm256_mul_ps(cast(read.scales[0].0), cast(factors.0));
                    let mut sum = _mm256_fmadd_ps(cast(read.biases[0].0), cast(x_sums.0), sums[r]);
                    let mut meet_pair = |pair: usize, words| {
                        let of_pair = [0, 0, 0, 0, 1, 1, 1, 1].map(|second| 2 * pair as i32 + second);
                        let scales = _mm256_permutevar8x32_ps(scales, cast(of_pair));
                        let products = _mm256_cvtepi32_ps(meet(words, &high[pair], &low[pair]));
                        sum = _mm256_fmadd_ps(products, scales, sum);
                    };
                    let blocks = &blocks[r][chunk * CHUNK..];
                    match blocks.first_chunk::<CHUNK>() {
                        Some(blocks) if high.len() == PAIRS && low.len() == PAIRS => {
                            (0..PAIRS).for_each(|pair| meet_pair(pair, cast([blocks[2 * pair], blocks[2 * pair + 1]])));
                        }
                        _ => (0..high.len()).for_each(|pair| meet_pair(pair, last(blocks, pair))),
                    }
                    sums[r] = sum;
                }
            }
            for (place, sum) in places.into_iter().zip(sums) {
                out[place] = Octet(cast(sum)).sum();
            }
        }
    }

    /// Two blocks, the second of zeros where there is none.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn last(row: &[[u8; 16]], pair: usize) -> __m256i {
        match row[2 * pair..] {
            [first, second, ..] => cast([first, second]),
            ref rest => cast([rest[0], [0; 16]]),
        }
    }

    /// The products of two blocks' numbers with those of a vector, as eight sums.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn meet(words: __m256i, high: &[[i16; 16]; 4], low: &[[i8; 32]; 2]) -> __m256i {
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
