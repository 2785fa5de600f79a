//! Plain dequantisation to f32: what kernels are checked against.

use half::{bf16, f16};

use crate::blocks::Blocks;
use crate::blocks::records::{RECORD_BYTES, parameters, record};
use crate::blocks::values::{self, MOST_VALUES};
use crate::tensor::{Storage, read_float};
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
        match self.storage {
            Storage::Plain { .. } => self.widen(),
            Storage::Blocks { data, rows } => {
                self.check_scales()?;
                let blocks = Blocks::new(self, data, *rows);
                let mut out = vec![0.0; self.info.values()];
                if !matches!(self.info.encoding, Encoding::Q8_0 | Encoding::Q4_0) {
                    let block_values = self.info.encoding.block_values();
                    for (index, values) in out.chunks_exact_mut(block_values).enumerate() {
                        dequantise_block(self.info.encoding, &blocks, index, values);
                    }
                    return Ok(out);
                }
                for (index, values) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
                    let scale = read_float(Encoding::F16, blocks.scale(index));
                    match self.info.encoding {
                        Encoding::Q4_0 => dequantise_q4_0(scale, blocks.quants(index), values),
                        _ => dequantise_q8_0(scale, blocks.quants(index), values),
                    }
                }
                Ok(out)
            }
            Storage::Affine {
                quants, scales, biases, ..
            } => {
                self.check_scales()?;
                Ok(self.widen_planes(self.bytes(quants), self.bytes(scales), self.bytes(biases)))
            }
            Storage::Synthetic(_) if self.is_quantised() => {
                let mut quants = vec![0; self.quants_bytes() as usize];
                let mut scales = vec![0; self.scales_bytes() as usize];
                let mut biases = vec![0; self.biases_bytes() as usize];
                self.write_quants(0, &mut quants)?;
                self.write_scales(0, &mut scales)?;
                if !biases.is_empty() {
                    self.write_biases(0, &mut biases)?;
                }
                Ok(self.widen_planes(&quants, &scales, &biases))
            }
            Storage::Synthetic(_) => self.widen(),
        }
    }

    /// The values of a tensor with the given planes.
    fn widen_planes(&self, quants: &[u8], scales: &[u8], biases: &[u8]) -> Vec<f32> {
        let encoding = self.info.encoding;
        let bits = encoding.quant_bits().unwrap_or(8);
        let scale_encoding = self.scale_encoding().unwrap_or(Encoding::F16);
        let (unit, scale_bytes) = match encoding.has_records() {
            true => (MOST_VALUES, RECORD_BYTES),
            false => (
                encoding.group().unwrap_or(32),
                scale_encoding.value_bytes().unwrap_or(2),
            ),
        };
        let mut values = vec![0; unit];
        let mut out = vec![0.0; self.info.values()];
        for (index, (out, quants)) in out
            .chunks_exact_mut(unit)
            .zip(quants.chunks_exact(unit * bits / 8))
            .enumerate()
        {
            values::spread(bits, quants, &mut values);
            let scale = &scales[index * scale_bytes..][..scale_bytes];
            widen_groups(encoding, &values, out, |group| match encoding.has_records() {
                true => parameters(encoding, scale, group),
                false => {
                    let bias = biases.get(index * scale_bytes..).filter(|bias| !bias.is_empty());
                    let read = |bytes: &[u8]| read_float(scale_encoding, bytes);
                    (read(scale), bias.map_or(0.0, read))
                }
            });
        }
        out
    }

    /// Check all scales and biases.
    fn check_scales(&self) -> Result<(), Error> {
        in_pieces(self.scales_bytes(), |offset, out| self.write_scales(offset, out))?;
        in_pieces(self.biases_bytes(), |offset, out| self.write_biases(offset, out))
    }

    /// The values of a tensor that is not quantised.
    fn widen(&self) -> Result<Vec<f32>, Error> {
        let data = self.data()?;
        Ok(match self.info.encoding {
            Encoding::F32 => {
                let (values, _) = data.as_chunks::<4>();
                values.iter().map(|&v| f32::from_le_bytes(v)).collect()
            }
            Encoding::F16 => {
                let (values, _) = data.as_chunks::<2>();
                values.iter().map(|&v| f16::from_le_bytes(v).to_f32()).collect()
            }
            Encoding::BF16 => {
                let (values, _) = data.as_chunks::<2>();
                values.iter().map(|&v| bf16::from_le_bytes(v).to_f32()).collect()
            }
            other => return Err(self.error(format!("{other} values are not real numbers"))),
        })
    }
}

/// Read a plane of `total` bytes through a small buffer.
fn in_pieces(total: u64, mut read: impl FnMut(u64, &mut [u8]) -> Result<(), Error>) -> Result<(), Error> {
    let mut buffer = [0; 4096];
    let mut offset = 0;
    while offset < total {
        let length = (total - offset).min(buffer.len() as u64);
        read(offset, &mut buffer[..length as usize])?;
        offset += length;
    }
    Ok(())
}

/// The values of block `index` from its quants, one by one, and its groups' parameters.
fn dequantise_block(encoding: Encoding, blocks: &Blocks<'_>, index: usize, out: &mut [f32]) {
    let mut quants = [0; MOST_VALUES];
    let quants = &mut quants[..out.len()];
    values::unpack(encoding, blocks.block(index), quants);
    let record = encoding.has_records().then(|| record(encoding, blocks.block(index)));
    widen_groups(encoding, quants, out, |group| match &record {
        Some(record) => parameters(encoding, record, group),
        None => {
            let read = |bytes: &[u8]| read_float(Encoding::F16, bytes);
            (read(blocks.scale(index)), read(blocks.minimum(index)))
        }
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

fn dequantise_q8_0(scale: f32, quants: &[u8], out: &mut [f32; 32]) {
    for (value, &q) in out.iter_mut().zip(quants) {
        *value = scale * f32::from(q as i8);
    }
}

fn dequantise_q4_0(scale: f32, quants: &[u8], out: &mut [f32; 32]) {
    for (j, &byte) in quants.iter().enumerate() {
        out[j] = scale * f32::from((byte & 15) as i8 - 8);
        out[j + 16] = scale * f32::from((byte >> 4) as i8 - 8);
    }
}
