//! Block formats of the KV cache: blocks of 32 values of a head share an f16 scale.
//!
//! A head of `dim` values (a multiple of 32) is a row of u32 words: first the quants, value `k` at bit `k·bits` of the
//! row, low bits first, in two's complement; then the blocks' f16 scales, two a word; then padding to whole units of
//! eight quants. The value is scale · quant. A state of keys or values is u32 `[slots, KVH, words]`.
//!
//! A format is one [`BlockFormat`]. Shaders read and write all of them with `blocks.glsl`.

use half::f16;

use crate::DType;
use crate::kit::text::SourceBuilder;
use crate::matmul::WeightRows;

/// Values per block.
const BLOCK: usize = 32;
/// Values per unit, which shaders load at once.
pub(super) const UNIT: usize = 8;
/// The largest head dimension.
const MAX_HEAD_DIM: usize = 256;
/// Stands for the scale of a block with values that are infinite, not a number, or too large.
const NAN_SCALE: u16 = 0x7e00;

/// How blocks of keys or values are stored in the KV cache.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BlockFormat {
    /// Name in options and messages.
    pub name: &'static str,
    /// Bits per quant.
    pub bits: u32,
    /// Quant of the value of largest magnitude.
    pub extreme: i32,
}

impl BlockFormat {
    /// Signed bytes; the largest is 127.
    pub const Q8_0: BlockFormat = BlockFormat {
        name: "q8_0",
        bits: 8,
        extreme: 127,
    };
    /// Signed nibbles; the value of largest magnitude is −8, whatever its sign, so that all 16 quants are used.
    pub const Q4_0: BlockFormat = BlockFormat {
        name: "q4_0",
        bits: 4,
        extreme: -8,
    };
    /// All formats.
    pub const ALL: [BlockFormat; 2] = [BlockFormat::Q8_0, BlockFormat::Q4_0];

    /// Whether heads of `dim` values can be stored.
    pub fn supports(self, dim: usize) -> bool {
        dim > 0 && dim.is_multiple_of(BLOCK)
    }

    /// Returns the u32 words of a head of `dim` values.
    pub fn words(self, dim: usize) -> usize {
        let unit = UNIT * self.bits as usize / 32;
        (self.quant_words(dim) + dim.div_ceil(2 * BLOCK)).next_multiple_of(unit)
    }

    /// Returns the dimension of a head of `words` words, if there is one.
    pub fn dim(self, words: usize) -> Option<usize> {
        (BLOCK..=MAX_HEAD_DIM)
            .step_by(BLOCK)
            .find(|&dim| self.words(dim) == words)
    }

    fn quant_words(self, dim: usize) -> usize {
        dim * self.bits as usize / 32
    }

    /// Returns the scale of a block and its quants.
    fn quantise(self, block: &[f32]) -> (u16, [i32; BLOCK]) {
        // By bits, infinities and NaN are the largest.
        let magnitude = |x: f32| x.abs().to_bits();
        let largest = block
            .iter()
            .fold(0f32, |a, &b| if magnitude(b) > magnitude(a) { b } else { a });
        let scale = f16::from_f32(largest / self.extreme as f32);
        if !largest.is_finite() || !scale.is_finite() {
            return (NAN_SCALE, [0; BLOCK]);
        }
        let least = -(1 << (self.bits - 1));
        let quant = |x: f32| match scale.to_f32() {
            0.0 => 0,
            scale => (x / scale).round_ties_even() as i32,
        };
        let quants = std::array::from_fn(|i| quant(block[i]).clamp(least, -least - 1));
        (scale.to_bits(), quants)
    }

    /// Encodes rows of heads of `dim` values as the words of a state.
    ///
    /// # Panics
    /// Panics if `values` are not whole heads, or the format does not support them.
    pub fn encode(self, values: &[f32], dim: usize) -> Vec<u32> {
        assert!(
            self.supports(dim) && values.len().is_multiple_of(dim),
            "{dim} values a head"
        );
        let (words, bits) = (self.words(dim), self.bits as usize);
        let mut state = vec![0u32; values.len() / dim * words];
        for (head, words) in values.chunks_exact(dim).zip(state.chunks_exact_mut(words)) {
            for (number, block) in head.chunks_exact(BLOCK).enumerate() {
                let (scale, quants) = self.quantise(block);
                for (i, quant) in quants.into_iter().enumerate() {
                    let bit = (number * BLOCK + i) * bits;
                    words[bit / 32] |= (quant as u32 & ((1 << bits) - 1)) << (bit % 32);
                }
                words[self.quant_words(dim) + number / 2] |= u32::from(scale) << (number % 2 * 16);
            }
        }
        state
    }

    /// Decodes a head of `out.len()` values.
    fn decode(self, words: &[u32], out: &mut [f32]) {
        let (bits, scales) = (self.bits as usize, self.quant_words(out.len()));
        for (number, block) in out.chunks_exact_mut(BLOCK).enumerate() {
            let scale = f16::from_bits((words[scales + number / 2] >> (number % 2 * 16)) as u16).to_f32();
            for (i, value) in block.iter_mut().enumerate() {
                let bit = (number * BLOCK + i) * bits;
                let quant = (words[bit / 32] << (32 - bits - bit % 32)) as i32 >> (32 - bits);
                *value = scale * quant as f32;
            }
        }
    }

    /// Returns GLSL that reads and writes states of this format; its names begin with `name`.
    pub(super) fn text(self, name: &str) -> String {
        let (unit, size, word, bytes) = match self.bits {
            8 => ("uvec2", "8", "unit.quants[bit / 32u]", "unit.quants"),
            // A nibble in the higher half of a byte is 16 times its value.
            _ => (
                "uint",
                "4",
                "unit.quants",
                "uvec2(unit.quants << 4, unit.quants) & 0xf0f0f0f0u",
            ),
        };
        include_str!("blocks.glsl")
            .replace("NAME", name)
            .replace("UNIT_TYPE", unit)
            .replace("UNIT_BYTES", size)
            .replace("AS_BYTES", bytes)
            .replace("UNIT_WORD", word)
            .replace("BITS", &format!("{}u", self.bits))
            .replace("EXTREME", &format!("{}.0", self.extreme))
            .replace("LEAST", &format!("{}.0", -(1 << (self.bits - 1))))
            .replace("MOST", &format!("{}.0", (1 << (self.bits - 1)) - 1))
    }
}

/// The rows of a state in a block format: all heads of a slot.
pub struct BlockRows<'a> {
    format: BlockFormat,
    kv_heads: usize,
    dim: usize,
    words: &'a [u32],
}

impl<'a> BlockRows<'a> {
    /// Views the words of a state whose slots have `kv_heads` heads of `dim` values.
    pub fn new(format: BlockFormat, kv_heads: usize, dim: usize, words: &'a [u32]) -> BlockRows<'a> {
        BlockRows {
            format,
            kv_heads,
            dim,
            words,
        }
    }
}

impl WeightRows for BlockRows<'_> {
    fn count(&self) -> usize {
        self.words.len() / (self.kv_heads * self.format.words(self.dim)).max(1)
    }

    fn columns(&self) -> usize {
        self.kv_heads * self.dim
    }

    fn read(&self, row: usize, out: &mut [f32]) {
        let words = self.format.words(self.dim);
        let heads = self.words[row * self.kv_heads * words..].chunks_exact(words);
        for (head, out) in heads.zip(out.chunks_exact_mut(self.dim)) {
            self.format.decode(head, out);
        }
    }
}

impl SourceBuilder<'_> {
    /// Adds access to the state `name`, if it is in a block format.
    pub(super) fn blocks(self, name: &str, format: Option<BlockFormat>) -> Self {
        match format {
            Some(format) => self
                .define(&format!("{}_BLOCKS", name.to_uppercase()), format.name)
                .body(&format.text(name)),
            None => self,
        }
    }

    /// Adds loads of pairs of the state `name`, which is in a block format or in floats of `dtype`.
    pub(super) fn pairs_or_blocks(self, name: &str, dtype: DType, format: Option<BlockFormat>) -> Self {
        match format {
            Some(_) => self.blocks(name, format),
            None => self.pairs(name, dtype),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(format: BlockFormat, values: &[f32], dim: usize) -> Vec<f32> {
        let words = format.encode(values, dim);
        let rows = BlockRows::new(format, 1, dim, &words);
        let mut out = vec![0.0; values.len()];
        assert_eq!(rows.count(), values.len() / dim);
        for (row, out) in out.chunks_exact_mut(dim).enumerate() {
            rows.read(row, out);
        }
        out
    }

    #[test]
    fn values_are_within_half_a_step() {
        let values: Vec<f32> = (0..192).map(|i| ((i * 37 % 101) as f32 - 50.0) * 0.13).collect();
        for format in BlockFormat::ALL {
            let found = round_trip(format, &values, 96);
            for (block, found) in values.chunks(32).zip(found.chunks(32)) {
                let largest = block.iter().fold(0f32, |a, b| a.max(b.abs()));
                let step = largest / format.extreme.abs() as f32;
                // Of nibbles, the value opposite to the largest one is clamped.
                let most = if format.bits == 4 { 1.01 } else { 0.51 } * step;
                for (x, y) in block.iter().zip(found) {
                    assert!((x - y).abs() <= most, "{}: {x} as {y}", format.name);
                }
            }
        }
    }

    #[test]
    fn zeros_stay_zeros_and_infinities_are_not_numbers() {
        for format in BlockFormat::ALL {
            let mut values = [0.0; 64];
            values[40] = f32::INFINITY;
            let found = round_trip(format, &values, 64);
            assert!(found[..32].iter().all(|x| *x == 0.0) && found[32..].iter().all(|x| x.is_nan()));
        }
    }

    #[test]
    fn words_tell_the_dimension() {
        for format in BlockFormat::ALL {
            for dim in (32..=256).step_by(32) {
                assert_eq!(format.dim(format.words(dim)), Some(dim));
            }
            assert_eq!(format.dim(3), None);
        }
        assert_eq!([64, 128].map(|dim| BlockFormat::Q8_0.words(dim)), [18, 34]);
        assert_eq!([64, 128].map(|dim| BlockFormat::Q4_0.words(dim)), [9, 18]);
    }
}
