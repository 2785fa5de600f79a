use super::{QuantFormat, Zero};
use crate::matmul::{Rows, decode};
use crate::{DType, Unsupported};

/// A quantised matrix read row by row: the reference dequantisation. Values equal MLX's and GGUF's
/// f32 results bit for bit (a product rounded to f32, then, for [`Zero::Bias`], a sum).
#[derive(Clone, Copy)]
pub struct QuantRows<'a> {
    format: QuantFormat,
    count: usize,
    columns: usize,
    quants: &'a [u8],
    parameters: DType,
    scales: &'a [u8],
    biases: &'a [u8],
}

impl<'a> QuantRows<'a> {
    /// A matrix `[count, columns]` over the resident planes' little-endian bytes: `quants` u32
    /// `[count, columns·bits/32]`, `scales` and (only for [`Zero::Bias`]) `biases`
    /// `[count, columns/group]` of the float type `parameters`.
    ///
    /// # Errors
    /// When the format has no reference, rows do not fill groups, `parameters` is no float, or a
    /// plane has another length.
    pub fn new(
        format: QuantFormat,
        [count, columns]: [usize; 2],
        quants: &'a [u8],
        parameters: DType,
        scales: &'a [u8],
        biases: Option<&'a [u8]>,
    ) -> Result<QuantRows<'a>, Unsupported> {
        let op = "quantised rows";
        format.check(columns)?;
        if !parameters.is_float() {
            return Err(Unsupported::DType {
                op,
                dtype: parameters,
            });
        }
        let per_parameter = count * columns / format.group as usize * parameters.size();
        let biases_bytes = if format.has_biases() {
            per_parameter
        } else {
            0
        };
        let biases = biases.unwrap_or(&[]);
        let expected = [
            (
                "quants",
                quants.len(),
                count * columns * format.bits as usize / 8,
            ),
            ("scales", scales.len(), per_parameter),
            ("biases", biases.len(), biases_bytes),
        ];
        for (plane, found, expected) in expected {
            if found != expected {
                let what = format!(
                    "the {plane} of {count} rows of {columns} in {format} take {expected} bytes, found {found}"
                );
                return Err(Unsupported::Size { op, what });
            }
        }
        Ok(QuantRows {
            format,
            count,
            columns,
            quants,
            parameters,
            scales,
            biases,
        })
    }

    /// The parameters of group `group`, counted over the whole matrix.
    fn parameter(&self, plane: &[u8], group: usize) -> f32 {
        let size = self.parameters.size();
        let mut value = [0.0];
        decode(self.parameters, &plane[group * size..][..size], &mut value);
        value[0]
    }
}

impl Rows for QuantRows<'_> {
    fn count(&self) -> usize {
        self.count
    }

    fn columns(&self) -> usize {
        self.columns
    }

    fn read(&self, row: usize, out: &mut [f32]) {
        assert!(row < self.count, "row {row} of {}", self.count);
        assert_eq!(out.len(), self.columns);
        let group = self.format.group as usize;
        let group_bytes = group * self.format.bits as usize / 8;
        let groups = self.columns / group;
        for (g, out) in out.chunks_exact_mut(group).enumerate() {
            let g = row * groups + g;
            let quants = &self.quants[g * group_bytes..][..group_bytes];
            let scale = self.parameter(self.scales, g);
            match (self.format.zero, self.format.bits) {
                (Zero::Eight, _) => nibbles(quants, out, |q| scale * (f32::from(q) - 8.0)),
                (Zero::Signed, _) => bytes(quants, out, |q| scale * f32::from(q as i8)),
                (Zero::Bias, bits) => {
                    let bias = self.parameter(self.biases, g);
                    let value = |q: u8| scale * f32::from(q) + bias;
                    if bits == 4 {
                        nibbles(quants, out, value);
                    } else {
                        bytes(quants, out, value);
                    }
                }
            }
        }
    }
}

// Words are little-endian with low bits first, so values lie in byte order, low nibble first.

fn nibbles(quants: &[u8], out: &mut [f32], value: impl Fn(u8) -> f32) {
    for (out, &byte) in out.chunks_exact_mut(2).zip(quants) {
        out[0] = value(byte & 15);
        out[1] = value(byte >> 4);
    }
}

fn bytes(quants: &[u8], out: &mut [f32], value: impl Fn(u8) -> f32) {
    for (out, &byte) in out.iter_mut().zip(quants) {
        *out = value(byte);
    }
}
