//! Plain dequantisation to f32: what kernels are checked against.

use half::{bf16, f16};

use crate::tensor::{Blocks, Storage, read_float};
use crate::{Encoding, Error, Tensor};

impl Tensor<'_> {
    /// All values as f32, in row-major order.
    ///
    /// Bit-equal to the `gguf` Python package for Q8_0 and Q4_0, and to `mlx.core.dequantize` with
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
                quants,
                scales,
                biases,
                scale_encoding,
            } => {
                self.check_scales()?;
                let size = scale_encoding.value_bytes().unwrap_or(2);
                let bits = self.info.encoding.quant_bits().unwrap_or(8);
                let group = self.info.encoding.group().unwrap_or(32);
                let quants = self.bytes(quants).chunks_exact(group * bits / 8);
                let scales = self.bytes(scales).chunks_exact(size);
                let biases = self.bytes(biases).chunks_exact(size);
                let mut out = Vec::with_capacity(self.info.values());
                for ((quants, scale), bias) in quants.zip(scales).zip(biases) {
                    let scale = read_float(*scale_encoding, scale);
                    let bias = read_float(*scale_encoding, bias);
                    if bits == 4 {
                        out.extend(
                            quants
                                .iter()
                                .flat_map(|byte| [byte & 15, byte >> 4].map(|q| scale * f32::from(q) + bias)),
                        );
                    } else {
                        out.extend(quants.iter().map(|&q| scale * f32::from(q) + bias));
                    }
                }
                Ok(out)
            }
        }
    }

    /// Check all scales and biases, a part at a time.
    fn check_scales(&self) -> Result<(), Error> {
        let mut buffer = [0; 4096];
        let mut check = |total: u64, write: &dyn Fn(u64, &mut [u8]) -> Result<(), Error>| {
            let mut offset = 0;
            while offset < total {
                let length = (total - offset).min(buffer.len() as u64);
                write(offset, &mut buffer[..length as usize])?;
                offset += length;
            }
            Ok(())
        };
        check(self.scales_bytes(), &|offset, out| self.write_scales(offset, out))?;
        check(self.biases_bytes(), &|offset, out| self.write_biases(offset, out))
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
