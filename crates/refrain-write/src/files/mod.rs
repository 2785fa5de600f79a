//! Streams checkpoints to disk: GGUF files, and directories of config.json and safetensors. The part that makes one
//! readable (a GGUF file's first bytes, a directory's config.json) is written last.

mod conversion;
pub mod directory;
pub mod gguf;

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::ops::Range;

use refrain_formats::write::Target;
use refrain_formats::{Encoding, Error, Tensor};

pub use conversion::{Conversion, ConvertedTensor, Deviation, TensorRows, ValueChange};

/// Bytes that are encoded before they are written, which bounds the memory use.
const PIECE_BYTES: usize = 16 << 20;

/// A tensor as a file lists it.
#[derive(Debug, Clone)]
pub struct ListedTensor {
    /// Its name in the file.
    pub name: String,
    /// The encoding of its numbers.
    pub encoding: Encoding,
    /// Outermost axis first, in the encoding's words.
    pub shape: Vec<usize>,
    /// Its size in bytes.
    pub bytes: u64,
}

/// Encodes a range of rows of all parts of an item, each into its own buffer.
pub type MakeRows<'a> = Box<dyn Fn(Range<usize>, &mut [&mut [u8]]) -> Result<(), Error> + 'a>;

/// Tensors that are encoded together, row by row: a single one, or weights, scales and biases.
pub struct Item<'a> {
    /// The tensors.
    pub parts: Vec<ListedTensor>,
    /// Number of rows in each part; a vector is one row.
    pub rows: usize,
    /// Encodes the rows.
    pub make: MakeRows<'a>,
}

impl<'a> Item<'a> {
    /// An item of one tensor with the encoder of its rows.
    pub fn single(
        part: ListedTensor,
        rows: usize,
        make: impl Fn(Range<usize>, &mut [u8]) -> Result<(), Error> + 'a,
    ) -> Self {
        Item {
            parts: vec![part],
            rows,
            make: Box::new(move |rows, out| make(rows, out[0])),
        }
    }

    /// An item of one tensor with these bytes.
    pub fn bytes(part: ListedTensor, bytes: Vec<u8>) -> Self {
        Self::single(part, 1, move |_, out| {
            out.copy_from_slice(&bytes);
            Ok(())
        })
    }

    /// A tensor as it lies in memory: its data, or its quants, scales and biases as MLX stores them.
    pub fn planes(tensor: Tensor<'a>) -> Self {
        let info = tensor.info;
        let part = |name: String, encoding, columns: usize, bytes| {
            let mut shape = info.shape.clone();
            if let Some(last) = shape.last_mut() {
                *last = columns;
            }
            ListedTensor {
                name,
                encoding,
                shape,
                bytes,
            }
        };
        let columns = info.columns();
        let Some(affine) = info.encoding.quantised().filter(|record| record.is_mlx_affine()) else {
            let part = part(info.name.clone(), info.encoding, columns, tensor.data_bytes());
            return Self::single(part, info.rows(), move |rows, out| {
                let row_bytes = out.len() / rows.len();
                tensor.write_data((rows.start * row_bytes) as u64, out)
            });
        };
        let layer = info.name.strip_suffix(".weight").unwrap_or(&info.name);
        let scale_encoding = tensor.scale_encoding().unwrap_or(Encoding::BF16);
        let (words, groups) = (affine.format.words(columns), affine.format.scales(columns));
        let names = [info.name.clone(), format!("{layer}.scales"), format!("{layer}.biases")];
        let [weight, scales, biases] = names;
        Item {
            parts: vec![
                part(weight, Encoding::U32, words, tensor.quants_bytes()),
                part(scales, scale_encoding, groups, tensor.scales_bytes()),
                part(biases, scale_encoding, groups, tensor.biases_bytes()),
            ],
            rows: info.rows(),
            make: Box::new(move |rows, out| {
                let offset = |out: &[u8]| (out.len() / rows.len() * rows.start) as u64;
                let [quants, scales, biases] = out else {
                    return Ok(());
                };
                tensor.write_quants(offset(quants), quants)?;
                tensor.write_scales(offset(scales), scales)?;
                tensor.write_biases(offset(biases), biases)
            }),
        }
    }

    /// Returns the bytes of all parts.
    pub fn total(&self) -> u64 {
        self.parts.iter().map(|part| part.bytes).sum()
    }

    /// Encodes all rows, and writes part k from byte `offsets[k]` of the file on.
    fn write(&self, file: &mut File, offsets: &[u64], target: &mut Target<'_>) -> Result<(), Error> {
        let row_bytes: Vec<usize> = self.parts.iter().map(|p| p.bytes as usize / self.rows.max(1)).collect();
        let all: usize = row_bytes.iter().sum();
        let per_piece = (PIECE_BYTES / all.max(1)).clamp(1, self.rows.max(1));
        let mut buffers: Vec<Vec<u8>> = row_bytes.iter().map(|bytes| vec![0; bytes * per_piece]).collect();
        let mut start = 0;
        while start < self.rows {
            let rows = start..(start + per_piece).min(self.rows);
            let sized = buffers.iter_mut().zip(&row_bytes);
            let mut pieces: Vec<&mut [u8]> = sized.map(|(b, bytes)| &mut b[..bytes * rows.len()]).collect();
            (self.make)(rows.clone(), &mut pieces)?;
            for ((piece, bytes), offset) in pieces.iter().zip(&row_bytes).zip(offsets) {
                target.io(file.seek(SeekFrom::Start(offset + (bytes * start) as u64)))?;
                target.io(file.write_all(piece))?;
                target.advance(piece.len())?;
            }
            start = rows.end;
        }
        Ok(())
    }
}
