//! A tensor of a checkpoint, and its planes in the layout that kernels read.

use std::borrow::Cow;

use refrain_quant::{GgufBlock, QuantRecord, ScaleType};

use crate::blocks::{Blocks, RowOrder, for_units, in_chunks, write_quants};
use crate::doubles::DOUBLE_BYTES;
use crate::files::FileBytes;
use crate::storage::{Span, TensorStorage};
use crate::{Encoding, Error};

/// Name, shape and storage of a tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct TensorInfo {
    /// Name in Hugging Face transformers, such as `model.layers.0.self_attn.q_proj.weight`, whatever the file calls
    /// it.
    pub name: String,
    /// Logical shape, row-major, outermost axis first: `[out, in]` for a linear layer's weight, quantised or not.
    pub shape: Vec<usize>,
    /// Storage type of the values.
    pub encoding: Encoding,
    /// Size in its files in bytes, including scales and biases.
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

    /// Number of elements that [`RowOrder`] permutes: rows, or the values of a vector.
    pub(crate) fn ordered_rows(&self) -> usize {
        match self.shape[..] {
            [values] => values,
            _ => self.rows(),
        }
    }

    /// Size in memory in bytes. Values may be wider there than in the files.
    pub fn memory_bytes(&self) -> u64 {
        let values = self.values() as u64;
        self.encoding
            .value_bytes()
            .map_or(self.bytes, |bytes| values * bytes as u64)
    }

    /// Number of values.
    pub fn values(&self) -> usize {
        self.shape.iter().product()
    }
}

/// A tensor of a checkpoint, borrowed from the mapped files.
///
/// Quantised tensors are read as planes in one layout, independent of the file's:
///
/// - **quants**: `[rows, columns]` values of [`Encoding::quant_bits`] bits, packed little-endian into u32 words:
///   value k of a row is in word `k·bits/32` at bit `(k·bits) mod 32`.
/// - **scales**: `[rows, columns/group]` in [`Tensor::scale_encoding`]. Two-level scales are u32 words of a record
///   per 256 values.
/// - **biases**, if the format has them: shape and type of the scales.
///
/// [`refrain_quant::QuantFormat`] defines how these give values.
///
/// The `write_*` functions copy any part of a plane into the caller's memory. They may be called from several
/// threads.
#[derive(Debug, Clone, Copy)]
pub struct Tensor<'a> {
    /// Name, shape, encoding and size.
    pub info: &'a TensorInfo,
    pub(crate) storage: &'a TensorStorage,
    /// Order of the columns in the file.
    pub(crate) columns: RowOrder,
    pub(crate) files: &'a [FileBytes],
    pub(crate) labels: &'a [String],
}

impl<'a> Tensor<'a> {
    /// Whether the tensor has quants and scales instead of plain data.
    pub fn is_quantised(&self) -> bool {
        self.info.encoding.quant_bits().is_some()
    }

    /// Order of the columns within the planes. It is the file's order if that splits blocks.
    pub fn column_order(&self) -> RowOrder {
        match self.columns.in_units(self.info.encoding.block_values()) {
            Some(_) => RowOrder::AsStored,
            None => self.columns,
        }
    }

    /// Storage type of scales (and biases) of a quantised tensor. GGUF: F16, U32 for records, or U8 for exponents.
    /// MLX: F16, BF16 or F32.
    pub fn scale_encoding(&self) -> Option<Encoding> {
        match self.storage {
            TensorStorage::Blocks { .. } => {
                let record = self.info.encoding.quantised()?;
                Some(Encoding::from_scale_type(record.format.scale_type()))
            }
            TensorStorage::Planes { scale_encoding, .. } => Some(*scale_encoding),
            TensorStorage::Synthetic(random) => random.scale_encoding(),
            _ => None,
        }
    }

    /// Bytes of the data plane; 0 for quantised tensors.
    pub fn data_bytes(&self) -> u64 {
        match self.storage {
            TensorStorage::Plain { data, .. } => data.range.len() as u64,
            TensorStorage::Doubles { data, .. } => data.range.len() as u64 / 2,
            TensorStorage::SmallFloats { .. } | TensorStorage::Joined(_) => {
                (self.info.values() * self.stored_value_bytes()) as u64
            }
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
            TensorStorage::Blocks { .. } => {
                let format = self.info.encoding.quantised().map(|record| record.format);
                format.map_or(0, |format| {
                    (self.info.values() / format.unit() * format.scale_bytes(format.scale_type())) as u64
                })
            }
            TensorStorage::Planes { scales, .. } => scales.range.len() as u64,
            TensorStorage::Synthetic(random) => random.scales_bytes(),
            _ => 0,
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

    /// Returns all values of an unquantised tensor as little-endian bytes in row-major order. Borrows from the file
    /// unless the rows are permuted there.
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

    /// Copies bytes of an unquantised tensor into `out`, starting at `byte_offset`.
    ///
    /// # Errors
    /// If the tensor is quantised, or the range ends past [`Tensor::data_bytes`].
    pub fn write_data(&self, byte_offset: u64, out: &mut [u8]) -> Result<(), Error> {
        let start = || self.check_range("data", byte_offset, out.len(), self.data_bytes());
        match self.storage {
            TensorStorage::Plain { data, rows } => self.copy_rows(data, *rows, start()?, out),
            TensorStorage::Doubles { data, rows } => self.write_rounded(data, *rows, start()?, out),
            TensorStorage::SmallFloats { quants, scales, kind } => {
                self.write_small_floats(*kind, [quants, scales], start()?, out)?;
            }
            TensorStorage::Joined(pair) => self.write_joined(pair, start()?, out)?,
            TensorStorage::Synthetic(random) if !self.is_quantised() => random.write_data(start()?, out),
            _ => return Err(self.error("is quantised: it has no plain data")),
        }
        Ok(())
    }

    /// Bytes of an unquantised value in the file.
    fn stored_value_bytes(&self) -> usize {
        match self.storage {
            TensorStorage::Doubles { .. } => DOUBLE_BYTES,
            _ => self.info.encoding.value_bytes().unwrap_or(1),
        }
    }

    pub(crate) fn copy_rows(&self, data: &Span, rows: RowOrder, start: usize, out: &mut [u8]) {
        let bytes = self.bytes(data);
        if let RowOrder::Transposed { .. } = rows {
            return rows.copy_transposed(bytes, self.stored_value_bytes(), start, out);
        }
        if self.columns != RowOrder::AsStored {
            let (size, columns) = (self.stored_value_bytes(), self.info.columns().max(1));
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

    /// Copies bytes of the quants plane into `out`, starting at `byte_offset`.
    ///
    /// # Errors
    /// If the tensor is not quantised, or the range ends past [`Tensor::quants_bytes`].
    pub fn write_quants(&self, byte_offset: u64, out: &mut [u8]) -> Result<(), Error> {
        let start = self.check_range("quants", byte_offset, out.len(), self.quants_bytes())?;
        match self.storage {
            TensorStorage::Synthetic(random) if self.is_quantised() => random.write_quants(start, out),
            TensorStorage::Planes { quants, rows, .. } => self.copy_rows(quants, *rows, start, out),
            TensorStorage::Blocks { data, rows } => {
                let blocks = Blocks::new(self, data, *rows);
                if let Some((record, block)) = self.block_format() {
                    in_chunks(start, out, |start, piece| {
                        write_quants(&blocks, record, block, start, piece);
                    });
                }
            }
            _ => return Err(self.error("is not quantised: it has no quants")),
        }
        Ok(())
    }

    /// Copies bytes of the scales plane into `out`, starting at `byte_offset`.
    ///
    /// # Errors
    /// If the tensor is not quantised, the range ends past [`Tensor::scales_bytes`], or a scale in the range is NaN
    /// or infinite.
    pub fn write_scales(&self, byte_offset: u64, out: &mut [u8]) -> Result<(), Error> {
        let start = self.check_range("scales", byte_offset, out.len(), self.scales_bytes())?;
        match self.storage {
            // Finite by construction.
            TensorStorage::Synthetic(random) if self.is_quantised() => {
                random.write_scales(start, out);
                return Ok(());
            }
            TensorStorage::Planes { scales, rows, .. } => self.copy_rows(scales, *rows, start, out),
            TensorStorage::Blocks { data, rows } => {
                let blocks = Blocks::new(self, data, *rows);
                if let Some((record, block)) = self.block_format() {
                    let size = record.format.scale_bytes(record.format.scale_type());
                    for_units(size, start, out, |index, unit| (block.scale)(blocks.block(index), unit));
                }
            }
            _ => return Err(self.error("is not quantised: it has no scales")),
        }
        self.check_scales_finite(start, out)
    }

    /// Copies bytes of the biases plane into `out`, starting at `byte_offset`.
    ///
    /// # Errors
    /// If the tensor has no biases, the range ends past [`Tensor::biases_bytes`], or a bias in the range is NaN or
    /// infinite.
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
                let biased = Vec::from_iter(biased.map(|record| record.label)).join(" and ");
                Err(self.error(format!("has no biases: only MLX's affine formats, {biased} have them")))
            }
        }
    }

    /// The format and its GGUF block, if it has one.
    fn block_format(&self) -> Option<(&'static QuantRecord, GgufBlock)> {
        let record = self.info.encoding.quantised()?;
        Some((record, record.block?))
    }

    /// Offset of the f16 bias in a GGUF block, if it has one.
    fn bias_in_block(&self) -> Option<usize> {
        self.info.encoding.block()?.bias_at
    }

    /// Lets the operating system drop the tensor's pages, which keeps the process small while a large checkpoint
    /// loads. They are read again on access.
    pub fn discard(&self) {
        for span in self.storage.spans() {
            self.files[span.file].discard(span.range.clone());
        }
    }

    pub(crate) fn bytes(&self, span: &Span) -> &'a [u8] {
        &self.files[span.file].bytes()[span.range.clone()]
    }

    /// Returns an error about this tensor.
    pub fn error(&self, reason: impl Into<String>) -> Error {
        let file = self.storage.spans().first().map_or(0, |span| span.file);
        Error::tensor(self.labels[file].clone(), self.info.name.clone(), reason)
    }

    /// Bytes of one row of a plane of `total` bytes; of one value for a vector.
    fn stored_row_bytes(&self, total: usize) -> usize {
        total / self.info.ordered_rows().max(1)
    }

    fn check_range(&self, plane: &str, offset: u64, length: usize, total: u64) -> Result<usize, Error> {
        match offset.checked_add(length as u64) {
            Some(end) if end <= total => Ok(offset as usize),
            _ => Err(self.error(format!(
                "{length} bytes from offset {offset} exceed its {plane} of {total} bytes"
            ))),
        }
    }

    /// Checks that the scales in `bytes`, which start at byte `start` of their plane, are finite. Checks the factors
    /// of records.
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
            if let Some(factor) = record.non_finite_scale(ScaleType::U32, unit) {
                let index = (start + skipped) / size + index;
                let per_row = (self.info.columns() / record.format.unit()).max(1);
                let (row, block) = (index / per_row, index % per_row);
                return Err(self.error(format!(
                    "a scale of row {row}, block {block} is {factor}: the file is corrupt, or was converted from \
                     weights that are NaN or infinite"
                )));
            }
        }
        Ok(())
    }

    /// Checks that the scales or biases in `bytes`, which start at byte `start` of their plane, are finite. Skips
    /// values that are only partly in the range.
    fn check_finite(&self, what: &str, start: usize, bytes: &[u8]) -> Result<(), Error> {
        let stored = self.scale_encoding().and_then(Encoding::to_scale_type);
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
                    "the {what} of row {}, group {} is {value}: the file is corrupt, or was converted from \
                     weights that are NaN or infinite",
                    index / per_row,
                    index % per_row
                )));
            }
        }
        Ok(())
    }
}
