use std::ops::Range;

use multiversion::multiversion;

use super::octet::{BLOCK, Octet, Quartet};
use super::scales::CHUNK;

/// A matrix whose rows are read a block at a time.
pub(super) trait BlockRows: Sync {
    /// The order in which a block's values come when unpacked: value `4·l + j` in lane `l` of `block[j]`, or else
    /// value `8·j + l`.
    const INTERLEAVED: bool;

    /// A vector that rows meet by itself.
    type Vector: Sync;

    /// Takes the values of one vector.
    fn vector(x: &[f32]) -> Self::Vector;

    /// Products of some rows with one vector, `[rows]`; rows are unpacked in registers.
    fn one(&self, rows: Range<usize>, x: &Self::Vector, out: &mut [f32]);

    /// Writes rows of `length` blocks one after another, with zeros after their ends.
    fn unpack(&self, rows: Range<usize>, length: usize, unpacked: &mut [Quartet]);
}

/// Vectors in the order in which the blocks of a matrix come.
pub(super) struct Vectors {
    blocks: Vec<Quartet>,
    /// Blocks of one vector.
    pub length: usize,
}

impl Vectors {
    /// Rows of `columns` values of `x`, zeros after their ends, for a matrix of this order.
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

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.blocks.len().checked_div(self.length).unwrap_or(0)
    }

    pub(super) fn get(&self, number: usize) -> &[Quartet] {
        &self.blocks[number * self.length..][..self.length]
    }
}

/// A vector that meets packed rows as they are stored.
pub(super) struct PackedVector {
    /// Interleaved, each part divided by the unit of the values that it meets.
    pub blocks: Vec<Quartet>,
    /// For each chunk of blocks the sums of the values of each group.
    pub sums: Vec<[Octet; 2]>,
}

impl PackedVector {
    /// Of a whole number of blocks. Groups are `halves` of blocks, or blocks.
    pub(super) fn new(x: &[f32], units: [f32; 4], halves: bool) -> PackedVector {
        let (x, _) = x.as_chunks();
        let mut vector = PackedVector {
            blocks: vec![[Octet::ZERO; 4]; x.len()],
            sums: vec![[Octet::ZERO; 2]; x.len().div_ceil(CHUNK)],
        };
        pack(x, units.map(f32::recip), halves, &mut vector);
        vector
    }
}

#[multiversion(targets("x86_64+avx2+fma"))]
fn pack(x: &[[f32; BLOCK]], factors: [f32; 4], halves: bool, vector: &mut PackedVector) {
    let chunks = x.chunks(CHUNK).zip(vector.blocks.chunks_mut(CHUNK));
    for ((x, blocks), sums) in chunks.zip(&mut vector.sums) {
        let sums = sums.each_mut().map(|octet| &mut octet.0);
        for (i, (x, packed)) in x.iter().zip(blocks).enumerate() {
            let parts = block(x, true);
            *packed = std::array::from_fn(|j| Octet::new(|l| parts[j].0[l] * factors[j]));
            let [a, b, c, d] = parts;
            let lanes = Octet::new(|l| (a.0[l] + b.0[l]) + (c.0[l] + d.0[l])).0;
            let half = |h: usize| (lanes[h] + lanes[h + 1]) + (lanes[h + 2] + lanes[h + 3]);
            if halves {
                let octet = 2 * i / Octet::COUNT;
                sums[octet][2 * i % Octet::COUNT] = half(0);
                sums[octet][(2 * i + 1) % Octet::COUNT] = half(4);
            } else {
                sums[0][i] = half(0) + half(4);
            }
        }
    }
}

#[inline(always)]
fn block(values: &[f32; BLOCK], interleaved: bool) -> Quartet {
    std::array::from_fn(|j| {
        if interleaved {
            Octet::new(|l| values[4 * l + j])
        } else {
            Octet::new(|l| values[8 * j + l])
        }
    })
}
