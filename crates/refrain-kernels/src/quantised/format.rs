use std::fmt;
use std::str::FromStr;

use crate::{DType, Unsupported};

/// What a stored value `q` of `bits` bits and its group's scale `s` (and bias `b`) stand for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Zero {
    /// `s · (q − 2^(bits − 1))` for unsigned `q`: GGUF's Q4_0, Q5_0, Q3_K and Q6_K.
    Middle,
    /// `s · q` for signed (two's complement) 8-bit `q`: GGUF's Q8_0.
    Signed,
    /// `s · q + b` for unsigned `q`: MLX's affine quantisation, and GGUF's Q4_1, Q5_1, Q2_K, Q4_K and
    /// Q5_K. The product is rounded to f32 before the sum.
    Bias,
}

/// How a weight matrix is quantised along its rows.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct QuantFormat {
    /// Bits per value: 2, 3, 4, 5, 6 or 8.
    pub bits: u32,
    /// Neighbouring values of a row that share a scale: 16, 32, 64 or 128.
    pub group: u32,
    /// The value's formula.
    pub zero: Zero,
    /// Whether scales have two levels, as GGUF's K-quants have them: each block of 256 values has a
    /// record of [`RECORD_WORDS`] u32 words, its factors `d` (and `m`) as f16 in the low (and high) half
    /// of the first, then 16 bytes with an integer for each group. With [`Zero::Middle`] byte `g` is
    /// signed, and `s = d · byte`. With [`Zero::Bias`] and groups of 32, `s = d · byte[g]` and
    /// `b = −(m · byte[8 + g])`; with groups of 16, the low half of byte `g` is for `s` and the high half
    /// for `b`.
    pub nested: bool,
}

/// Values that share one record of a format with two levels of scales.
pub const RECORD_VALUES: usize = 256;
/// Words of a record of a format with two levels of scales.
pub const RECORD_WORDS: usize = 5;

impl QuantFormat {
    /// GGUF's Q4_0: 4 bits, groups of 32, around 8.
    pub const Q4_0: QuantFormat = QuantFormat::around_middle(4, 32, false);
    /// GGUF's Q5_0: 5 bits, groups of 32, around 16.
    pub const Q5_0: QuantFormat = QuantFormat::around_middle(5, 32, false);
    /// GGUF's Q8_0: signed 8 bits, groups of 32.
    pub const Q8_0: QuantFormat = QuantFormat {
        bits: 8,
        group: 32,
        zero: Zero::Signed,
        nested: false,
    };
    /// GGUF's Q2_K: 2 bits and a bias, groups of 16, scales in two levels.
    pub const Q2_K: QuantFormat = QuantFormat::nested_bias(2, 16);
    /// GGUF's Q3_K: 3 bits around 4, groups of 16, scales in two levels.
    pub const Q3_K: QuantFormat = QuantFormat::around_middle(3, 16, true);
    /// GGUF's Q4_K: 4 bits and a bias, groups of 32, scales in two levels.
    pub const Q4_K: QuantFormat = QuantFormat::nested_bias(4, 32);
    /// GGUF's Q5_K: 5 bits and a bias, groups of 32, scales in two levels.
    pub const Q5_K: QuantFormat = QuantFormat::nested_bias(5, 32);
    /// GGUF's Q6_K: 6 bits around 32, groups of 16, scales in two levels.
    pub const Q6_K: QuantFormat = QuantFormat::around_middle(6, 16, true);

    const fn around_middle(bits: u32, group: u32, nested: bool) -> QuantFormat {
        QuantFormat {
            bits,
            group,
            zero: Zero::Middle,
            nested,
        }
    }

    const fn nested_bias(bits: u32, group: u32) -> QuantFormat {
        QuantFormat {
            bits,
            group,
            zero: Zero::Bias,
            nested: true,
        }
    }

    /// MLX's affine quantisation; GGUF's Q4_1 and Q5_1 are this with 4 and 5 bits and groups of 32.
    pub const fn mlx(bits: u32, group: u32) -> QuantFormat {
        QuantFormat {
            bits,
            group,
            zero: Zero::Bias,
            nested: false,
        }
    }

    /// Every format that has kernels, in the order in which tables list them.
    pub const ALL: [QuantFormat; 26] = [
        QuantFormat::Q4_0,
        QuantFormat::Q5_0,
        QuantFormat::Q8_0,
        QuantFormat::Q2_K,
        QuantFormat::Q3_K,
        QuantFormat::Q4_K,
        QuantFormat::Q5_K,
        QuantFormat::Q6_K,
        QuantFormat::mlx(2, 32),
        QuantFormat::mlx(2, 64),
        QuantFormat::mlx(2, 128),
        QuantFormat::mlx(3, 32),
        QuantFormat::mlx(3, 64),
        QuantFormat::mlx(3, 128),
        QuantFormat::mlx(4, 32),
        QuantFormat::mlx(4, 64),
        QuantFormat::mlx(4, 128),
        QuantFormat::mlx(5, 32),
        QuantFormat::mlx(5, 64),
        QuantFormat::mlx(5, 128),
        QuantFormat::mlx(6, 32),
        QuantFormat::mlx(6, 64),
        QuantFormat::mlx(6, 128),
        QuantFormat::mlx(8, 32),
        QuantFormat::mlx(8, 64),
        QuantFormat::mlx(8, 128),
    ];

    /// Whether the format has a plane of biases.
    pub const fn has_biases(self) -> bool {
        matches!(self.zero, Zero::Bias) && !self.nested
    }

    /// 32-bit words that a row of `columns` values takes in the plane of quants.
    pub const fn words(self, columns: usize) -> usize {
        columns * self.bits as usize / 32
    }

    /// Values of a row that takes `words` words of the plane of quants, the opposite of
    /// [`QuantFormat::words`]; 0 for a format of no bits.
    pub const fn columns(self, words: usize) -> usize {
        match (words as u64 * 32).checked_div(self.bits as u64) {
            Some(columns) => columns as usize,
            None => 0,
        }
    }

    /// Elements that a row of `columns` values takes in the plane of scales (and in that of biases):
    /// floats, or the u32 words of records where scales have two levels.
    pub const fn scales(self, columns: usize) -> usize {
        if self.nested {
            columns / RECORD_VALUES * RECORD_WORDS
        } else {
            columns / self.group as usize
        }
    }

    /// Whether scales may be stored as `dtype`.
    pub const fn takes_scales(self, dtype: DType) -> bool {
        if self.nested {
            matches!(dtype, DType::U32)
        } else {
            dtype.is_float()
        }
    }

    /// Checks that the format is one that has kernels and that rows of `columns` values fill whole
    /// groups (and records).
    ///
    /// # Errors
    /// [`Unsupported::Size`] where not.
    pub fn check(self, columns: usize) -> Result<(), Unsupported> {
        let op = "quantised";
        if !QuantFormat::ALL.contains(&self) {
            let what = format!("{self:?} is not among the formats {}", known());
            return Err(Unsupported::Size { op, what });
        }
        let unit = if self.nested {
            RECORD_VALUES
        } else {
            self.group as usize
        };
        if !columns.is_multiple_of(unit) {
            let what = format!("rows of {columns} values do not fill {self}'s groups of {unit}");
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
        match (self.zero, self.nested) {
            (_, true) => write!(f, "q{}_k", self.bits),
            (Zero::Middle | Zero::Signed, _) => write!(f, "q{}_0", self.bits),
            (Zero::Bias, _) => write!(f, "mlx{}g{}", self.bits, self.group),
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
        let error = "q7_1".parse::<QuantFormat>().expect_err("no such format");
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
