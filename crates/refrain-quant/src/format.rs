use std::fmt;
use std::str::FromStr;

use crate::ScaleType;
use crate::formats::RECORDS;

/// How a matrix is quantised along its rows, and its layout in memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct QuantFormat {
    /// Bits per stored value: 2, 3, 4, 5, 6 or 8.
    pub bits: u32,
    /// Consecutive values of a row that share a scale: 16, 32, 64 or 128.
    pub group: u32,
    /// How a stored value is decoded.
    pub code: Code,
    /// How scales are stored.
    pub scales: Scales,
}

/// Decodes a stored value `q` of `bits` bits with its group's scale `s` (and bias `b`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Code {
    /// `s · (q − 2^(bits − 1))` for unsigned `q` of up to 6 bits.
    Centred,
    /// `s · q` for signed (two's complement) 8-bit `q`.
    Signed,
    /// `s · q + b` for unsigned `q`. The product is rounded to f32 before the sum.
    Bias,
    /// `s · book[q]` for 4-bit `q`: a codebook.
    Book([i8; 16]),
}

/// How the scales (and biases) of a format are stored.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Scales {
    /// A float per group, and another one for the bias if the code has biases.
    Float,
    /// Two levels: a record per 256 values.
    Records(ScaleRecords),
    /// A byte `e` per group: `s = 2^(e − 128)`. That is half of the E8M0 value, because the integer codebook holds
    /// twice the E2M1 values.
    E8M0,
}

/// Layout of scale records. The first word holds the f16 factors `d` (low 16 bits) and `m` (high 16 bits). Integer
/// bytes follow; a group's scale is a factor times its integer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ScaleRecords {
    /// u32 words per record.
    pub words: u32,
    /// Encoding of the integers.
    pub integers: RecordIntegers,
}

/// Encoding of the integers of a scale record.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum RecordIntegers {
    /// Signed bytes: `s = d · byte[g]`.
    Signed,
    /// Unsigned bytes for eight groups: `s = d · byte[g]` and `b = −(m · byte[8 + g])`.
    Bytes,
    /// Nibbles: `s = d · (byte[g] & 15)` and `b = −(m · (byte[g] >> 4))`.
    Nibbles,
}

/// Values per scale record.
pub const RECORD_VALUES: usize = 256;

/// Error: the format, or this row length of it, is not supported.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnsupportedFormat(
    /// The error message.
    pub String,
);

impl fmt::Display for UnsupportedFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UnsupportedFormat {}

impl QuantFormat {
    /// The formats of all records without duplicates, in table order.
    pub const ALL: [QuantFormat; distinct_count()] = distinct_formats();

    /// MLX's affine quantisation. Supported are 2, 3, 4, 5, 6 and 8 bits in groups of 32, 64 and 128. GGUF's Q4_1 and
    /// Q5_1 are this format with 4 and 5 bits in groups of 32.
    pub const fn mlx(bits: u32, group: u32) -> QuantFormat {
        QuantFormat {
            bits,
            group,
            code: Code::Bias,
            scales: Scales::Float,
        }
    }

    /// Whether the format has a plane of biases.
    pub const fn has_biases(self) -> bool {
        matches!((self.code, self.scales), (Code::Bias, Scales::Float))
    }

    /// Whether scales have two levels, that is, are stored as records.
    pub const fn has_records(self) -> bool {
        matches!(self.scales, Scales::Records(_))
    }

    /// Values per element of the plane of scales: those of a group, or of a record.
    pub const fn unit(self) -> usize {
        match self.scales {
            Scales::Records(_) => RECORD_VALUES,
            _ => self.group as usize,
        }
    }

    /// u32 words that a row of `columns` values takes in the plane of quants.
    pub const fn words(self, columns: usize) -> usize {
        columns * self.bits as usize / 32
    }

    /// Values of a row that takes `words` words: the inverse of [`QuantFormat::words`]. Returns 0 if `bits` is 0.
    pub const fn columns(self, words: usize) -> usize {
        match (words as u64 * 32).checked_div(self.bits as u64) {
            Some(columns) => columns as usize,
            None => 0,
        }
    }

    /// Elements (floats, bytes, or u32 words of records) that a row of `columns` values takes in the plane of scales.
    /// The plane of biases has as many.
    pub const fn scales(self, columns: usize) -> usize {
        match self.scales {
            Scales::Records(records) => columns / RECORD_VALUES * records.words as usize,
            _ => columns / self.group as usize,
        }
    }

    /// Default element type of the scales. Only [`Scales::Float`] allows others; its default is GGUF's.
    pub const fn scale_type(self) -> ScaleType {
        match self.scales {
            Scales::Float => ScaleType::F16,
            Scales::Records(_) => ScaleType::U32,
            Scales::E8M0 => ScaleType::U8,
        }
    }

    /// Whether `stored` is a valid element type for the scales.
    pub const fn takes_scales(self, stored: ScaleType) -> bool {
        match self.scales {
            Scales::Float => matches!(stored, ScaleType::F32 | ScaleType::F16 | ScaleType::BF16),
            Scales::Records(_) => matches!(stored, ScaleType::U32),
            Scales::E8M0 => matches!(stored, ScaleType::U8),
        }
    }

    /// Bytes of the scales of one [`QuantFormat::unit`] with element type `stored`.
    pub const fn scale_bytes(self, stored: ScaleType) -> usize {
        match self.scales {
            Scales::Records(records) => 4 * records.words as usize,
            _ => stored.size(),
        }
    }

    /// Checks that kernels support the format, and that rows of `columns` values are whole groups (and records).
    ///
    /// # Errors
    /// Says which of the two fails.
    pub fn check(self, columns: usize) -> Result<(), UnsupportedFormat> {
        if !self.is_readable() {
            return Err(UnsupportedFormat(format!(
                "unsupported quantised format {self:?}; known: {}",
                QuantFormat::ALL.map(|f| f.to_string()).join(" ")
            )));
        }
        let unit = self.unit();
        if !columns.is_multiple_of(unit) {
            return Err(UnsupportedFormat(format!(
                "row length {columns} is not a multiple of {unit}, the group size of {self}"
            )));
        }
        Ok(())
    }

    fn is_readable(self) -> bool {
        let code = match self.code {
            Code::Centred => matches!(self.bits, 2..=6),
            Code::Signed => self.bits == 8,
            Code::Bias => matches!(self.bits, 2..=6 | 8),
            Code::Book(_) => self.bits == 4,
        };
        let scales = match (self.scales, self.code) {
            (Scales::Records(ScaleRecords { words, integers }), code) => {
                let groups = RECORD_VALUES as u32 / self.group.max(1);
                let (bytes, biased) = match integers {
                    RecordIntegers::Signed => (groups, false),
                    RecordIntegers::Bytes => (16, true),
                    RecordIntegers::Nibbles => (groups, true),
                };
                let group = if integers == RecordIntegers::Bytes {
                    32..=32
                } else {
                    16..=32
                };
                group.contains(&self.group)
                    && self.group.is_power_of_two()
                    && words > bytes.div_ceil(4)
                    && biased == (code == Code::Bias)
            }
            (Scales::E8M0, Code::Bias) => false,
            _ => matches!(self.group, 32 | 64 | 128),
        };
        code && scales
    }

    /// `==` for constant expressions.
    const fn const_eq(self, other: QuantFormat) -> bool {
        let codes = match (self.code, other.code) {
            (Code::Centred, Code::Centred) | (Code::Signed, Code::Signed) | (Code::Bias, Code::Bias) => true,
            (Code::Book(a), Code::Book(b)) => i128::from_le_bytes(bytes(a)) == i128::from_le_bytes(bytes(b)),
            _ => false,
        };
        let scales = match (self.scales, other.scales) {
            (Scales::Float, Scales::Float) | (Scales::E8M0, Scales::E8M0) => true,
            (Scales::Records(a), Scales::Records(b)) => a.words == b.words && a.integers as u32 == b.integers as u32,
            _ => false,
        };
        self.bits == other.bits && self.group == other.group && codes && scales
    }
}

const fn bytes(book: [i8; 16]) -> [u8; 16] {
    let mut out = [0; 16];
    let mut i = 0;
    while i < 16 {
        out[i] = book[i] as u8;
        i += 1;
    }
    out
}

/// Whether no record after `number` has the same format.
const fn is_last(number: usize) -> bool {
    let mut later = number + 1;
    while later < RECORDS.len() {
        if RECORDS[later].format.const_eq(RECORDS[number].format) {
            return false;
        }
        later += 1;
    }
    true
}

const fn distinct_count() -> usize {
    let (mut count, mut number) = (0, 0);
    while number < RECORDS.len() {
        count += is_last(number) as usize;
        number += 1;
    }
    count
}

const fn distinct_formats() -> [QuantFormat; distinct_count()] {
    let mut all = [RECORDS[0].format; distinct_count()];
    let (mut count, mut number) = (0, 0);
    while number < RECORDS.len() {
        if is_last(number) {
            all[count] = RECORDS[number].format;
            count += 1;
        }
        number += 1;
    }
    all
}

impl fmt::Display for QuantFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // If several records share a format, the last gives it its name.
        match RECORDS.iter().rev().find(|record| record.format == *self) {
            Some(record) => f.write_str(record.name),
            None => write!(f, "{} bits in groups of {}", self.bits, self.group),
        }
    }
}

impl FromStr for QuantFormat {
    type Err = String;
    fn from_str(text: &str) -> Result<QuantFormat, String> {
        let known = || QuantFormat::ALL.map(|f| f.to_string()).join(" ");
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
    fn display_and_from_str_round_trip() {
        for format in QuantFormat::ALL {
            assert_eq!(format.to_string().parse(), Ok(format));
        }
        let error = "q7_1".parse::<QuantFormat>().expect_err("no such format");
        assert!(error.contains("mlx4g64"), "{error}");
    }

    #[test]
    fn check_rejects_partial_groups_and_unsupported_formats() {
        assert!(QuantFormat::mlx(4, 64).check(128).is_ok());
        assert!(QuantFormat::mlx(4, 64).check(96).is_err());
        let unsupported = QuantFormat {
            bits: 8,
            ..QuantFormat::Q4_0
        };
        assert!(unsupported.check(64).is_err());
        for record in RECORDS {
            assert_eq!(record.format.check(256), Ok(()), "{}", record.name);
        }
    }
}
