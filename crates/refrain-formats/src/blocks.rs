//! GGUF's storage of matrices: blocks of 32 or 256 values, and permuted rows.

use rayon::prelude::*;
use refrain_quant::{GgufBlock, QuantRecord};

use crate::Tensor;
use crate::storage::{Span, TensorStorage};

/// Order of a tensor's rows in a file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RowOrder {
    /// Same order as the tensor.
    AsStored,
    /// The rows of each head are permuted so that its two halves alternate: pairs for interleaved rotary embeddings.
    /// GGUF files of Llama models use this.
    Interleaved {
        /// Rows of a head.
        head_dim: usize,
    },
    /// Each matrix `[rows, columns]` is stored column by column. If `interleaved`, values of the first and second
    /// half of the rows alternate. Only for tensors that are not quantised.
    Transposed {
        /// Rows of one matrix of the tensor.
        rows: usize,
        /// Columns of one matrix.
        columns: usize,
        /// Whether the two halves of the rows alternate.
        interleaved: bool,
    },
    /// Heads are stored by their index within a group: the first head of every group, then the second ones, and so
    /// on. GGUF files of Gated DeltaNet models store the value heads that share a key head this way.
    Tiled {
        /// Rows before the first head; they keep their order.
        first: usize,
        /// Number of groups.
        groups: usize,
        /// Heads per group.
        heads: usize,
        /// Rows per head.
        size: usize,
    },
}

/// Order of a tensor's rows and columns in a file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TensorOrder {
    /// Order of the rows; of the values for a vector.
    pub rows: RowOrder,
    /// Order of the columns of each row.
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
    /// Returns why a tensor of `rows` by `columns` cannot have this order; `None` if it can.
    pub(crate) fn mismatch(self, rows: usize, columns: usize) -> Option<String> {
        let mismatch = |order: RowOrder, count: usize, what: &str| match order {
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
        mismatch(self.rows, rows, "rows").or_else(|| mismatch(self.columns, columns, "columns"))
    }
}

impl RowOrder {
    /// Returns the file's row that holds row `row` of the tensor.
    pub fn stored(self, row: usize) -> usize {
        match self {
            RowOrder::AsStored => row,
            RowOrder::Interleaved { head_dim } => {
                let (head, within) = (row / head_dim, row % head_dim);
                let (half, index) = (within / (head_dim / 2), within % (head_dim / 2));
                head * head_dim + 2 * index + half
            }
            RowOrder::Transposed { .. } => self.within_column().stored(row),
            RowOrder::Tiled {
                first,
                groups,
                heads,
                size,
            } => transpose_heads(row, first, [groups, heads], size),
        }
    }

    /// Returns the tensor's row that row `stored` of the file holds.
    pub fn logical(self, stored: usize) -> usize {
        match self {
            RowOrder::AsStored => stored,
            RowOrder::Interleaved { head_dim } => {
                let (head, within) = (stored / head_dim, stored % head_dim);
                head * head_dim + within % 2 * (head_dim / 2) + within / 2
            }
            RowOrder::Transposed { .. } => self.within_column().logical(stored),
            RowOrder::Tiled {
                first,
                groups,
                heads,
                size,
            } => transpose_heads(stored, first, [heads, groups], size),
        }
    }

    /// Returns the order of units of `unit` columns; `None` if the order splits units.
    pub fn in_units(self, unit: usize) -> Option<RowOrder> {
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

    /// Order of the values within a column for transposed matrices; `self` otherwise.
    pub fn within_column(self) -> RowOrder {
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

    /// Shape in the file of a tensor of `shape`.
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

    /// Fills `out`, which starts at byte `start` of the tensor, from `bytes` of matrices that are stored by columns.
    pub(crate) fn copy_transposed(self, bytes: &[u8], size: usize, start: usize, out: &mut [u8]) {
        let RowOrder::Transposed { rows, columns, .. } = self else {
            return;
        };
        let stored = |index: usize| {
            let (row, column) = (index / columns, index % columns);
            let (matrix, row) = (row / rows, self.stored(row % rows));
            (matrix * columns + column) * rows + row
        };
        in_chunks(start, out, |start, out| {
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

/// Transposes `outer` by `inner` heads of `size` rows after the `first` rows; returns the new index of `row`.
fn transpose_heads(row: usize, first: usize, [outer, inner]: [usize; 2], size: usize) -> usize {
    let Some(behind) = row.checked_sub(first) else {
        return row;
    };
    let (head, within) = (behind / size, behind % size);
    first + (head % inner * outer + head / inner) * size + within
}

/// GGUF blocks of a tensor, indexed in the tensor's order.
pub(crate) struct Blocks<'a> {
    bytes: &'a [u8],
    block_bytes: usize,
    per_row: usize,
    rows: RowOrder,
    /// Order of the blocks of a row.
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
            columns: tensor.columns.in_units(values).unwrap_or(RowOrder::AsStored),
        }
    }

    /// Bytes of block `index`.
    pub(crate) fn block(&self, index: usize) -> &'a [u8] {
        let stored = match (self.rows, self.columns) {
            (RowOrder::AsStored, RowOrder::AsStored) => index,
            (rows, columns) => rows.stored(index / self.per_row) * self.per_row + columns.stored(index % self.per_row),
        };
        &self.bytes[stored * self.block_bytes..(stored + 1) * self.block_bytes]
    }
}

impl Tensor<'_> {
    /// Copies the GGUF blocks of row `row` into `out`, with the columns in order `columns`. Returns false if the
    /// tensor has no blocks, or the order would split blocks.
    pub fn copy_blocks(&self, row: usize, columns: RowOrder, out: &mut [u8]) -> bool {
        let TensorStorage::Blocks { data, rows } = self.storage else {
            return false;
        };
        let (values, size) = (
            self.info.encoding.block_values(),
            self.info.encoding.block_bytes().unwrap_or(1),
        );
        // Reading puts whole blocks in order. It cannot reorder columns within a block.
        let order = match self.column_order() {
            RowOrder::AsStored => columns.in_units(values),
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
const CHUNK_BYTES: usize = 128 * 1024;

/// Fills `out`, which starts at byte `start` of a plane, on all threads. `fill` is called with the start of each
/// chunk and the chunk.
pub(crate) fn in_chunks(start: usize, out: &mut [u8], fill: impl Fn(usize, &mut [u8]) + Sync) {
    if out.len() <= CHUNK_BYTES {
        return fill(start, out);
    }
    let pieces = out.par_chunks_mut(CHUNK_BYTES).enumerate();
    pieces.for_each(|(index, piece)| fill(start + index * CHUNK_BYTES, piece));
}

/// Fills `out`, which starts at byte `start` of the quants plane.
pub(crate) fn write_quants(blocks: &Blocks<'_>, record: &QuantRecord, block: GgufBlock, start: usize, out: &mut [u8]) {
    for_units(record.block_quants(), start, out, |index, unit| {
        (block.repack)(blocks.block(index), unit);
    });
}

/// Writes one GGUF block from its planes: the quants in value order, the scale (a record for K-quants), and the bias
/// if the format has one.
pub fn store_block(format: GgufBlock, quants: &[u8], scale: &[u8], bias: &[u8], block: &mut [u8]) {
    (format.store_scale)(scale, block);
    if let Some(at) = format.bias_at {
        block[at..at + bias.len()].copy_from_slice(bias);
    }
    (format.restore)(quants, block);
}

/// Maximum size of a unit of a plane, in bytes.
const MAX_UNIT_BYTES: usize = 256;

/// Fills `out`, which starts at byte `start` of a plane of units of `size` bytes. `write` is called with the index
/// and the memory of each unit that `out` overlaps.
#[inline(always)] // so that constant sizes are propagated
pub(crate) fn for_units(size: usize, start: usize, out: &mut [u8], mut write: impl FnMut(usize, &mut [u8])) {
    let mut index = start / size;
    let skipped = start % size;
    let mut unit = [0; MAX_UNIT_BYTES];
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
    fn interleaved_rows_alternate_between_halves_of_a_head() {
        let rows = RowOrder::Interleaved { head_dim: 6 };
        let order: Vec<usize> = (0..12).map(|stored| rows.logical(stored)).collect();
        assert_eq!(order, [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]);
        assert!((0..12).all(|row| rows.logical(rows.stored(row)) == row));
    }

    #[test]
    fn tiled_heads_of_a_group_are_one_group_count_apart() {
        let rows = RowOrder::Tiled {
            first: 1,
            groups: 2,
            heads: 3,
            size: 2,
        };
        let order: Vec<usize> = (0..13).map(|stored| rows.logical(stored)).collect();
        assert_eq!(order, [0, 1, 2, 7, 8, 3, 4, 9, 10, 5, 6, 11, 12]);
        assert!((0..13).all(|row| rows.logical(rows.stored(row)) == row));
        assert_eq!(rows.in_units(2), None);
    }
}
