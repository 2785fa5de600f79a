//! How GGUF stores matrices: blocks of 32 or 256 values, and rows in an order of its own.

use rayon::prelude::*;
use refrain_quant::{GgufBlock, QuantRecord};

use crate::Tensor;
use crate::tensor::{Span, TensorStorage};

/// In which order a file holds a tensor's rows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RowOrder {
    /// As the tensor.
    AsStored,
    /// The rows of each head are stored so that the two halves of the head alternate (pairs for
    /// interleaved rotary embeddings), as GGUF files of Llama models have it.
    Interleaved {
        /// Rows of a head.
        head_dim: usize,
    },
    /// Matrices `[rows, columns]` are stored by columns, in which the values of the first half of the rows and of the
    /// second alternate where `interleaved`. Only of tensors that are not quantised.
    Transposed {
        /// Rows of a matrix of the tensor.
        rows: usize,
        /// Its columns.
        columns: usize,
        /// Whether halves alternate.
        interleaved: bool,
    },
    /// Of heads in groups, those of one group are `groups` heads apart: stored are the first heads of all groups, then the
    /// second ones, and so on, as GGUF files of delta nets have the value heads that share a key head.
    Tiled {
        /// Rows before those of heads.
        first: usize,
        /// Number of groups.
        groups: usize,
        /// Heads of a group.
        heads: usize,
        /// Rows of a head.
        size: usize,
    },
}

/// In which order a file holds a tensor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TensorOrder {
    /// Its rows; of a vector, its values.
    pub rows: RowOrder,
    /// The columns of each row.
    pub columns: RowOrder,
}

impl From<RowOrder> for TensorOrder {
    fn from(rows: RowOrder) -> Self {
        TensorOrder {
            rows,
            columns: RowOrder::AsStored,
        }
    }
}

impl TensorOrder {
    /// What keeps a tensor of so many rows and columns from being stored in this order.
    pub(crate) fn fault(self, rows: usize, columns: usize) -> Option<String> {
        let fault = |order: RowOrder, count: usize, what: &str| match order {
            RowOrder::Interleaved { head_dim } if count == 0 || !count.is_multiple_of(head_dim) => {
                Some(format!("its {count} {what} are not whole heads of {head_dim}"))
            }
            RowOrder::Tiled {
                first,
                groups,
                heads,
                size,
            } if count != first + groups * heads * size => Some(format!(
                "its {count} {what} are not {groups} groups of {heads} heads of {size}"
            )),
            _ => None,
        };
        fault(self.rows, rows, "rows").or_else(|| fault(self.columns, columns, "columns"))
    }
}

impl RowOrder {
    /// The row of the file that holds row `row` of the tensor.
    pub fn stored(self, row: usize) -> usize {
        match self {
            RowOrder::AsStored => row,
            RowOrder::Interleaved { head_dim } => {
                let (head, within) = (row / head_dim, row % head_dim);
                let (half, index) = (within / (head_dim / 2), within % (head_dim / 2));
                head * head_dim + 2 * index + half
            }
            RowOrder::Transposed { .. } => self.of_columns().stored(row),
            RowOrder::Tiled {
                first,
                groups,
                heads,
                size,
            } => across(row, first, [groups, heads], size),
        }
    }

    /// The row of the tensor that row `stored` of the file holds.
    pub fn logical(self, stored: usize) -> usize {
        match self {
            RowOrder::AsStored => stored,
            RowOrder::Interleaved { head_dim } => {
                let (head, within) = (stored / head_dim, stored % head_dim);
                head * head_dim + within % 2 * (head_dim / 2) + within / 2
            }
            RowOrder::Transposed { .. } => self.of_columns().logical(stored),
            RowOrder::Tiled {
                first,
                groups,
                heads,
                size,
            } => across(stored, first, [heads, groups], size),
        }
    }

    /// The order of units of so many columns, if each keeps its columns.
    pub fn of_units(self, unit: usize) -> Option<RowOrder> {
        match self {
            RowOrder::AsStored => Some(self),
            RowOrder::Tiled {
                first,
                groups,
                heads,
                size,
            } if first.is_multiple_of(unit) && size.is_multiple_of(unit) => Some(RowOrder::Tiled {
                first: first / unit,
                groups,
                heads,
                size: size / unit,
            }),
            _ => None,
        }
    }

    /// The order of the values of a column where matrices are transposed, else this.
    pub fn of_columns(self) -> RowOrder {
        match self {
            RowOrder::Transposed {
                rows,
                interleaved: true,
                ..
            } => RowOrder::Interleaved { head_dim: rows },
            RowOrder::Transposed { .. } => RowOrder::AsStored,
            _ => self,
        }
    }

    /// The shape that the file gives a tensor of `shape`.
    pub fn stored_shape(self, shape: &[usize]) -> Vec<usize> {
        let RowOrder::Transposed { rows, columns, .. } = self else {
            return shape.to_vec();
        };
        let matrices = shape.iter().product::<usize>() / (rows * columns).max(1);
        match columns {
            1 => vec![matrices, rows],
            _ => vec![matrices, columns, rows],
        }
    }

    /// Fill `out`, which lies at byte `start` of the tensor, from the `bytes` of matrices that are stored by columns.
    pub(crate) fn copy_transposed(self, bytes: &[u8], size: usize, start: usize, out: &mut [u8]) {
        let RowOrder::Transposed { rows, columns, .. } = self else {
            return;
        };
        let stored = |index: usize| {
            let (row, column) = (index / columns, index % columns);
            let (matrix, row) = (row / rows, self.stored(row % rows));
            (matrix * columns + column) * rows + row
        };
        in_pieces(start, out, |start, out| {
            let (mut at, mut column) = (stored(start / size), start / size % columns);
            for_units(size, start, out, |index, unit| {
                unit.copy_from_slice(&bytes[at * size..][..size]);
                column += 1;
                (at, column) = if column < columns {
                    (at + rows, column)
                } else {
                    (stored(index + 1), 0)
                };
            });
        });
    }
}

/// Where row `row` lies once matrices of `inner` by `size` rows, `outer` of them behind the `first` rows, are transposed.
fn across(row: usize, first: usize, [outer, inner]: [usize; 2], size: usize) -> usize {
    let Some(behind) = row.checked_sub(first) else {
        return row;
    };
    let (head, within) = (behind / size, behind % size);
    first + (head % inner * outer + head / inner) * size + within
}

/// GGUF blocks of a tensor by their place in the tensor (not in the file).
pub(crate) struct Blocks<'a> {
    bytes: &'a [u8],
    block_bytes: usize,
    per_row: usize,
    rows: RowOrder,
    /// The order of a row's blocks.
    columns: RowOrder,
}

impl<'a> Blocks<'a> {
    pub(crate) fn new(tensor: &Tensor<'a>, data: &Span, rows: RowOrder) -> Self {
        let values = tensor.info.encoding.block_values();
        Blocks {
            bytes: tensor.bytes(data),
            block_bytes: tensor.info.encoding.block_bytes().unwrap_or(1),
            per_row: (tensor.info.columns() / values).max(1),
            rows,
            columns: tensor.columns.of_units(values).unwrap_or(RowOrder::AsStored),
        }
    }

    /// The bytes of block `index`.
    pub(crate) fn block(&self, index: usize) -> &'a [u8] {
        let stored = match (self.rows, self.columns) {
            (RowOrder::AsStored, RowOrder::AsStored) => index,
            (rows, columns) => rows.stored(index / self.per_row) * self.per_row + columns.stored(index % self.per_row),
        };
        &self.bytes[stored * self.block_bytes..(stored + 1) * self.block_bytes]
    }
}

impl Tensor<'_> {
    /// Copies the GGUF blocks of row `row` into `out`, which has its columns in the order `columns`. Whether it could: not
    /// where there are no blocks, or that order takes other ones.
    pub fn copy_blocks(&self, row: usize, columns: RowOrder, out: &mut [u8]) -> bool {
        let TensorStorage::Blocks { data, rows } = self.storage else {
            return false;
        };
        let (values, size) = (
            self.info.encoding.block_values(),
            self.info.encoding.block_bytes().unwrap_or(1),
        );
        // Blocks are put in order while they are read, unless they hold columns that lie apart.
        let order = match self.column_order() {
            RowOrder::AsStored => columns.of_units(values),
            stored => (stored == columns).then_some(RowOrder::AsStored),
        };
        let Some(order) = order else {
            return false;
        };
        let blocks = Blocks::new(self, data, *rows);
        let first = row * (out.len() / size);
        for (index, out) in out.chunks_exact_mut(size).enumerate() {
            out.copy_from_slice(blocks.block(first + order.logical(index)));
        }
        true
    }
}

/// Bytes of a plane that one thread fills at a time.
const PIECE: usize = 128 * 1024;

/// Fill `out`, which lies at byte `start` of a plane, on all threads: `fill` is called for pieces of it with
/// where they start.
pub(crate) fn in_pieces(start: usize, out: &mut [u8], fill: impl Fn(usize, &mut [u8]) + Sync) {
    if out.len() <= PIECE {
        return fill(start, out);
    }
    let pieces = out.par_chunks_mut(PIECE).enumerate();
    pieces.for_each(|(index, piece)| fill(start + index * PIECE, piece));
}

/// Fill `out`, which lies at byte `start` of the quants plane of blocks of a format.
pub(crate) fn write_quants(blocks: &Blocks<'_>, record: &QuantRecord, block: GgufBlock, start: usize, out: &mut [u8]) {
    for_units(record.block_quants(), start, out, |index, unit| {
        (block.repack)(blocks.block(index), unit);
    });
}

/// Write one block from what the planes of the resident layout hold of it: the quants in the order of their
/// values, the scale (a record for K-quants), and the bias where the encoding has one.
pub fn store_block(format: GgufBlock, quants: &[u8], scale: &[u8], bias: &[u8], block: &mut [u8]) {
    (format.store_scale)(scale, block);
    if let Some(at) = format.bias_at {
        block[at..at + bias.len()].copy_from_slice(bias);
    }
    (format.restore)(quants, block);
}

/// The largest unit of a plane, in bytes.
const MOST_UNIT: usize = 256;

/// Fill `out`, which lies at byte `start` of a plane made of units of `size` bytes: `write` is
/// called with the index of each unit that `out` touches and memory for the whole of it.
#[inline(always)] // of sizes that are known where it is called
pub(crate) fn for_units(size: usize, start: usize, out: &mut [u8], mut write: impl FnMut(usize, &mut [u8])) {
    let mut index = start / size;
    let skipped = start % size;
    let mut unit = [0; MOST_UNIT];
    let unit = &mut unit[..size];
    let mut rest = out;
    if skipped != 0 && !rest.is_empty() {
        write(index, unit);
        let length = (size - skipped).min(rest.len());
        let (first, others) = rest.split_at_mut(length);
        first.copy_from_slice(&unit[skipped..skipped + length]);
        rest = others;
        index += 1;
    }
    let mut whole = rest.chunks_exact_mut(size);
    for unit in &mut whole {
        write(index, unit);
        index += 1;
    }
    let last = whole.into_remainder();
    if !last.is_empty() {
        write(index, unit);
        last.copy_from_slice(&unit[..last.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_a_head_alternate_between_its_halves() {
        let rows = RowOrder::Interleaved { head_dim: 6 };
        let order: Vec<usize> = (0..12).map(|stored| rows.logical(stored)).collect();
        assert_eq!(order, [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]);
        assert!((0..12).all(|row| rows.logical(rows.stored(row)) == row));
    }

    #[test]
    fn heads_of_a_group_are_as_many_apart_as_there_are_groups() {
        let rows = RowOrder::Tiled {
            first: 1,
            groups: 2,
            heads: 3,
            size: 2,
        };
        let order: Vec<usize> = (0..13).map(|stored| rows.logical(stored)).collect();
        assert_eq!(order, [0, 1, 2, 7, 8, 3, 4, 9, 10, 5, 6, 11, 12]);
        assert!((0..13).all(|row| rows.logical(rows.stored(row)) == row));
        assert_eq!(rows.of_units(2), None);
    }
}
