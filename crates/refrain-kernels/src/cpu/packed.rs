use std::ops::Range;

use multiversion::multiversion;
use multiversion::target::target_cfg_f;

use super::blocks::{BlockRows, PackedVector};
use super::octet::{BLOCK, Octet, Quartet, halves};
use super::scales::{CHUNK, Halves, Parameters, StoredParameters};
use crate::matmul::WeightRows;
use crate::quantised::{Code, QuantRows};

/// Rows that a vector meets together: their sums hide each other's latency.
pub(super) const TOGETHER: usize = 4;

/// What stored values stand for. A code is a type, so that none is asked for where blocks are read.
pub(super) trait StoredCode<const BYTES: usize>: Sync {
    /// Bits of a number that is multiplied.
    const BITS: usize;

    fn new(code: Code) -> Self;

    /// Eight times four neighbouring numbers, those of each word from its lowest bits on; what is above them is
    /// not theirs.
    fn words(&self, block: &[u8; BYTES]) -> [u32; Octet::COUNT];
}

/// Unsigned values as they are.
#[derive(Clone, Copy)]
pub(super) struct Unsigned;

impl<const BYTES: usize> StoredCode<BYTES> for Unsigned {
    const BITS: usize = BYTES / 4;

    fn new(_: Code) -> Self {
        Unsigned
    }

    #[inline(always)]
    fn words(&self, block: &[u8; BYTES]) -> [u32; Octet::COUNT] {
        words(block)
    }
}

/// Values of 8 bits in two's complement.
#[derive(Clone, Copy)]
pub(super) struct SignedBytes;

impl<const BYTES: usize> StoredCode<BYTES> for SignedBytes {
    const BITS: usize = BYTES / 4;

    fn new(_: Code) -> Self {
        SignedBytes
    }

    #[inline(always)]
    fn words(&self, block: &[u8; BYTES]) -> [u32; Octet::COUNT] {
        words(block).map(|word| 0x8080_8080 ^ word)
    }
}

/// Indices of 4 bits into a book of 16 numbers, which are raised by 128: of each byte, both numbers.
pub(super) struct BookBytes([u16; 256]);

impl<const BYTES: usize> StoredCode<BYTES> for BookBytes {
    const BITS: usize = 8;

    fn new(code: Code) -> Self {
        let Code::Book(book) = code else {
            unreachable!("chosen by its code")
        };
        let raised = book.map(|number| u16::from(number as u8 ^ 0x80));
        BookBytes(std::array::from_fn(|byte| raised[byte & 0xf] | raised[byte >> 4] << 8))
    }

    /// By byte: choices between all numbers of the book, which vectors could make, were several times slower.
    #[inline(always)]
    fn words(&self, block: &[u8; BYTES]) -> [u32; Octet::COUNT] {
        let pair = |byte: usize| u32::from(self.0[usize::from(block[byte])]);
        each(|l| pair(2 * l) | pair(2 * l + 1) << 16)
    }
}

/// Quantised rows whose blocks take `BYTES` bytes, with values that stand for what `C` says and parameters stored as
/// `P` has them.
///
/// All are read as unsigned numbers with a scale and a bias: one of values around a middle is the scale times
/// a power of two, so that nothing but the result is rounded.
pub(super) struct Packed<'a, const BYTES: usize, C, P> {
    code: C,
    quants: &'a [[u8; BYTES]],
    parameters: P,
    /// Blocks of a row.
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
    pub(super) fn parameters(&self, row: usize, chunk: usize, halves: impl Fn(Halves) -> Octet) -> Parameters {
        self.parameters.read(row, self.length, chunk, Self::MIDDLE, halves)
    }
}

impl<'a, const BYTES: usize, C: StoredCode<BYTES>, P: StoredParameters<'a>> BlockRows for Packed<'a, BYTES, C, P> {
    const INTERLEAVED: bool = true;
    type Vector = PackedVector;

    fn vector(x: &[f32]) -> PackedVector {
        PackedVector::new(x, std::array::from_fn(|j| unit(C::BITS, j)), P::HALVES)
    }

    fn one(&self, rows: Range<usize>, x: &PackedVector, out: &mut [f32]) {
        one(self, rows, x, out);
    }

    fn unpack(&self, rows: Range<usize>, length: usize, unpacked: &mut [Quartet]) {
        debug_assert_eq!(length, self.length);
        unpack(self, rows, unpacked);
    }
}

/// Products of some rows with one vector, `[rows]`: the numbers as stored are multiplied and added up for each
/// group, these sums multiplied by the scales.
#[multiversion(targets("x86_64+avx2+fma"))]
fn one<'a, const BYTES: usize, C: StoredCode<BYTES>, P: StoredParameters<'a>>(
    w: &Packed<'a, BYTES, C, P>,
    rows: Range<usize>,
    x: &PackedVector,
    out: &mut [f32],
) {
    const FUSED: bool = target_cfg_f!(any(target_feature = "fma", target_arch = "aarch64"));
    let length = w.length;
    let xs = &x.blocks[..length];
    // Each row and sum has a name of its own, for compilers keep arrays of them in memory.
    for places in quarters(rows.len()) {
        let numbers = places.map(|place| rows.start + place);
        let [a, b, c, d] = [
            w.row(numbers[0]),
            w.row(numbers[1]),
            w.row(numbers[2]),
            w.row(numbers[3]),
        ];
        let mut sums = [Octet::ZERO; TOGETHER];
        for (chunk, x_sums) in x.sums.iter().enumerate() {
            let mut scales = [[Octet::ZERO; 2]; TOGETHER];
            for r in 0..TOGETHER {
                let read = w.parameters(numbers[r], chunk, halves);
                scales[r] = read.scales;
                sums[r] = read.biases[0].times_plus::<FUSED>(x_sums[0], sums[r]);
                if P::HALVES {
                    sums[r] = read.biases[1].times_plus::<FUSED>(x_sums[1], sums[r]);
                }
            }
            let [mut for_a, mut for_b, mut for_c, mut for_d] = sums;
            let first = chunk * CHUNK;
            for (i, x) in xs[first..length.min(first + CHUNK)].iter().enumerate() {
                let (b_, s) = (first + i, |r: usize| spread(P::HALVES, &scales[r], i));
                for_a = meet::<BYTES, C, FUSED>(&w.code, &a[b_], x).times_plus::<FUSED>(s(0), for_a);
                for_b = meet::<BYTES, C, FUSED>(&w.code, &b[b_], x).times_plus::<FUSED>(s(1), for_b);
                for_c = meet::<BYTES, C, FUSED>(&w.code, &c[b_], x).times_plus::<FUSED>(s(2), for_c);
                for_d = meet::<BYTES, C, FUSED>(&w.code, &d[b_], x).times_plus::<FUSED>(s(3), for_d);
            }
            sums = [for_a, for_b, for_c, for_d];
        }
        for (place, sum) in places.into_iter().zip(sums) {
            out[place] = sum.sum();
        }
    }
}

/// The places of `rows` rows, so many at a time. Each of the rows that meet x together is the next of its own quarter:
/// so many streams of memory, each read from end to end, are what processors fetch ahead.
#[inline(always)]
pub(super) fn quarters(rows: usize) -> impl Iterator<Item = [usize; TOGETHER]> {
    let quarter = rows.div_ceil(TOGETHER);
    (0..quarter).map(move |number| [0, 1, 2, 3].map(|r| (r * quarter + number).min(rows - 1)))
}

/// The products of a block's numbers, as stored, with those of a vector.
#[inline(always)]
fn meet<const BYTES: usize, C: StoredCode<BYTES>, const FUSED: bool>(
    code: &C,
    block: &[u8; BYTES],
    x: &Quartet,
) -> Octet {
    let words = code.words(block);
    let first = in_place(C::BITS, words, 0);
    let sum = Octet::new(|l| first.0[l] * x[0].0[l]);
    let sum = in_place(C::BITS, words, 1).times_plus::<FUSED>(x[1], sum);
    let sum = in_place(C::BITS, words, 2).times_plus::<FUSED>(x[2], sum);
    in_place(C::BITS, words, 3).times_plus::<FUSED>(x[3], sum)
}

/// What value `j` of a word is multiplied by where it stands.
fn unit(bits: usize, j: usize) -> f32 {
    match (bits, j) {
        (8, 3) => 1.0,
        _ => (1u32 << (bits * j)) as f32,
    }
}

/// Value `j` of each word times its unit: to take it where it stands spares a shift.
#[inline(always)]
fn in_place(bits: usize, words: [u32; Octet::COUNT], j: usize) -> Octet {
    if bits == 8 && j == 3 {
        // Its highest bit would be a sign.
        return Octet::new(|l| (words[l] >> 24) as i32 as f32);
    }
    let mask = ((1 << bits) - 1) << (bits * j);
    Octet::new(|l| (words[l] & mask) as i32 as f32)
}

/// Rows, one after another.
#[multiversion(targets("x86_64+avx2+fma"))]
fn unpack<'a, const BYTES: usize, C: StoredCode<BYTES>, P: StoredParameters<'a>>(
    w: &Packed<'a, BYTES, C, P>,
    rows: Range<usize>,
    unpacked: &mut [Quartet],
) {
    const FUSED: bool = target_cfg_f!(any(target_feature = "fma", target_arch = "aarch64"));
    let bits = C::BITS as u32;
    for (number, unpacked) in rows.zip(unpacked.chunks_exact_mut(w.length)) {
        let chunks = w.row(number).chunks(CHUNK).zip(unpacked.chunks_mut(CHUNK));
        for (chunk, (blocks, unpacked)) in chunks.enumerate() {
            let Parameters { scales, biases } = w.parameters(number, chunk, halves);
            for (i, (block, unpacked)) in blocks.iter().zip(unpacked).enumerate() {
                let words = w.code.words(block);
                let [scales, biases] = [&scales, &biases].map(|of| spread(P::HALVES, of, i));
                for (j, part) in unpacked.iter_mut().enumerate() {
                    let value = |l: usize| words[l] >> (bits * j as u32) & ((1 << bits) - 1);
                    *part = Octet::new(|l| value(l) as i32 as f32).times_plus::<FUSED>(scales, biases);
                }
            }
        }
    }
}

/// The parameter of each word of a block.
#[inline(always)]
fn spread(halves: bool, parameters: &[Octet; 2], block: usize) -> Octet {
    let of = |group: usize| parameters[group / Octet::COUNT % 2].0[group % Octet::COUNT];
    if halves {
        let [low, high] = [of(2 * block), of(2 * block + 1)];
        return Octet::new(|l| if l < Octet::COUNT / 2 { low } else { high });
    }
    Octet([parameters[0].0[block % CHUNK]; Octet::COUNT])
}

/// Eight times four neighbouring values, those of each word from its lowest bits on; what is above them is
/// not theirs.
#[inline(always)]
fn words<const BYTES: usize>(block: &[u8; BYTES]) -> [u32; Octet::COUNT] {
    match BYTES {
        8 => each(|l| u32::from(block[l])),
        16 => each(|l| u32::from(u16::from_le_bytes([block[2 * l], block[2 * l + 1]]))),
        32 => each(|l| u32::from_le_bytes([block[4 * l], block[4 * l + 1], block[4 * l + 2], block[4 * l + 3]])),
        _ => {
            let eights: [u64; 4] = [eight(block, 0), eight(block, 1), eight(block, 2), eight(block, 3)];
            // The upper four of each eight go to the upper half of a word of 64 bits.
            let mut halves = [0; 4];
            for (half, eight) in halves.iter_mut().zip(eights) {
                *half = (eight & 0xffff_ffff) | (eight << (32 - BYTES)) & 0xffff_ffff_0000_0000;
            }
            each(|l| (halves[l / 2] >> (l % 2 * 32)) as u32)
        }
    }
}

#[inline(always)]
fn each(word: impl Fn(usize) -> u32) -> [u32; Octet::COUNT] {
    let mut words = [0; Octet::COUNT];
    for (l, out) in words.iter_mut().enumerate() {
        *out = word(l);
    }
    words
}

/// Values `8·number` and on, from the lowest bits; what is above the eight is not theirs.
#[inline(always)]
fn eight<const BYTES: usize>(block: &[u8; BYTES], number: usize) -> u64 {
    let place = number * BYTES / 4;
    // Not beyond the end.
    let first = place.min(BYTES - 8);
    let bytes = block[first..first + 8].try_into().expect("eight bytes");
    u64::from_le_bytes(bytes) >> (8 * (place - first))
}
