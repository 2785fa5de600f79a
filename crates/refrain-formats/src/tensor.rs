//! One tensor of a checkpoint, and its planes in the layout that kernels read.

use std::borrow::Cow;
use std::ops::Range;

use half::{bf16, f16};

use crate::blocks::records::{RECORD_BYTES, record};
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
    /// MLX: words of quants, scales and biases apart.
    Affine {
        quants: Span,
        scales: Span,
        biases: Span,
        scale_encoding: Encoding,
    },
    /// In no file: made up when read.
    Synthetic(RandomTensor),
}

/// A tensor of a checkpoint, borrowed from the mapped files.
///
/// Quantised tensors are read as planes in one layout, whatever the file's own:
/// - **quants**: `[rows, columns]` values of [`Encoding::quant_bits`] bits, packed little-endian
///   into u32 words: value k of a row lies in word `k·bits/32` at bit `(k·bits) mod 32`. Unsigned
///   for MLX, Q4_1, Q5_1, Q2_K, Q4_K and Q5_K (the value is `scale·q + bias`) and Q4_0, Q5_0, Q3_K and
///   Q6_K (`scale·(q − 2^(bits − 1))`); two's complement for Q8_0 (`scale·q`).
/// - **scales**: `[rows, columns/group]` in [`Tensor::scale_encoding`]; for K-quants u32 words
///   `[rows, columns/256·5]`: a record for each 256 values of f16 d and m, then 16 bytes. For Q3_K and
///   Q6_K group g's scale is `d·byte[g]` (signed); for Q4_K and Q5_K it is `d·byte[g]` and the bias
///   `−m·byte[8 + g]`; for Q2_K these are `d` and `−m` times the low and high half of `byte[g]`.
/// - **biases** (MLX, Q4_1, Q5_1): shaped and stored like the scales.
///
/// The `write_*` functions copy any part of a plane into memory of the caller. They may be called
/// from several threads.
#[derive(Debug, Clone, Copy)]
pub struct Tensor<'a> {
    /// Name, shape, encoding and size.
    pub info: &'a TensorInfo,
    pub(crate) storage: &'a TensorStorage,
    pub(crate) files: &'a [FileBytes],
    pub(crate) labels: &'a [String],
}

impl<'a> Tensor<'a> {
    /// Whether the tensor is read as quants and scales rather than as data.
    pub fn is_quantised(&self) -> bool {
        self.info.encoding.quant_bits().is_some()
    }

    /// How scales (and biases) are stored, for quantised tensors: F16 for GGUF, U32 for its K-quants; F16, BF16 or F32
    /// for MLX.
    pub fn scale_encoding(&self) -> Option<Encoding> {
        match self.storage {
            TensorStorage::Plain { .. } => None,
            TensorStorage::Blocks { .. } if self.info.encoding.has_records() => Some(Encoding::U32),
            TensorStorage::Blocks { .. } => Some(Encoding::F16),
            TensorStorage::Affine { scale_encoding, .. } => Some(*scale_encoding),
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
            TensorStorage::Blocks { .. } if self.info.encoding.has_records() => {
                self.info.values() as u64 / 256 * RECORD_BYTES as u64
            }
            TensorStorage::Blocks { .. } => self.info.values() as u64 / 32 * 2,
            TensorStorage::Affine { scales, .. } => scales.range.len() as u64,
            TensorStorage::Synthetic(random) => random.scales_bytes(),
        }
    }

    /// Bytes of the biases plane; 0 unless the encoding has a plane of biases.
    pub fn biases_bytes(&self) -> u64 {
        match self.storage {
            TensorStorage::Affine { biases, .. } => biases.range.len() as u64,
            TensorStorage::Blocks { .. } if self.has_minima() => self.scales_bytes(),
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
            } => Ok(Cow::Borrowed(self.bytes(data))),
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
            TensorStorage::Affine { quants, .. } => out.copy_from_slice(&self.bytes(quants)[start..start + out.len()]),
            TensorStorage::Blocks { data, rows } => {
                let blocks = Blocks::new(self, data, *rows);
                let encoding = self.info.encoding;
                in_pieces(start, out, |start, piece| write_quants(&blocks, encoding, start, piece));
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
            TensorStorage::Affine { scales, .. } => {
                out.copy_from_slice(&self.bytes(scales)[start..start + out.len()]);
            }
            TensorStorage::Blocks { data, rows } => {
                let blocks = Blocks::new(self, data, *rows);
                let encoding = self.info.encoding;
                if encoding.has_records() {
                    for_units::<RECORD_BYTES>(start, out, |index, unit| *unit = record(encoding, blocks.block(index)));
                    return self.check_records(start, out);
                }
                for_units::<2>(start, out, |index, unit| unit.copy_from_slice(blocks.scale(index)));
            }
        }
        self.check_finite("scale", start, out)
    }

    /// Copy the bytes from `byte_offset` on of the biases plane into `out`.
    ///
    /// # Errors
    /// If the tensor has no biases, the range ends past [`Tensor::biases_bytes`], or a bias in the
    /// range is NaN or infinite.
    pub fn write_biases(&self, byte_offset: u64, out: &mut [u8]) -> Result<(), Error> {
        let start = self.check_range("biases", byte_offset, out.len(), self.biases_bytes())?;
        match self.storage {
            TensorStorage::Affine { biases, .. } => {
                out.copy_from_slice(&self.bytes(biases)[start..start + out.len()]);
                self.check_finite("bias", start, out)
            }
            TensorStorage::Blocks { data, rows } if self.has_minima() => {
                let blocks = Blocks::new(self, data, *rows);
                for_units::<2>(start, out, |index, unit| unit.copy_from_slice(blocks.minimum(index)));
                self.check_finite("bias", start, out)
            }
            // Finite by construction.
            TensorStorage::Synthetic(random) if random.biases_bytes() > 0 => {
                random.write_biases(start, out);
                Ok(())
            }
            _ => Err(self.error("has no biases: neither was it quantised by MLX nor is it Q4_1 or Q5_1")),
        }
    }

    /// Whether GGUF blocks hold an f16 minimum beside the scale: the resident layout's bias.
    fn has_minima(&self) -> bool {
        matches!(self.info.encoding, Encoding::Q4_1 | Encoding::Q5_1)
    }

    /// Tell the operating system that the tensor's pages are not needed any more, so that the
    /// memory of the process stays small while a large checkpoint is loaded. They are read from
    /// the file again if touched.
    pub fn discard(&self) {
        let spans = match self.storage {
            TensorStorage::Plain { data, .. } | TensorStorage::Blocks { data, .. } => vec![data],
            TensorStorage::Affine {
                quants, scales, biases, ..
            } => vec![quants, scales, biases],
            TensorStorage::Synthetic(_) => Vec::new(),
        };
        for span in spans {
            self.files[span.file].discard(span.range.clone());
        }
    }

    pub(crate) fn bytes(&self, span: &Span) -> &'a [u8] {
        &self.files[span.file].bytes()[span.range.clone()]
    }

    pub(crate) fn error(&self, reason: impl Into<String>) -> Error {
        let file = match self.storage {
            TensorStorage::Plain { data, .. } | TensorStorage::Blocks { data, .. } => data.file,
            TensorStorage::Affine { quants, .. } => quants.file,
            TensorStorage::Synthetic(_) => 0,
        };
        Error::tensor(self.labels[file].clone(), self.info.name.clone(), reason)
    }

    /// Bytes of one row of a plane of `total` bytes whose rows are reordered: the rows are the
    /// first axis, also of a vector.
    fn stored_row_bytes(&self, total: usize) -> usize {
        total / self.info.shape[0].max(1)
    }

    fn check_range(&self, plane: &str, offset: u64, length: usize, total: u64) -> Result<usize, Error> {
        match offset.checked_add(length as u64) {
            Some(end) if end <= total => Ok(offset as usize),
            _ => Err(self.error(format!(
                "{length} bytes from {offset} on lie outside of its {plane} of {total} bytes"
            ))),
        }
    }

    /// Check the factors of the records in `bytes`, which lie at byte `start` of the scales plane.
    fn check_records(&self, start: usize, bytes: &[u8]) -> Result<(), Error> {
        let skipped = start.next_multiple_of(RECORD_BYTES) - start;
        let records = bytes.get(skipped..).unwrap_or(&[]).chunks(RECORD_BYTES);
        for (index, record) in records.enumerate().filter(|(_, record)| record.len() >= 4) {
            for factor in record[..4].chunks_exact(2).map(|f| read_float(Encoding::F16, f)) {
                if !factor.is_finite() {
                    let index = (start + skipped) / RECORD_BYTES + index;
                    let per_row = (self.info.columns() / 256).max(1);
                    let (row, block) = (index / per_row, index % per_row);
                    return Err(self.error(format!(
                        "a scale of row {row}, block {block} is {factor}: the file is damaged, or was \
                         converted from weights that are not numbers"
                    )));
                }
            }
        }
        Ok(())
    }

    /// Check the scales or biases in `bytes`, which lie at byte `start` of their plane. Values of
    /// which only a part lies in the range are left to whoever reads the rest.
    fn check_finite(&self, what: &str, start: usize, bytes: &[u8]) -> Result<(), Error> {
        let encoding = self.scale_encoding().unwrap_or(Encoding::F16);
        let size = encoding.value_bytes().unwrap_or(2);
        let skipped = start.next_multiple_of(size) - start;
        let values = bytes.get(skipped..).unwrap_or(&[]).chunks_exact(size);
        for (index, value) in values.enumerate() {
            let value = read_float(encoding, value);
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

/// Read one F32, F16 or BF16 value from its bytes.
pub(crate) fn read_float(encoding: Encoding, bytes: &[u8]) -> f32 {
    match encoding {
        Encoding::F32 => f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
        Encoding::BF16 => bf16::from_le_bytes([bytes[0], bytes[1]]).to_f32(),
        _ => f16::from_le_bytes([bytes[0], bytes[1]]).to_f32(),
    }
}
