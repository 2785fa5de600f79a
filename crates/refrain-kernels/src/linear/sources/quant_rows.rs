use refrain_quant::QuantPlanes;

use super::WeightRows;
use crate::{DType, Unsupported};
use refrain_quant::QuantFormat;

/// A quantised matrix that is dequantised row by row: the CPU reference.
#[derive(Clone, Copy)]
pub struct QuantRows<'a> {
    planes: QuantPlanes<'a>,
    count: usize,
    columns: usize,
}

impl<'a> QuantRows<'a> {
    /// Creates a matrix `[count, columns]` from the little-endian bytes of its planes: `quants` u32
    /// `[count, columns·bits/32]`, and `scales` and (if the format has them) `biases` `[count, columns/group]` of type
    /// `parameters`.
    ///
    /// # Errors
    /// Fails if the format is unsupported, if rows are not whole groups, if `parameters` is not a valid type of the
    /// format's scales, or if a plane has a wrong length.
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
        let stored = parameters.to_scale_type().filter(|&stored| format.takes_scales(stored));
        let stored = stored.ok_or(Unsupported::DType { op, dtype: parameters })?;
        let per_parameter = count * format.scales(columns) * parameters.size();
        let biases_bytes = if format.has_biases() { per_parameter } else { 0 };
        let biases = biases.unwrap_or(&[]);
        let expected = [
            ("quants", quants.len(), count * format.words(columns) * 4),
            ("scales", scales.len(), per_parameter),
            ("biases", biases.len(), biases_bytes),
        ];
        for (plane, found, expected) in expected {
            if found != expected {
                let what =
                    format!("the {plane} of {count} × {columns} {format} values take {expected} bytes, found {found}");
                return Err(Unsupported::Size { op, what });
            }
        }
        let planes = QuantPlanes {
            format,
            stored,
            quants,
            scales,
            biases,
        };
        Ok(QuantRows { planes, count, columns })
    }

    /// The format.
    pub(crate) fn format(&self) -> QuantFormat {
        self.planes.format
    }

    /// The packed values of all rows.
    pub(crate) fn quants(&self) -> &'a [u8] {
        self.planes.quants
    }

    /// Storage type of scales and biases.
    pub(crate) fn parameter_dtype(&self) -> DType {
        self.planes.stored.into()
    }

    /// The scales (or records) and the biases of all rows, as stored.
    pub(crate) fn stored_parameters(&self) -> [&'a [u8]; 2] {
        [self.planes.scales, self.planes.biases]
    }
}

impl WeightRows for QuantRows<'_> {
    fn count(&self) -> usize {
        self.count
    }

    fn columns(&self) -> usize {
        self.columns
    }

    fn read(&self, row: usize, out: &mut [f32]) {
        assert!(row < self.count, "row {row} of {}", self.count);
        assert_eq!(out.len(), self.columns);
        self.planes.read(row * self.columns, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 32 nibbles: 0 … 15 twice.
    const NIBBLES: [u8; 16] = [
        0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0xfe, 0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0xfe,
    ];

    fn row(rows: &QuantRows<'_>, row: usize) -> Vec<f32> {
        let mut out = vec![0.0; rows.columns()];
        rows.read(row, &mut out);
        out
    }

    #[test]
    fn q4_0_is_centred_on_eight() {
        let scales = half::f16::from_f32(0.5).to_le_bytes();
        let rows = QuantRows::new(QuantFormat::Q4_0, [1, 32], &NIBBLES, DType::F16, &scales, None).expect("one group");
        let values = row(&rows, 0);
        assert_eq!(values[..3], [-4.0, -3.5, -3.0]);
        assert_eq!(values[31], 3.5);
    }

    #[test]
    fn q8_0_is_signed() {
        let quants: Vec<u8> = (0..64).map(|i| if i == 32 { 0x80 } else { i }).collect();
        let scales: Vec<u8> = [2.0f32, 0.5].iter().flat_map(|s| s.to_le_bytes()).collect();
        let rows = QuantRows::new(QuantFormat::Q8_0, [2, 32], &quants, DType::F32, &scales, None).expect("two groups");
        assert_eq!(row(&rows, 0)[31], 62.0);
        assert_eq!(row(&rows, 1)[..2], [-64.0, 16.5]);
    }

    #[test]
    fn values_with_bias_round_the_product_before_the_sum() {
        // s·q needs more than 24 bits and b cancels most of it, so an fma gives another result.
        let (scale, bias) = (f32::from_bits(0x3f80_0001), -11.0f32);
        let fused = scale.mul_add(11.0, bias);
        let rows = QuantRows::new(
            QuantFormat::mlx(4, 32),
            [1, 32],
            &NIBBLES,
            DType::F32,
            &scale.to_le_bytes(),
            Some(&bias.to_le_bytes()),
        )
        .map(|rows| row(&rows, 0))
        .expect("one group");
        assert_eq!(rows[11], scale * 11.0 + bias);
        assert_ne!(rows[11], fused);
        assert_eq!(rows[0], bias);
    }

    #[test]
    fn planes_of_a_wrong_length_are_rejected_with_both_lengths() {
        let error = QuantRows::new(QuantFormat::Q4_0, [1, 64], &NIBBLES, DType::F16, &[0; 4], None)
            .err()
            .expect("half the quants are missing");
        assert!(error.to_string().contains("take 32 bytes, found 16"), "{error}");
    }
}
