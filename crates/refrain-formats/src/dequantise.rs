//! Plain dequantisation to f32: what kernels are checked against, and what conversions start from.

use half::{bf16, f16};

use crate::blocks::Blocks;
use crate::blocks::records::{RECORD_BYTES, parameters, record};
use crate::blocks::values::{self, MOST_VALUES};
use crate::tensor::{TensorStorage, read_float};
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
        let first = row * self.info.columns();
        if !self.is_quantised() {
            return self.widen(first, out);
        }
        let encoding = self.info.encoding;
        match self.storage {
            TensorStorage::Blocks { data, rows } => {
                self.check_scales(first, out.len())?;
                let blocks = Blocks::new(self, data, *rows);
                let size = encoding.block_values();
                for (index, values) in out.chunks_exact_mut(size).enumerate() {
                    dequantise_block(encoding, blocks.block(first / size + index), values);
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
                let planes = TensorPlanes {
                    encoding,
                    scale_encoding: self.scale_encoding().unwrap_or(Encoding::F16),
                    quants: &quants,
                    scales: &scales,
                    biases: &biases,
                };
                planes.dequantise(out);
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
pub(crate) fn widen(encoding: Encoding, data: &[u8], out: &mut [f32]) {
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

/// Quants, scales and biases of the same values, as [`Tensor`] describes them.
pub(crate) struct TensorPlanes<'a> {
    pub encoding: Encoding,
    pub scale_encoding: Encoding,
    pub quants: &'a [u8],
    pub scales: &'a [u8],
    pub biases: &'a [u8],
}

impl TensorPlanes<'_> {
    /// The values.
    pub(crate) fn dequantise(&self, out: &mut [f32]) {
        let encoding = self.encoding;
        let bits = encoding.quant_bits().unwrap_or(8);
        let (unit, scale_bytes) = match encoding.has_records() {
            true => (MOST_VALUES, RECORD_BYTES),
            false => (
                encoding.group().unwrap_or(32),
                self.scale_encoding.value_bytes().unwrap_or(2),
            ),
        };
        let mut values = [0; MOST_VALUES];
        let values = &mut values[..unit];
        let units = out
            .chunks_exact_mut(unit)
            .zip(self.quants.chunks_exact(unit * bits / 8));
        for (index, (out, quants)) in units.enumerate() {
            values::spread(bits, quants, values);
            let scale = &self.scales[index * scale_bytes..][..scale_bytes];
            widen_groups(encoding, values, out, |group| match encoding.has_records() {
                true => parameters(encoding, scale, group),
                false => {
                    let bias = self.biases.get(index * scale_bytes..).filter(|bias| !bias.is_empty());
                    let read = |bytes: &[u8]| read_float(self.scale_encoding, bytes);
                    (read(scale), bias.map_or(0.0, read))
                }
            });
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

/// The values of one GGUF block.
pub(crate) fn dequantise_block(encoding: Encoding, block: &[u8], out: &mut [f32]) {
    let factor = |at: usize| f16::from_le_bytes([block[at], block[at + 1]]).to_f32();
    let mut quants = [0; MOST_VALUES];
    let quants = &mut quants[..out.len()];
    values::unpack(encoding, block, quants);
    let record = encoding.has_records().then(|| record(encoding, block));
    widen_groups(encoding, quants, out, |group| match &record {
        Some(record) => parameters(encoding, record, group),
        // Read as a minimum only where the encoding has one.
        None => (factor(0), factor(2)),
    });
}

/// The values of quants, a byte each, of which each group has its scale and bias.
fn widen_groups(encoding: Encoding, quants: &[u8], out: &mut [f32], parameters: impl Fn(usize) -> (f32, f32)) {
    let group = encoding.group().unwrap_or(32);
    for (number, (out, quants)) in out.chunks_exact_mut(group).zip(quants.chunks(group)).enumerate() {
        let (scale, bias) = parameters(number);
        for (value, &stored) in out.iter_mut().zip(quants) {
            let q = f32::from(stored);
            *value = match encoding {
                Encoding::Q8_0 => scale * f32::from(stored as i8),
                Encoding::Q4_0 => scale * (q - 8.0),
                Encoding::Q3_K => scale * (q - 4.0),
                Encoding::Q5_0 => scale * (q - 16.0),
                Encoding::Q6_K => scale * (q - 32.0),
                _ => scale * q + bias,
            };
        }
    }
}
