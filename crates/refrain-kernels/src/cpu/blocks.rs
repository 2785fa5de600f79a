use super::octet::{BLOCK, Octet, Quartet};

/// A matrix whose rows are read a block at a time.
pub(super) trait BlockRows: Sync {
    /// What it takes to read one row.
    type Row<'a>: Copy
    where
        Self: 'a;

    /// The order in which a block's values come: value `4·l + j` in lane `l` of `block[j]`, or else value
    /// `8·j + l`.
    const INTERLEAVED: bool;

    /// A block as stored.
    type Stored: Copy;

    /// Row `number`, of `length` blocks; `memory` holds what is computed once for all of them.
    fn row<'a>(&'a self, number: usize, length: usize, memory: &'a mut Vec<f32>) -> Self::Row<'a>;

    /// Block `number` of a row; zeros where it goes beyond the row's end.
    fn stored(row: Self::Row<'_>, number: usize) -> Self::Stored;

    /// Part `j` of a block. Products and sums are rounded once where `FUSED`.
    fn part<const FUSED: bool>(stored: Self::Stored, j: usize) -> Octet;
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

#[inline(always)]
fn block(values: &[f32; BLOCK], interleaved: bool) -> Quartet {
    std::array::from_fn(|j| match interleaved {
        true => Octet::new(|l| values[4 * l + j]),
        false => Octet::new(|l| values[8 * j + l]),
    })
}
