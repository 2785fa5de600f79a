//! Plain dequantisation to f32: what kernels are checked against, and what conversions start from.

use half::{bf16, f16};
use refrain_quant::{QuantPlanes, ScaleType};

use crate::blocks::{Blocks, RowOrder};
use crate::tensor::TensorStorage;
use crate::{Encoding, Error, Tensor};

impl Tensor<'_> {
    /// All values as f32, in row-major order.
    ///
    /// Bit-equal to the `gguf` Python package for GGUF's encodings, and to `mlx.core.dequantize` with
    /// scales and biases given in f32 for MLX: one rounding for the product, one for the sum.
    ///
    /// # Errors
    /// If the encoding holds no real numbers, or a scale or bias is NaN or infinite.
    pub fn dequantise(&self) -> Result<Vec<f32>, Error> {
        let mut out = vec![0.0; self.info.values()];
        self.dequantise_rows(0, &mut out)?;
        Ok(out)
    }

    /// The values of whole rows, from row `row` on, as [`Tensor::dequantise`] gives them.
    ///
    /// # Errors
    /// As [`Tensor::dequantise`].
    pub fn dequantise_rows(&self, row: usize, out: &mut [f32]) -> Result<(), Error> {
        self.dequantise_planes(row, out)?;
        let order = self.column_order();
        if order != RowOrder::AsStored {
            for row in out.chunks_exact_mut(self.info.columns()) {
                let stored = row.to_vec();
                (row.iter_mut().enumerate()).for_each(|(column, value)| *value = stored[order.stored(column)]);
            }
        }
        Ok(())
    }

    /// The same with columns in the order of the planes.
    fn dequantise_planes(&self, row: usize, out: &mut [f32]) -> Result<(), Error> {
        let first = row * self.info.columns();
        let Some(record) = self.info.encoding.quantised() else {
            return self.widen(first, out);
        };
        match self.storage {
            TensorStorage::Blocks { data, rows } => {
                self.check_scales(first, out.len())?;
                let blocks = Blocks::new(self, data, *rows);
                let size = self.info.encoding.block_values();
                for (index, values) in out.chunks_exact_mut(size).enumerate() {
                    record.dequantise_block(blocks.block(first / size + index), values);
                }
            }
            _ => {
                let part = |total: u64| {
                    let (total, values) = (total as u128, self.info.values().max(1) as u128);
                    let at = (total * first as u128 / values) as u64;
                    (at, vec![0; (total * out.len() as u128 / values) as usize])
                };
                let (at, mut quants) = part(self.quants_bytes());
                self.write_quants(at, &mut quants)?;
                let (at, mut scales) = part(self.scales_bytes());
                self.write_scales(at, &mut scales)?;
                let (at, mut biases) = part(self.biases_bytes());
                if !biases.is_empty() {
                    self.write_biases(at, &mut biases)?;
                }
                let stored = self.scale_encoding().and_then(Encoding::as_scales);
                let planes = QuantPlanes {
                    format: record.format,
                    stored: stored.unwrap_or(ScaleType::F16),
                    quants: &quants,
                    scales: &scales,
                    biases: &biases,
                };
                planes.read(0, out);
            }
        }
        Ok(())
    }

    /// Check the scales and biases of so many values from value `first` on.
    fn check_scales(&self, first: usize, values: usize) -> Result<(), Error> {
        let part =
            |total: u64, count: usize| (total as u128 * count as u128 / self.info.values().max(1) as u128) as u64;
        let range = |total: u64| part(total, first)..part(total, first + values);
        in_pieces(range(self.scales_bytes()), |offset, out| self.write_scales(offset, out))?;
        in_pieces(range(self.biases_bytes()), |offset, out| self.write_biases(offset, out))
    }

    /// Values, from value `first` on, of a tensor that is not quantised.
    fn widen(&self, first: usize, out: &mut [f32]) -> Result<(), Error> {
        let encoding = self.info.encoding;
        let size = match encoding {
            Encoding::F32 => 4,
            Encoding::F16 | Encoding::BF16 => 2,
            other => return Err(self.error(format!("{other} values are not real numbers"))),
        };
        let mut data = vec![0; out.len() * size];
        self.write_data((first * size) as u64, &mut data)?;
        widen(encoding, &data, out);
        Ok(())
    }
}

/// The values of F32, F16 or BF16 bytes.
pub fn widen(encoding: Encoding, data: &[u8], out: &mut [f32]) {
    match encoding {
        Encoding::F32 => {
            for (out, &v) in out.iter_mut().zip(data.as_chunks::<4>().0) {
                *out = f32::from_le_bytes(v);
            }
        }
        Encoding::BF16 => {
            for (out, &v) in out.iter_mut().zip(data.as_chunks::<2>().0) {
                *out = bf16::from_le_bytes(v).to_f32();
            }
        }
        _ => {
            for (out, &v) in out.iter_mut().zip(data.as_chunks::<2>().0) {
                *out = f16::from_le_bytes(v).to_f32();
            }
        }
    }
}

/// Read the part `range` of a plane through a small buffer.
fn in_pieces(
    range: std::ops::Range<u64>,
    mut read: impl FnMut(u64, &mut [u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut buffer = [0; 4096];
    let mut offset = range.start;
    while offset < range.end {
        let length = (range.end - offset).min(buffer.len() as u64);
        read(offset, &mut buffer[..length as usize])?;
        offset += length;
    }
    Ok(())
}
