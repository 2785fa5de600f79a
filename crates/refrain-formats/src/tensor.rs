//! One tensor of a checkpoint, and its planes in the layout that kernels read.

use std::borrow::Cow;
use std::ops::Range;

use refrain_quant::{GgufBlock, QuantRecord, ScaleType};

use crate::blocks::{Blocks, RowOrder, for_units, in_pieces, write_quants};
use crate::files::FileBytes;
use crate::synthetic::RandomTensor;
use crate::{Encoding, Error};

/// What a checkpoint says about one tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct TensorInfo {
    /// Name as Hugging Face transformers has it, such as
    /// `model.layers.0.self_attn.q_proj.weight`, whatever the file's own naming.
    pub name: String,
    /// Logical shape, row-major, outermost first: `[out, in]` for a linear layer's weight, also
    /// when it is quantised.
    pub shape: Vec<usize>,
    /// How the numbers are stored.
    pub encoding: Encoding,
    /// Bytes that the tensor takes up in its files, scales and biases included.
    pub bytes: u64,
}

impl TensorInfo {
    /// Length of the last axis (1 for a scalar).
    pub fn columns(&self) -> usize {
        self.shape.last().copied().unwrap_or(1)
    }

    /// Product of all axes but the last.
    pub fn rows(&self) -> usize {
        let outer = self.shape.len().saturating_sub(1);
        self.shape[..outer].iter().product()
    }

    /// What [`RowOrder`] orders: rows, or the values of a vector.
    pub(crate) fn ordered_rows(&self) -> usize {
        match self.shape[..] {
            [values] => values,
            _ => self.rows(),
        }
    }

    /// Number of values.
    pub fn values(&self) -> usize {
        self.shape.iter().product()
    }
}

/// Where bytes lie: a file of the checkpoint and a range in it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Span {
    pub file: usize,
    pub range: Range<usize>,
}

/// Where a tensor's bytes lie, and in which order.
#[derive(Debug, Clone)]
pub(crate) enum TensorStorage {
    /// Values one by one.
    Plain { data: Span, rows: RowOrder },
    /// GGUF blocks, scale and quants together.
    Blocks { data: Span, rows: RowOrder },
    /// Words of quants, scales and perhaps biases apart.
    Planes {
        quants: Span,
        scales: Span,
        biases: Option<Span>,
        scale_encoding: Encoding,
        rows: RowOrder,
    },
    /// In no file: made up when read.
    Synthetic(RandomTensor),
}

/// A tensor of a checkpoint, borrowed from the mapped files.
///
/// Quantised tensors are read as planes in one layout, whatever the file's own:
/// - **quants**: `[rows, columns]` values of [`Encoding::quant_bits`] bits, packed little-endian
///   into u32 words: value k of a row lies in word `k·bits/32` at bit `(k·bits) mod 32`.
/// - **scales**: `[rows, columns/group]` in [`Tensor::scale_encoding`]; where they have two levels the u32 words
///   of a record for each 256 values.
/// - **biases**, where the format has them: shaped and stored like the scales.
///
/// What they mean says the format of the encoding ([`refrain_quant::QuantFormat`]).
///
/// The `write_*` functions copy any part of a plane into memory of the caller. They may be called
/// from several threads.
#[derive(Debug, Clone, Copy)]
pub struct Tensor<'a> {
    /// Name, shape, encoding and size.
    pub info: &'a TensorInfo,
    pub(crate) storage: &'a TensorStorage,
    /// The order of the columns in the file.
    pub(crate) columns: RowOrder,
    pub(crate) files: &'a [FileBytes],
    pub(crate) labels: &'a [String],
}

impl<'a> Tensor<'a> {
    /// Whether the tensor is read as quants and scales rather than as data.
    pub fn is_quantised(&self) -> bool {
        self.info.encoding.quant_bits().is_some()
    }

    /// The order that the planes have the columns of each row in: the file's, where blocks hold columns that lie apart.
    pub fn column_order(&self) -> RowOrder {
        match self.columns.of_units(self.info.encoding.block_values()) {
            Some(_) => RowOrder::AsStored,
            None => self.columns,
        }
    }

    /// How scales (and biases) are stored, for quantised tensors: F16 for GGUF's floats, U32 for records, U8 for
    /// exponents; F16, BF16 or F32 for MLX's floats.
    pub fn scale_encoding(&self) -> Option<Encoding> {
        match self.storage {
            TensorStorage::Plain { .. } => None,
            TensorStorage::Blocks { .. } => {
                let record = self.info.encoding.quantised()?;
                Some(Encoding::of_scales(record.format.scale_type()))
            }
            TensorStorage::Planes { scale_encoding, .. } => Some(*scale_encoding),
            TensorStorage::Synthetic(random) => random.scale_encoding(),
        }
    }

    /// Bytes of the data plane; 0 for quantised tensors.
    pub fn data_bytes(&self) -> u64 {
        match self.storage {
            TensorStorage::Plain { data, .. } => data.range.len() as u64,
            TensorStorage::Synthetic(random) => random.data_bytes(),
            _ => 0,
        }
    }

    /// Bytes of the quants plane; 0 for tensors that are not quantised.
    pub fn quants_bytes(&self) -> u64 {
        let bits = self.info.encoding.quant_bits().unwrap_or(0) as u64;
        self.info.values() as u64 * bits / 8
    }

    /// Bytes of the scales plane; 0 for tensors that are not quantised.
    pub fn scales_bytes(&self) -> u64 {
        match self.storage {
            TensorStorage::Plain { .. } => 0,
            TensorStorage::Blocks { .. } => {
                let format = self.info.encoding.quantised().map(|record| record.format);
                format.map_or(0, |format| {
                    (self.info.values() / format.unit() * format.scale_bytes(format.scale_type())) as u64
                })
            }
            TensorStorage::Planes { scales, .. } => scales.range.len() as u64,
            TensorStorage::Synthetic(random) => random.scales_bytes(),
        }
    }

    /// Bytes of the biases plane; 0 unless the encoding has a plane of biases.
    pub fn biases_bytes(&self) -> u64 {
        match self.storage {
            TensorStorage::Planes { biases, .. } => biases.as_ref().map_or(0, |biases| biases.range.len() as u64),
            TensorStorage::Blocks { .. } if self.bias_in_block().is_some() => self.scales_bytes(),
            TensorStorage::Synthetic(random) => random.biases_bytes(),
            _ => 0,
        }
    }

    /// All values of a tensor that is not quantised, as little-endian bytes in row-major order.
    /// Borrowed from the file unless its rows are stored in another order.
    ///
    /// # Errors
    /// If the tensor is quantised or cannot be read.
    pub fn data(&self) -> Result<Cow<'a, [u8]>, Error> {
        match self.storage {
            TensorStorage::Plain {
                data,
                rows: RowOrder::AsStored,
            } if self.columns == RowOrder::AsStored => Ok(Cow::Borrowed(self.bytes(data))),
            _ => {
                let mut out = vec![0; self.data_bytes() as usize];
                self.write_data(0, &mut out)?;
                Ok(Cow::Owned(out))
            }
        }
    }

    /// Copy the bytes from `byte_offset` on of a tensor that is not quantised into `out`.
    ///
    /// # Errors
    /// If the tensor is quantised, or the range ends past [`Tensor::data_bytes`].
    pub fn write_data(&self, byte_offset: u64, out: &mut [u8]) -> Result<(), Error> {
        let start = || self.check_range("data", byte_offset, out.len(), self.data_bytes());
        match self.storage {
            TensorStorage::Plain { data, rows } => self.copy_rows(data, *rows, start()?, out),
            TensorStorage::Synthetic(random) if !self.is_quantised() => random.write_data(start()?, out),
            _ => return Err(self.error("is quantised: it has quants and scales, and no plain data")),
        }
        Ok(())
    }

    fn copy_rows(&self, data: &Span, rows: RowOrder, start: usize, out: &mut [u8]) {
        let bytes = self.bytes(data);
        if let RowOrder::Transposed { .. } = rows {
            let size = self.info.encoding.value_bytes().unwrap_or(1);
            return rows.copy_transposed(bytes, size, start, out);
        }
        if self.columns != RowOrder::AsStored {
            let (size, columns) = (
                self.info.encoding.value_bytes().unwrap_or(1),
                self.info.columns().max(1),
            );
            return for_units(size, start, out, |index, unit| {
                let stored = rows.stored(index / columns) * columns + self.columns.stored(index % columns);
                unit.copy_from_slice(&bytes[stored * size..][..size]);
            });
        }
        if rows == RowOrder::AsStored {
            out.copy_from_slice(&bytes[start..start + out.len()]);
            return;
        }
        let row_bytes = self.stored_row_bytes(bytes.len());
        let mut done = 0;
        while done < out.len() {
            let at = start + done;
            let within = at % row_bytes;
            let stored = rows.stored(at / row_bytes) * row_bytes;
            let length = (row_bytes - within).min(out.len() - done);
            out[done..done + length].copy_from_slice(&bytes[stored + within..stored + within + length]);
            done += length;
        }
    }

    /// Copy the bytes from `byte_offset` on of the quants plane into `out`.
    ///
    /// # Errors
    /// If the tensor is not quantised, or the range ends past [`Tensor::quants_bytes`].
    pub fn write_quants(&self, byte_offset: u64, out: &mut [u8]) -> Result<(), Error> {
        let start = self.check_range("quants", byte_offset, out.len(), self.quants_bytes())?;
        match self.storage {
            TensorStorage::Synthetic(random) if self.is_quantised() => random.write_quants(start, out),
            TensorStorage::Plain { .. } | TensorStorage::Synthetic(_) => {
                return Err(self.error("is not quantised: it has no quants"));
            }
            TensorStorage::Planes { quants, rows, .. } => self.copy_rows(quants, *rows, start, out),
            TensorStorage::Blocks { data, rows } => {
                let blocks = Blocks::new(self, data, *rows);
                if let Some((record, block)) = self.blocks_of() {
                    in_pieces(start, out, |start, piece| {
                        write_quants(&blocks, record, block, start, piece);
                    });
                }
            }
        }
        Ok(())
    }

    /// Copy the bytes from `byte_offset` on of the scales plane into `out`.
    ///
    /// # Errors
    /// If the tensor is not quantised, the range ends past [`Tensor::scales_bytes`], or a scale in
    /// the range is NaN or infinite.
    pub fn write_scales(&self, byte_offset: u64, out: &mut [u8]) -> Result<(), Error> {
        let start = self.check_range("scales", byte_offset, out.len(), self.scales_bytes())?;
        match self.storage {
            // Finite by construction.
            TensorStorage::Synthetic(random) if self.is_quantised() => {
                random.write_scales(start, out);
                return Ok(());
            }
            TensorStorage::Plain { .. } | TensorStorage::Synthetic(_) => {
                return Err(self.error("is not quantised: it has no scales"));
            }
            TensorStorage::Planes { scales, rows, .. } => self.copy_rows(scales, *rows, start, out),
            TensorStorage::Blocks { data, rows } => {
                let blocks = Blocks::new(self, data, *rows);
                if let Some((record, block)) = self.blocks_of() {
                    let size = record.format.scale_bytes(record.format.scale_type());
                    for_units(size, start, out, |index, unit| (block.scale)(blocks.block(index), unit));
                }
            }
        }
        self.check_scales_finite(start, out)
    }

    /// Copy the bytes from `byte_offset` on of the biases plane into `out`.
    ///
    /// # Errors
    /// If the tensor has no biases, the range ends past [`Tensor::biases_bytes`], or a bias in the
    /// range is NaN or infinite.
    pub fn write_biases(&self, byte_offset: u64, out: &mut [u8]) -> Result<(), Error> {
        let start = self.check_range("biases", byte_offset, out.len(), self.biases_bytes())?;
        match self.storage {
            TensorStorage::Planes {
                biases: Some(biases),
                rows,
                ..
            } => {
                self.copy_rows(biases, *rows, start, out);
                self.check_finite("bias", start, out)
            }
            TensorStorage::Blocks { data, rows } if self.bias_in_block().is_some() => {
                let at = self.bias_in_block().unwrap_or(0);
                let blocks = Blocks::new(self, data, *rows);
                for_units(2, start, out, |index, unit| {
                    unit.copy_from_slice(&blocks.block(index)[at..at + 2]);
                });
                self.check_finite("bias", start, out)
            }
            // Finite by construction.
            TensorStorage::Synthetic(random) if random.biases_bytes() > 0 => {
                random.write_biases(start, out);
                Ok(())
            }
            _ => {
                let biased =
                    refrain_quant::records().filter(|record| record.block.is_some_and(|b| b.bias_at.is_some()));
                let biased = Vec::from_iter(biased.map(|record| record.label)).join(" or ");
                Err(self.error(format!(
                    "has no biases: neither was it quantised by MLX nor is it {biased}"
                )))
            }
        }
    }

    /// The format and its blocks, if it has such.
    fn blocks_of(&self) -> Option<(&'static QuantRecord, GgufBlock)> {
        let record = self.info.encoding.quantised()?;
        Some((record, record.block?))
    }

    /// Where GGUF blocks hold an f16 bias, if they do.
    fn bias_in_block(&self) -> Option<usize> {
        self.info.encoding.block()?.bias_at
    }

    /// Tell the operating system that the tensor's pages are not needed any more, so that the
    /// memory of the process stays small while a large checkpoint is loaded. They are read from
    /// the file again if touched.
    pub fn discard(&self) {
        let spans = match self.storage {
            TensorStorage::Plain { data, .. } | TensorStorage::Blocks { data, .. } => vec![data],
            TensorStorage::Planes {
                quants, scales, biases, ..
            } => [quants, scales].into_iter().chain(biases).collect(),
            TensorStorage::Synthetic(_) => Vec::new(),
        };
        for span in spans {
            self.files[span.file].discard(span.range.clone());
        }
    }

    pub(crate) fn bytes(&self, span: &Span) -> &'a [u8] {
        &self.files[span.file].bytes()[span.range.clone()]
    }

    /// That something is wrong with it.
    pub fn error(&self, reason: impl Into<String>) -> Error {
        let file = match self.storage {
            TensorStorage::Plain { data, .. } | TensorStorage::Blocks { data, .. } => data.file,
            TensorStorage::Planes { quants, .. } => quants.file,
            TensorStorage::Synthetic(_) => 0,
        };
        Error::tensor(self.labels[file].clone(), self.info.name.clone(), reason)
    }

    /// Bytes of one row of a plane of `total` bytes whose rows are reordered: those of a vector are its values.
    fn stored_row_bytes(&self, total: usize) -> usize {
        total / self.info.ordered_rows().max(1)
    }

    fn check_range(&self, plane: &str, offset: u64, length: usize, total: u64) -> Result<usize, Error> {
        match offset.checked_add(length as u64) {
            Some(end) if end <= total => Ok(offset as usize),
            _ => Err(self.error(format!(
                "{length} bytes from {offset} on lie outside of its {plane} of {total} bytes"
            ))),
        }
    }

    /// Check the scales in `bytes`, which lie at byte `start` of their plane: their factors where they are records.
    fn check_scales_finite(&self, start: usize, bytes: &[u8]) -> Result<(), Error> {
        let Some(record) = self
            .info
            .encoding
            .quantised()
            .filter(|record| record.format.has_records())
        else {
            return self.check_finite("scale", start, bytes);
        };
        let size = record.format.scale_bytes(ScaleType::U32);
        let skipped = start.next_multiple_of(size) - start;
        let units = bytes.get(skipped..).unwrap_or(&[]).chunks(size);
        for (index, unit) in units.enumerate().filter(|(_, unit)| unit.len() >= 4) {
            if let Some(factor) = record.odd_factor(ScaleType::U32, unit) {
                let index = (start + skipped) / size + index;
                let per_row = (self.info.columns() / record.format.unit()).max(1);
                let (row, block) = (index / per_row, index % per_row);
                return Err(self.error(format!(
                    "a scale of row {row}, block {block} is {factor}: the file is damaged, or was \
                     converted from weights that are not numbers"
                )));
            }
        }
        Ok(())
    }

    /// Check the scales or biases in `bytes`, which lie at byte `start` of their plane. Values of
    /// which only a part lies in the range are left to whoever reads the rest.
    fn check_finite(&self, what: &str, start: usize, bytes: &[u8]) -> Result<(), Error> {
        let stored = self.scale_encoding().and_then(Encoding::as_scales);
        let stored = stored.unwrap_or(ScaleType::F16);
        let size = stored.size();
        let skipped = start.next_multiple_of(size) - start;
        let values = bytes.get(skipped..).unwrap_or(&[]).chunks_exact(size);
        for (index, value) in values.enumerate() {
            let value = stored.read(value);
            if !value.is_finite() {
                let group = self.info.encoding.group().unwrap_or(1);
                let per_row = (self.info.columns() / group).max(1);
                let index = (start + skipped) / size + index;
                return Err(self.error(format!(
                    "the {what} of row {}, group {} is {value}: the file is damaged, or was \
                     converted from weights that are not numbers",
                    index / per_row,
                    index % per_row
                )));
            }
        }
        Ok(())
    }
}
