use std::fmt;
use std::str::FromStr;

use crate::Unsupported;

/// What a stored value `q` and its group's scale `s` (and bias `b`) stand for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Zero {
    /// `s · (q − 8)` for unsigned 4-bit `q`: GGUF's Q4_0.
    Eight,
    /// `s · q` for signed (two's complement) 8-bit `q`: GGUF's Q8_0.
    Signed,
    /// `s · q + b` for unsigned `q`: MLX's affine quantisation. The product is rounded to f32 before
    /// the sum.
    Bias,
}

/// How a weight matrix is quantised along its rows.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct QuantFormat {
    /// Bits per value: 4 or 8.
    pub bits: u32,
    /// Neighbouring values of a row that share a scale: 32, 64 or 128.
    pub group: u32,
    /// The value's formula.
    pub zero: Zero,
}

impl QuantFormat {
    /// GGUF's Q4_0: 4 bits, groups of 32, around 8.
    pub const Q4_0: QuantFormat = QuantFormat {
        bits: 4,
        group: 32,
        zero: Zero::Eight,
    };
    /// GGUF's Q8_0: signed 8 bits, groups of 32.
    pub const Q8_0: QuantFormat = QuantFormat {
        bits: 8,
        group: 32,
        zero: Zero::Signed,
    };

    /// MLX's affine quantisation.
    pub const fn mlx(bits: u32, group: u32) -> QuantFormat {
        QuantFormat {
            bits,
            group,
            zero: Zero::Bias,
        }
    }

    /// Every format that has kernels, in the order in which tables list them.
    pub const ALL: [QuantFormat; 8] = [
        QuantFormat::Q4_0,
        QuantFormat::Q8_0,
        QuantFormat::mlx(4, 32),
        QuantFormat::mlx(4, 64),
        QuantFormat::mlx(4, 128),
        QuantFormat::mlx(8, 32),
        QuantFormat::mlx(8, 64),
        QuantFormat::mlx(8, 128),
    ];

    /// Whether the format has a plane of biases.
    pub const fn has_biases(self) -> bool {
        matches!(self.zero, Zero::Bias)
    }

    /// Values per 32-bit word of the plane of quants.
    pub const fn per_word(self) -> usize {
        (32 / self.bits) as usize
    }

    /// Checks that the format is one that has kernels and that rows of `columns` values fill whole
    /// groups.
    pub fn check(self, columns: usize) -> Result<(), Unsupported> {
        let op = "quantised";
        if !QuantFormat::ALL.contains(&self) {
            let what = format!("{self:?} is not among the formats {}", known());
            return Err(Unsupported::Size { op, what });
        }
        if !columns.is_multiple_of(self.group as usize) {
            let what = format!("rows of {columns} values do not fill {self}'s groups of {}", self.group);
            return Err(Unsupported::Size { op, what });
        }
        Ok(())
    }
}

fn known() -> String {
    QuantFormat::ALL.map(|f| f.to_string()).join(" ")
}

impl fmt::Display for QuantFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.zero {
            Zero::Eight => f.write_str("q4_0"),
            Zero::Signed => f.write_str("q8_0"),
            Zero::Bias => write!(f, "mlx{}g{}", self.bits, self.group),
        }
    }
}

impl FromStr for QuantFormat {
    type Err = String;
    fn from_str(text: &str) -> Result<QuantFormat, String> {
        QuantFormat::ALL
            .into_iter()
            .find(|f| f.to_string() == text)
            .ok_or_else(|| format!("unknown quantisation {text:?}; known: {}", known()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for format in QuantFormat::ALL {
            assert_eq!(format.to_string().parse(), Ok(format));
        }
        let error = "q5_1".parse::<QuantFormat>().expect_err("no such format");
        assert!(error.contains("mlx4g64"), "{error}");
    }

    #[test]
    fn rows_must_fill_groups_and_formats_must_be_known() {
        assert!(QuantFormat::mlx(4, 64).check(128).is_ok());
        assert!(QuantFormat::mlx(4, 64).check(96).is_err());
        let odd = QuantFormat {
            bits: 8,
            ..QuantFormat::Q4_0
        };
        assert!(odd.check(64).is_err());
    }
}
