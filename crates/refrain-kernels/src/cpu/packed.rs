use std::ops::Range;

use multiversion::multiversion;
use multiversion::target::target_cfg_f;

use super::blocks::{BlockRows, PackedVector};
use super::f32x8::{BLOCK, F32x8, F32x32, f16x8};
use super::scales::{CHUNK, F16Bytes, Parameters, StoredParameters};
use crate::matmul::WeightRows;
use crate::quantised::{Code, QuantRows};

/// Rows that a vector is multiplied with at once: independent sums hide each other's latency.
pub(super) const ROWS_AT_ONCE: usize = 4;

/// Encoding of stored values. It is a type, so that the loop over blocks does not branch on it.
pub(super) trait StoredCode<const BYTES: usize>: Sync {
    /// Width of the integers that are multiplied.
    const BITS: usize;

    fn new(code: Code) -> Self;

    /// Returns eight words of four consecutive integers each, from the lowest bits on. Higher bits are undefined.
    fn words(&self, block: &[u8; BYTES]) -> [u32; F32x8::LANES];
}

/// Unsigned integers.
#[derive(Clone, Copy)]
pub(super) struct Unsigned;

impl<const BYTES: usize> StoredCode<BYTES> for Unsigned {
    const BITS: usize = BYTES / 4;

    fn new(_: Code) -> Self {
        Unsigned
    }

    #[inline(always)]
    fn words(&self, block: &[u8; BYTES]) -> [u32; F32x8::LANES] {
        words(block)
    }
}

/// 8-bit two's complement.
#[derive(Clone, Copy)]
pub(super) struct SignedBytes;

impl<const BYTES: usize> StoredCode<BYTES> for SignedBytes {
    const BITS: usize = BYTES / 4;

    fn new(_: Code) -> Self {
        SignedBytes
    }

    #[inline(always)]
    fn words(&self, block: &[u8; BYTES]) -> [u32; F32x8::LANES] {
        words(block).map(|word| 0x8080_8080 ^ word)
    }
}

/// 4-bit indices into a codebook. The table maps a byte to its two entries, with 128 added.
pub(super) struct BookBytes([u16; 256]);

impl<const BYTES: usize> StoredCode<BYTES> for BookBytes {
    const BITS: usize = 8;

    fn new(code: Code) -> Self {
        let Code::Book(book) = code else {
            unreachable!("only used with codebooks")
        };
        let raised = book.map(|number| u16::from(number as u8 ^ 0x80));
        BookBytes(std::array::from_fn(|byte| raised[byte & 0xf] | raised[byte >> 4] << 8))
    }

    /// A table lookup per byte. Vectorised selection among all entries was several times slower.
    #[inline(always)]
    fn words(&self, block: &[u8; BYTES]) -> [u32; F32x8::LANES] {
        let pair = |byte: usize| u32::from(self.0[usize::from(block[byte])]);
        each(|l| pair(2 * l) | pair(2 * l + 1) << 16)
    }
}

/// Quantised rows with blocks of `BYTES` bytes, encoding `C` and parameters stored as `P`.
///
/// All values are treated as unsigned integers with a scale and a bias. For centred values the bias is the scale times
/// a power of two, so only the result is rounded.
pub(super) struct Packed<'a, const BYTES: usize, C, P> {
    code: C,
    quants: &'a [[u8; BYTES]],
    parameters: P,
    /// Blocks per row.
    length: usize,
}

impl<'a, const BYTES: usize, C: StoredCode<BYTES>, P: StoredParameters<'a>> Packed<'a, BYTES, C, P> {
    const MIDDLE: f32 = (1 << (C::BITS - 1)) as f32;

    pub(super) fn new(rows: &QuantRows<'a>) -> Self {
        Packed {
            code: C::new(rows.format().code),
            quants: rows.quants().as_chunks().0,
            parameters: P::new(rows),
            length: rows.columns() / BLOCK,
        }
    }

    #[inline(always)]
    pub(super) fn row(&self, number: usize) -> &'a [[u8; BYTES]] {
        &self.quants[number * self.length..][..self.length]
    }

    #[inline(always)]
    pub(super) fn parameters(&self, row: usize, chunk: usize, f16x8: impl Fn(F16Bytes) -> F32x8) -> Parameters {
        self.parameters.read(row, self.length, chunk, Self::MIDDLE, f16x8)
    }
}

impl<'a, const BYTES: usize, C: StoredCode<BYTES>, P: StoredParameters<'a>> BlockRows for Packed<'a, BYTES, C, P> {
    const INTERLEAVED: bool = true;
    type Vector = PackedVector;

    fn vector(x: &[f32]) -> PackedVector {
        PackedVector::new(x, std::array::from_fn(|j| unit(C::BITS, j)), P::TWO_GROUPS)
    }

    fn multiply_one(&self, rows: Range<usize>, x: &PackedVector, out: &mut [f32]) {
        multiply_one(self, rows, x, out);
    }

    fn unpack(&self, rows: Range<usize>, length: usize, unpacked: &mut [F32x32]) {
        debug_assert_eq!(length, self.length);
        unpack(self, rows, unpacked);
    }
}

/// Dot products of some rows with one vector, `[rows]`. The stored integers are multiplied and added up per group, then
/// multiplied by the scales.
#[multiversion(targets("x86_64+avx2+fma"))]
fn multiply_one<'a, const BYTES: usize, C: StoredCode<BYTES>, P: StoredParameters<'a>>(
    w: &Packed<'a, BYTES, C, P>,
    rows: Range<usize>,
    x: &PackedVector,
    out: &mut [f32],
) {
    const FUSED: bool = target_cfg_f!(any(target_feature = "fma", target_arch = "aarch64"));
    let length = w.length;
    let xs = &x.blocks[..length];
    // Rows and sums are separate variables, since compilers keep arrays of them in memory.
    for places in quarters(rows.len()) {
        let numbers = places.map(|place| rows.start + place);
        let [a, b, c, d] = [
            w.row(numbers[0]),
            w.row(numbers[1]),
            w.row(numbers[2]),
            w.row(numbers[3]),
        ];
        let mut sums = [F32x8::ZERO; ROWS_AT_ONCE];
        for (chunk, x_sums) in x.sums.iter().enumerate() {
            let mut scales = [[F32x8::ZERO; 2]; ROWS_AT_ONCE];
            for r in 0..ROWS_AT_ONCE {
                let read = w.parameters(numbers[r], chunk, f16x8);
                scales[r] = read.scales;
                sums[r] = read.biases[0].mul_add::<FUSED>(x_sums[0], sums[r]);
                if P::TWO_GROUPS {
                    sums[r] = read.biases[1].mul_add::<FUSED>(x_sums[1], sums[r]);
                }
            }
            let [mut for_a, mut for_b, mut for_c, mut for_d] = sums;
            let first = chunk * CHUNK;
            for (i, x) in xs[first..length.min(first + CHUNK)].iter().enumerate() {
                let (b_, s) = (first + i, |r: usize| broadcast(P::TWO_GROUPS, &scales[r], i));
                for_a = accumulate::<BYTES, C, FUSED>(&w.code, &a[b_], x).mul_add::<FUSED>(s(0), for_a);
                for_b = accumulate::<BYTES, C, FUSED>(&w.code, &b[b_], x).mul_add::<FUSED>(s(1), for_b);
                for_c = accumulate::<BYTES, C, FUSED>(&w.code, &c[b_], x).mul_add::<FUSED>(s(2), for_c);
                for_d = accumulate::<BYTES, C, FUSED>(&w.code, &d[b_], x).mul_add::<FUSED>(s(3), for_d);
            }
            sums = [for_a, for_b, for_c, for_d];
        }
        for (place, sum) in places.into_iter().zip(sums) {
            out[place] = sum.sum();
        }
    }
}

/// Yields the indices of `rows` rows in groups that are multiplied at once. The rows of a group come from the four
/// quarters of the range: processors prefetch four sequential streams.
#[inline(always)]
pub(super) fn quarters(rows: usize) -> impl Iterator<Item = [usize; ROWS_AT_ONCE]> {
    let quarter = rows.div_ceil(ROWS_AT_ONCE);
    (0..quarter).map(move |number| [0, 1, 2, 3].map(|r| (r * quarter + number).min(rows - 1)))
}

/// Products of a block's stored integers with the values of a vector.
#[inline(always)]
fn accumulate<const BYTES: usize, C: StoredCode<BYTES>, const FUSED: bool>(
    code: &C,
    block: &[u8; BYTES],
    x: &F32x32,
) -> F32x8 {
    let words = code.words(block);
    let first = in_place(C::BITS, words, 0);
    let sum = F32x8::new(|l| first.0[l] * x[0].0[l]);
    let sum = in_place(C::BITS, words, 1).mul_add::<FUSED>(x[1], sum);
    let sum = in_place(C::BITS, words, 2).mul_add::<FUSED>(x[2], sum);
    in_place(C::BITS, words, 3).mul_add::<FUSED>(x[3], sum)
}

/// Factor of value `j` of a word if it is masked but not shifted.
fn unit(bits: usize, j: usize) -> f32 {
    match (bits, j) {
        (8, 3) => 1.0,
        _ => (1u32 << (bits * j)) as f32,
    }
}

/// Value `j` of each word times its unit. Masking without a shift saves an instruction.
#[inline(always)]
fn in_place(bits: usize, words: [u32; F32x8::LANES], j: usize) -> F32x8 {
    if bits == 8 && j == 3 {
        // The highest bit would be a sign.
        return F32x8::new(|l| (words[l] >> 24) as i32 as f32);
    }
    let mask = ((1 << bits) - 1) << (bits * j);
    F32x8::new(|l| (words[l] & mask) as i32 as f32)
}

/// Unpacks rows one after another.
#[multiversion(targets("x86_64+avx2+fma"))]
fn unpack<'a, const BYTES: usize, C: StoredCode<BYTES>, P: StoredParameters<'a>>(
    w: &Packed<'a, BYTES, C, P>,
    rows: Range<usize>,
    unpacked: &mut [F32x32],
) {
    const FUSED: bool = target_cfg_f!(any(target_feature = "fma", target_arch = "aarch64"));
    let bits = C::BITS as u32;
    for (number, unpacked) in rows.zip(unpacked.chunks_exact_mut(w.length)) {
        let chunks = w.row(number).chunks(CHUNK).zip(unpacked.chunks_mut(CHUNK));
        for (chunk, (blocks, unpacked)) in chunks.enumerate() {
            let Parameters { scales, biases } = w.parameters(number, chunk, f16x8);
            for (i, (block, unpacked)) in blocks.iter().zip(unpacked).enumerate() {
                let words = w.code.words(block);
                let [scales, biases] = [&scales, &biases].map(|of| broadcast(P::TWO_GROUPS, of, i));
                for (j, part) in unpacked.iter_mut().enumerate() {
                    let value = |l: usize| words[l] >> (bits * j as u32) & ((1 << bits) - 1);
                    *part = F32x8::new(|l| value(l) as i32 as f32).mul_add::<FUSED>(scales, biases);
                }
            }
        }
    }
}

/// Broadcasts the parameter of each word of a block.
#[inline(always)]
fn broadcast(has_two_groups: bool, parameters: &[F32x8; 2], block: usize) -> F32x8 {
    let of = |group: usize| parameters[group / F32x8::LANES % 2].0[group % F32x8::LANES];
    if has_two_groups {
        let [low, high] = [of(2 * block), of(2 * block + 1)];
        return F32x8::new(|l| if l < F32x8::LANES / 2 { low } else { high });
    }
    F32x8([parameters[0].0[block % CHUNK]; F32x8::LANES])
}

/// Returns eight words of four consecutive values each, from the lowest bits on. Higher bits are undefined.
#[inline(always)]
fn words<const BYTES: usize>(block: &[u8; BYTES]) -> [u32; F32x8::LANES] {
    match BYTES {
        8 => each(|l| u32::from(block[l])),
        16 => each(|l| u32::from(u16::from_le_bytes([block[2 * l], block[2 * l + 1]]))),
        32 => each(|l| u32::from_le_bytes([block[4 * l], block[4 * l + 1], block[4 * l + 2], block[4 * l + 3]])),
        _ => {
            let eights: [u64; 4] = [eight(block, 0), eight(block, 1), eight(block, 2), eight(block, 3)];
            // The upper four values of each eight move to the upper 32 bits.
            let mut halves = [0; 4];
            for (half, eight) in halves.iter_mut().zip(eights) {
                *half = (eight & 0xffff_ffff) | (eight << (32 - BYTES)) & 0xffff_ffff_0000_0000;
            }
            each(|l| (halves[l / 2] >> (l % 2 * 32)) as u32)
        }
    }
}

#[inline(always)]
fn each(word: impl Fn(usize) -> u32) -> [u32; F32x8::LANES] {
    let mut words = [0; F32x8::LANES];
    for (l, out) in words.iter_mut().enumerate() {
        *out = word(l);
    }
    words
}

/// Values `8·number` and on, from the lowest bits. Bits above the eight values are undefined.
#[inline(always)]
fn eight<const BYTES: usize>(block: &[u8; BYTES], number: usize) -> u64 {
    let place = number * BYTES / 4;
    // Never reads beyond the end.
    let first = place.min(BYTES - 8);
    let bytes = block[first..first + 8].try_into().expect("eight bytes");
    u64::from_le_bytes(bytes) >> (8 * (place - first))
}
