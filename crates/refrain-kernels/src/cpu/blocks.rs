use std::ops::Range;

use multiversion::multiversion;

use super::f32x8::{BLOCK, F32x8, F32x32};
use super::scales::CHUNK;

/// A matrix whose rows are read block by block. A block is 32 values.
pub(super) trait BlockRows: Sync {
    /// Order of an unpacked block. If true, value `4·l + j` is in lane `l` of `block[j]`; otherwise value `8·j + l` is.
    const INTERLEAVED: bool;

    /// A vector in the form that suits the stored rows.
    type Vector: Sync;

    /// Converts a vector.
    fn vector(x: &[f32]) -> Self::Vector;

    /// Dot products of some rows with one vector, `[rows]`. Rows are unpacked in registers.
    fn multiply_one(&self, rows: Range<usize>, x: &Self::Vector, out: &mut [f32]);

    /// Unpacks rows to `length` blocks each, with zeros beyond their ends.
    fn unpack(&self, rows: Range<usize>, length: usize, unpacked: &mut [F32x32]);
}

/// Vectors in the order of a matrix's blocks.
pub(super) struct Vectors {
    blocks: Vec<F32x32>,
    /// Blocks per vector.
    pub length: usize,
}

impl Vectors {
    /// Converts rows of `columns` values of `x`, with zeros beyond their ends.
    pub(super) fn new(x: &[f32], columns: usize, interleaved: bool) -> Vectors {
        let length = columns.div_ceil(BLOCK);
        let rows = x.chunks_exact(columns.max(1));
        let mut blocks = Vec::with_capacity(rows.len() * length);
        for row in rows {
            let (whole, rest) = row.as_chunks::<BLOCK>();
            blocks.extend(whole.iter().map(|values| block(values, interleaved)));
            if !rest.is_empty() {
                let mut values = [0.0; BLOCK];
                values[..rest.len()].copy_from_slice(rest);
                blocks.push(block(&values, interleaved));
            }
        }
        Vectors { blocks, length }
    }

    /// Number of vectors.
    pub(super) fn count(&self) -> usize {
        self.blocks.len().checked_div(self.length).unwrap_or(0)
    }

    pub(super) fn get(&self, number: usize) -> &[F32x32] {
        &self.blocks[number * self.length..][..self.length]
    }
}

/// A vector that is multiplied with packed rows as they are stored.
pub(super) struct PackedVector {
    /// The interleaved values, divided by the unit of the stored values that they are multiplied with.
    pub blocks: Vec<F32x32>,
    /// For each chunk of blocks, the sums of the values of each group.
    pub sums: Vec<[F32x8; 2]>,
}

impl PackedVector {
    /// Converts whole blocks. A block holds one group or two.
    pub(super) fn new(x: &[f32], units: [f32; 4], has_two_groups: bool) -> PackedVector {
        let (x, _) = x.as_chunks();
        let mut vector = PackedVector {
            blocks: vec![[F32x8::ZERO; 4]; x.len()],
            sums: vec![[F32x8::ZERO; 2]; x.len().div_ceil(CHUNK)],
        };
        pack(x, units.map(f32::recip), has_two_groups, &mut vector);
        vector
    }
}

#[multiversion(targets("x86_64+avx2+fma"))]
fn pack(x: &[[f32; BLOCK]], factors: [f32; 4], has_two_groups: bool, vector: &mut PackedVector) {
    let chunks = x.chunks(CHUNK).zip(vector.blocks.chunks_mut(CHUNK));
    for ((x, blocks), sums) in chunks.zip(&mut vector.sums) {
        let sums = sums.each_mut().map(|sums| &mut sums.0);
        for (i, (x, packed)) in x.iter().zip(blocks).enumerate() {
            let parts = block(x, true);
            *packed = std::array::from_fn(|j| F32x8::new(|l| parts[j].0[l] * factors[j]));
            let [a, b, c, d] = parts;
            let lanes = F32x8::new(|l| (a.0[l] + b.0[l]) + (c.0[l] + d.0[l])).0;
            let half = |h: usize| (lanes[h] + lanes[h + 1]) + (lanes[h + 2] + lanes[h + 3]);
            if has_two_groups {
                let half_sums = 2 * i / F32x8::LANES;
                sums[half_sums][2 * i % F32x8::LANES] = half(0);
                sums[half_sums][(2 * i + 1) % F32x8::LANES] = half(4);
            } else {
                sums[0][i] = half(0) + half(4);
            }
        }
    }
}

#[inline(always)]
fn block(values: &[f32; BLOCK], interleaved: bool) -> F32x32 {
    std::array::from_fn(|j| {
        if interleaved {
            F32x8::new(|l| values[4 * l + j])
        } else {
            F32x8::new(|l| values[8 * j + l])
        }
    })
}
