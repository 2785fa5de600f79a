//! How GGUF stores matrices: blocks of 32 or 256 values, and rows in an order of its own.

pub(crate) mod records;
pub(crate) mod values;

use rayon::prelude::*;

use crate::tensor::Span;
use crate::{Encoding, Tensor};

/// In which order a file holds a tensor's rows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum RowOrder {
    AsStored,
    /// The rows of each head are stored so that the two halves of the head alternate (pairs for
    /// interleaved rotary embeddings), as GGUF files of Llama models have it.
    Interleaved {
        head_dim: usize,
    },
}

impl RowOrder {
    /// The row of the file that holds row `row` of the tensor.
    pub(crate) fn stored(self, row: usize) -> usize {
        match self {
            RowOrder::AsStored => row,
            RowOrder::Interleaved { head_dim } => {
                let (head, within) = (row / head_dim, row % head_dim);
                let (half, index) = (within / (head_dim / 2), within % (head_dim / 2));
                head * head_dim + 2 * index + half
            }
        }
    }
    /// The row of the tensor that row `stored` of the file holds.
    pub(crate) fn logical(self, stored: usize) -> usize {
        match self {
            RowOrder::AsStored => stored,
            RowOrder::Interleaved { head_dim } => {
                let (head, within) = (stored / head_dim, stored % head_dim);
                head * head_dim + within % 2 * (head_dim / 2) + within / 2
            }
        }
    }
}

/// GGUF blocks of a tensor by their place in the tensor (not in the file).
pub(crate) struct Blocks<'a> {
    bytes: &'a [u8],
    block_bytes: usize,
    per_row: usize,
    rows: RowOrder,
}

impl<'a> Blocks<'a> {
    pub(crate) fn new(tensor: &Tensor<'a>, data: &Span, rows: RowOrder) -> Self {
        Blocks {
            bytes: tensor.bytes(data),
            block_bytes: tensor.info.encoding.block_bytes().unwrap_or(1),
            per_row: (tensor.info.columns() / tensor.info.encoding.block_values()).max(1),
            rows,
        }
    }

    /// The bytes of block `index`.
    pub(crate) fn block(&self, index: usize) -> &'a [u8] {
        let stored = match self.rows {
            RowOrder::AsStored => index,
            _ => self.rows.stored(index / self.per_row) * self.per_row + index % self.per_row,
        };
        &self.bytes[stored * self.block_bytes..(stored + 1) * self.block_bytes]
    }

    /// The f16 scale of block `index`.
    pub(crate) fn scale(&self, index: usize) -> &'a [u8] {
        &self.block(index)[..2]
    }

    /// The f16 minimum of block `index`, which follows the scale where the encoding has one.
    pub(crate) fn minimum(&self, index: usize) -> &'a [u8] {
        &self.block(index)[2..4]
    }

    /// The bytes after the scale of block `index`.
    pub(crate) fn quants(&self, index: usize) -> &'a [u8] {
        &self.block(index)[2..]
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

/// Fill `out`, which lies at byte `start` of the quants plane of blocks of `encoding`.
pub(crate) fn write_quants(blocks: &Blocks<'_>, encoding: Encoding, start: usize, out: &mut [u8]) {
    match encoding {
        Encoding::Q4_0 => for_units::<16>(start, out, |index, unit| unpack_q4_0(blocks.quants(index), unit)),
        Encoding::Q8_0 => for_units::<32>(start, out, |index, unit| unit.copy_from_slice(blocks.quants(index))),
        Encoding::Q4_1 => repack::<16>(blocks, Encoding::Q4_1, start, out),
        Encoding::Q2_K => repack::<64>(blocks, Encoding::Q2_K, start, out),
        Encoding::Q3_K => repack::<96>(blocks, Encoding::Q3_K, start, out),
        Encoding::Q4_K => repack::<128>(blocks, Encoding::Q4_K, start, out),
        Encoding::Q5_K => repack::<160>(blocks, Encoding::Q5_K, start, out),
        Encoding::Q6_K => repack::<192>(blocks, Encoding::Q6_K, start, out),
        five_bits => repack::<20>(blocks, five_bits, start, out),
    }
}

/// Fill `out`, which lies at byte `start` of the quants plane of blocks that take `SIZE` bytes in it.
fn repack<const SIZE: usize>(blocks: &Blocks<'_>, encoding: Encoding, start: usize, out: &mut [u8]) {
    let count = encoding.block_values();
    for_units::<SIZE>(start, out, |index, unit| {
        let mut quants = [0; values::MOST_VALUES];
        values::unpack(encoding, blocks.block(index), &mut quants[..count]);
        values::pack(SIZE * 8 / count, &quants[..count], unit);
    });
}

/// Write the quants of one Q4_0 block in the order of their values, two to a byte, low half
/// first. In the file, byte j holds value j and value j + 16.
pub(crate) fn unpack_q4_0(stored: &[u8], out: &mut [u8; 16]) {
    for j in 0..8 {
        let (a, b) = (stored[2 * j], stored[2 * j + 1]);
        out[j] = (a & 0x0f) | (b << 4);
        out[8 + j] = (a >> 4) | (b & 0xf0);
    }
}

/// Write one block from what the planes of the resident layout hold of it: the quants in the order of their
/// values, the scale (a record for K-quants), and the bias where the encoding has one.
pub(crate) fn store_block(encoding: Encoding, quants: &[u8], scale: &[u8], bias: &[u8], block: &mut [u8]) {
    let count = encoding.block_values();
    let mut values = [0; values::MOST_VALUES];
    values::spread(encoding.quant_bits().unwrap_or(8), quants, &mut values[..count]);
    if encoding.has_records() {
        records::store(encoding, scale, block);
    } else {
        block[..2].copy_from_slice(scale);
        block[2..2 + bias.len()].copy_from_slice(bias);
    }
    values::store(encoding, &values[..count], block);
}

/// Fill `out`, which lies at byte `start` of a plane made of units of `SIZE` bytes: `write` is
/// called with the index of each unit that `out` touches and memory for the whole of it.
pub(crate) fn for_units<const SIZE: usize>(
    start: usize,
    out: &mut [u8],
    mut write: impl FnMut(usize, &mut [u8; SIZE]),
) {
    let mut index = start / SIZE;
    let skipped = start % SIZE;
    let mut rest = out;
    if skipped != 0 && !rest.is_empty() {
        let mut unit = [0; SIZE];
        write(index, &mut unit);
        let length = (SIZE - skipped).min(rest.len());
        let (first, others) = rest.split_at_mut(length);
        first.copy_from_slice(&unit[skipped..skipped + length]);
        rest = others;
        index += 1;
    }
    let (whole, last) = rest.as_chunks_mut::<SIZE>();
    for unit in whole {
        write(index, unit);
        index += 1;
    }
    if !last.is_empty() {
        let mut unit = [0; SIZE];
        write(index, &mut unit);
        last.copy_from_slice(&unit[..last.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_stored_as_it_was_read() {
        use Encoding::{Q2_K, Q3_K, Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K, Q8_0};
        for encoding in [Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K] {
            let bytes = encoding.block_bytes().unwrap();
            let mut state = 1u32;
            let block: Vec<u8> = (0..bytes)
                .map(|_| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (state >> 24) as u8
                })
                .collect();
            let count = encoding.block_values();
            let mut quants = vec![0; count];
            values::unpack(encoding, &block, &mut quants);
            let mut packed = vec![0; count * encoding.quant_bits().unwrap() / 8];
            values::pack(encoding.quant_bits().unwrap(), &quants, &mut packed);
            let record = records::record(encoding, &[&block[..], &[0; 210]].concat());
            let (scale, bias) = match encoding {
                Q4_1 | Q5_1 => (&block[..2], &block[2..4]),
                _ if encoding.has_records() => (&record[..], &block[..0]),
                _ => (&block[..2], &block[..0]),
            };
            let mut again = vec![0xa5; bytes];
            store_block(encoding, &packed, scale, bias, &mut again);
            assert!(again == block, "{encoding}");
        }
    }

    #[test]
    fn four_bit_quants_are_unpacked_in_the_order_of_their_values() {
        let block: Vec<u8> = (0..18u8).map(|j| j.wrapping_mul(37) ^ 3).collect();
        let (mut quants, mut packed, mut in_order) = ([0; 32], [0; 16], [0; 16]);
        values::unpack(Encoding::Q4_0, &block, &mut quants);
        values::pack(4, &quants, &mut packed);
        unpack_q4_0(&block[2..], &mut in_order);
        assert_eq!(in_order, packed);
    }

    #[test]
    fn rows_of_a_head_alternate_between_its_halves() {
        let rows = RowOrder::Interleaved { head_dim: 6 };
        let order: Vec<usize> = (0..12).map(|stored| rows.logical(stored)).collect();
        assert_eq!(order, [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]);
        assert!((0..12).all(|row| rows.logical(rows.stored(row)) == row));
    }
}
