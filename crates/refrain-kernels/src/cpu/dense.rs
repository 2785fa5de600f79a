use std::ops::Range;

use multiversion::multiversion;
use multiversion::target::target_cfg_f;

use super::blocks::{BlockRows, Vectors};
use super::f32x8::{BLOCK, F32x8, F32x32, f16_to_f32};

/// Rows that a vector is multiplied with at once: independent sums hide each other's latency.
const ROWS_AT_ONCE: usize = 4;

/// Rows of floats of `SIZE` bytes; `BF16` tells bf16 from f16.
pub(super) struct Dense<'a, const SIZE: usize, const BF16: bool> {
    pub bytes: &'a [u8],
    pub columns: usize,
}

/// Rows of f32.
pub(super) type F32Rows<'a> = Dense<'a, 4, false>;
/// Rows of f16.
pub(super) type F16Rows<'a> = Dense<'a, 2, false>;
/// Rows of bf16.
pub(super) type Bf16Rows<'a> = Dense<'a, 2, true>;

impl<const SIZE: usize, const BF16: bool> BlockRows for Dense<'_, SIZE, BF16> {
    const INTERLEAVED: bool = false;
    type Vector = Vectors;

    fn vector(x: &[f32]) -> Vectors {
        Vectors::new(x, x.len(), Self::INTERLEAVED)
    }

    fn multiply_one(&self, rows: Range<usize>, x: &Vectors, out: &mut [f32]) {
        multiply_one(self, rows, x.get(0), out);
    }

    fn unpack(&self, rows: Range<usize>, length: usize, unpacked: &mut [F32x32]) {
        unpack(self, rows, length, unpacked);
    }
}

impl<const SIZE: usize, const BF16: bool> Dense<'_, SIZE, BF16> {
    #[inline(always)]
    fn row(&self, number: usize) -> &[[u8; SIZE]] {
        &self.bytes.as_chunks().0[number * self.columns..][..self.columns]
    }
}

/// Dot products of some rows with one vector, `[rows]`.
#[multiversion(targets("x86_64+avx2+fma"))]
fn multiply_one<const SIZE: usize, const BF16: bool>(
    w: &Dense<'_, SIZE, BF16>,
    rows: Range<usize>,
    x: &[F32x32],
    out: &mut [f32],
) {
    const FUSED: bool = target_cfg_f!(any(target_feature = "fma", target_arch = "aarch64"));
    // The rows that are multiplied at once come from the four quarters of the range: processors prefetch four
    // sequential streams. Rows and sums are separate variables, since compilers keep arrays of them in memory.
    let quarter = rows.len().div_ceil(ROWS_AT_ONCE);
    for number in 0..quarter {
        let place = |r: usize| (r * quarter + number).min(rows.len() - 1);
        let row = |r: usize| w.row(rows.start + place(r));
        let [a, b, c, d] = [row(0), row(1), row(2), row(3)];
        let [mut for_a, mut for_b, mut for_c, mut for_d] = [F32x8::ZERO; ROWS_AT_ONCE];
        for (i, x) in x.iter().enumerate() {
            for_a = accumulate::<SIZE, BF16, FUSED>(a, i, x, for_a);
            for_b = accumulate::<SIZE, BF16, FUSED>(b, i, x, for_b);
            for_c = accumulate::<SIZE, BF16, FUSED>(c, i, x, for_c);
            for_d = accumulate::<SIZE, BF16, FUSED>(d, i, x, for_d);
        }
        for (r, sum) in [for_a, for_b, for_c, for_d].into_iter().enumerate() {
            out[place(r)] = sum.sum();
        }
    }
}

/// Adds the products of block `number` of a row to a sum.
#[inline(always)]
fn accumulate<const SIZE: usize, const BF16: bool, const FUSED: bool>(
    row: &[[u8; SIZE]],
    number: usize,
    x: &F32x32,
    sum: F32x8,
) -> F32x8 {
    let stored = block(row, number);
    let part = |j| floats::<SIZE, BF16>(&stored, j);
    let sum = part(0).mul_add::<FUSED>(x[0], sum);
    let sum = part(1).mul_add::<FUSED>(x[1], sum);
    let sum = part(2).mul_add::<FUSED>(x[2], sum);
    part(3).mul_add::<FUSED>(x[3], sum)
}

#[multiversion(targets("x86_64+avx2+fma"))]
fn unpack<const SIZE: usize, const BF16: bool>(
    w: &Dense<'_, SIZE, BF16>,
    rows: Range<usize>,
    length: usize,
    unpacked: &mut [F32x32],
) {
    for (number, unpacked) in rows.zip(unpacked.chunks_exact_mut(length)) {
        let row = w.row(number);
        for (i, unpacked) in unpacked.iter_mut().enumerate() {
            let stored = block(row, i);
            for (j, part) in unpacked.iter_mut().enumerate() {
                *part = floats::<SIZE, BF16>(&stored, j);
            }
        }
    }
}

/// Block `number` of a row, with zeros beyond the row's end.
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

/// Values `8·j` to `8·j + 7` of a block.
#[inline(always)]
fn floats<const SIZE: usize, const BF16: bool>(block: &[[u8; SIZE]; BLOCK], j: usize) -> F32x8 {
    F32x8::new(|l| {
        let bytes = &block[j * F32x8::LANES + l];
        if SIZE == 4 {
            return f32::from_le_bytes([bytes[0], bytes[1], bytes[SIZE / 2], bytes[SIZE - 1]]);
        }
        let bits = u16::from_le_bytes([bytes[0], bytes[1]]);
        if BF16 {
            f32::from_bits(u32::from(bits) << 16)
        } else {
            f16_to_f32(bits)
        }
    })
}
