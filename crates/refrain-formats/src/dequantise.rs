//! Reference dequantisation to f32: kernels are tested against it, and conversions start from it.

use half::{bf16, f16};
use refrain_quant::{QuantPlanes, ScaleType};

use crate::blocks::{Blocks, RowOrder};
use crate::storage::TensorStorage;
use crate::{Encoding, Error, Tensor};

impl Tensor<'_> {
    /// Returns all values as f32, in row-major order.
    ///
    /// Bit-identical to the `gguf` Python package for GGUF encodings, and to `mlx.core.dequantize` with f32 scales
    /// and biases for MLX: one rounding for the product, one for the sum.
    ///
    /// # Errors
    /// If the encoding is not of real numbers, or a scale or bias is NaN or infinite.
    pub fn dequantise(&self) -> Result<Vec<f32>, Error> {
        let mut out = vec![0.0; self.info.values()];
        self.dequantise_rows(0, &mut out)?;
        Ok(out)
    }

    /// Dequantises whole rows, starting at row `row`, like [`Tensor::dequantise`].
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

    /// The same with the columns in the planes' order.
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
                let stored = self.scale_encoding().and_then(Encoding::to_scale_type);
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

    /// Checks the scales and biases of `values` values, starting at value `first`.
    fn check_scales(&self, first: usize, values: usize) -> Result<(), Error> {
        let part =
            |total: u64, count: usize| (total as u128 * count as u128 / self.info.values().max(1) as u128) as u64;
        let range = |total: u64| part(total, first)..part(total, first + values);
        in_chunks(range(self.scales_bytes()), |offset, out| self.write_scales(offset, out))?;
        in_chunks(range(self.biases_bytes()), |offset, out| self.write_biases(offset, out))
    }

    /// Converts values of an unquantised tensor to f32, starting at value `first`.
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

/// Converts F32, F16 or BF16 bytes to f32.
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

/// Reads the range `range` of a plane through a small buffer.
fn in_chunks(
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
