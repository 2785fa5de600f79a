use std::ops::Range;

use multiversion::multiversion;
use multiversion::target::target_cfg_f;

use super::blocks::{BlockRows, Vectors};
use super::octet::{BLOCK, Octet, Quartet, half_to_f32};

/// Rows that a vector meets together: their sums hide each other's latency.
const TOGETHER: usize = 4;

/// Rows of floats of `SIZE` bytes, bf16 where they are `BRAIN`.
pub(super) struct Dense<'a, const SIZE: usize, const BRAIN: bool> {
    pub bytes: &'a [u8],
    pub columns: usize,
}

/// Floats of 4 bytes.
pub(super) type Singles<'a> = Dense<'a, 4, false>;
/// Floats of 2 bytes.
pub(super) type Halves<'a> = Dense<'a, 2, false>;
/// Floats of 2 bytes with the exponents of those of 4.
pub(super) type Brains<'a> = Dense<'a, 2, true>;

impl<const SIZE: usize, const BRAIN: bool> BlockRows for Dense<'_, SIZE, BRAIN> {
    const INTERLEAVED: bool = false;
    type Vector = Vectors;

    fn vector(x: &[f32]) -> Vectors {
        Vectors::new(x, x.len(), Self::INTERLEAVED)
    }

    fn one(&self, rows: Range<usize>, x: &Vectors, out: &mut [f32]) {
        one(self, rows, x.get(0), out);
    }

    fn unpack(&self, rows: Range<usize>, length: usize, unpacked: &mut [Quartet]) {
        unpack(self, rows, length, unpacked);
    }
}

impl<const SIZE: usize, const BRAIN: bool> Dense<'_, SIZE, BRAIN> {
    #[inline(always)]
    fn row(&self, number: usize) -> &[[u8; SIZE]] {
        &self.bytes.as_chunks().0[number * self.columns..][..self.columns]
    }
}

/// Products of some rows with one vector, `[rows]`.
#[multiversion(targets("x86_64+avx2+fma"))]
fn one<const SIZE: usize, const BRAIN: bool>(
    w: &Dense<'_, SIZE, BRAIN>,
    rows: Range<usize>,
    x: &[Quartet],
    out: &mut [f32],
) {
    const FUSED: bool = target_cfg_f!(any(target_feature = "fma", target_arch = "aarch64"));
    // Each of the rows that meet x together is the next of its own quarter: so many streams of memory, each
    // read from end to end, are what processors fetch ahead. Each row and sum has a name of its own, for
    // compilers keep arrays of them in memory.
    let quarter = rows.len().div_ceil(TOGETHER);
    for number in 0..quarter {
        let place = |r: usize| (r * quarter + number).min(rows.len() - 1);
        let row = |r: usize| w.row(rows.start + place(r));
        let [a, b, c, d] = [row(0), row(1), row(2), row(3)];
        let [mut for_a, mut for_b, mut for_c, mut for_d] = [Octet::ZERO; TOGETHER];
        for (i, x) in x.iter().enumerate() {
            for_a = meet::<SIZE, BRAIN, FUSED>(a, i, x, for_a);
            for_b = meet::<SIZE, BRAIN, FUSED>(b, i, x, for_b);
            for_c = meet::<SIZE, BRAIN, FUSED>(c, i, x, for_c);
            for_d = meet::<SIZE, BRAIN, FUSED>(d, i, x, for_d);
        }
        for (r, sum) in [for_a, for_b, for_c, for_d].into_iter().enumerate() {
            out[place(r)] = sum.sum();
        }
    }
}

/// Adds the products of block `number` of a row to a sum.
#[inline(always)]
fn meet<const SIZE: usize, const BRAIN: bool, const FUSED: bool>(
    row: &[[u8; SIZE]],
    number: usize,
    x: &Quartet,
    sum: Octet,
) -> Octet {
    let stored = block(row, number);
    let part = |j| floats::<SIZE, BRAIN>(&stored, j);
    let sum = part(0).times_plus::<FUSED>(x[0], sum);
    let sum = part(1).times_plus::<FUSED>(x[1], sum);
    let sum = part(2).times_plus::<FUSED>(x[2], sum);
    part(3).times_plus::<FUSED>(x[3], sum)
}

#[multiversion(targets("x86_64+avx2+fma"))]
fn unpack<const SIZE: usize, const BRAIN: bool>(
    w: &Dense<'_, SIZE, BRAIN>,
    rows: Range<usize>,
    length: usize,
    unpacked: &mut [Quartet],
) {
    for (number, unpacked) in rows.zip(unpacked.chunks_exact_mut(length)) {
        let row = w.row(number);
        for (i, unpacked) in unpacked.iter_mut().enumerate() {
            let stored = block(row, i);
            for (j, part) in unpacked.iter_mut().enumerate() {
                *part = floats::<SIZE, BRAIN>(&stored, j);
            }
        }
    }
}

/// Block `number` of a row; zeros where it goes beyond the row's end.
#[inline(always)]
fn block<const SIZE: usize>(row: &[[u8; SIZE]], number: usize) -> [[u8; SIZE]; BLOCK] {
    let floats = &row[number * BLOCK..];
    if let Some(block) = floats.first_chunk() {
        return *block;
    }
    let mut padded = [[0; SIZE]; BLOCK];
    padded[..floats.len()].copy_from_slice(floats);
    padded
}

/// Part `j` of a block.
#[inline(always)]
fn floats<const SIZE: usize, const BRAIN: bool>(block: &[[u8; SIZE]; BLOCK], j: usize) -> Octet {
    Octet::new(|l| {
        let bytes = &block[j * Octet::COUNT + l];
        match (SIZE, BRAIN) {
            (4, _) => f32::from_le_bytes([bytes[0], bytes[1], bytes[SIZE / 2], bytes[SIZE - 1]]),
            (_, true) => f32::from_bits(u32::from(u16::from_le_bytes([bytes[0], bytes[1]])) << 16),
            _ => half_to_f32(u16::from_le_bytes([bytes[0], bytes[1]])),
        }
    })
}
