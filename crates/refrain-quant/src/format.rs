use std::fmt;
use std::str::FromStr;

use crate::ScaleType;
use crate::formats::RECORDS;

/// How a matrix is quantised along its rows, as it lies in memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct QuantFormat {
    /// Bits per stored value: 2, 3, 4, 5, 6 or 8.
    pub bits: u32,
    /// Neighbouring values of a row that share a scale: 16, 32, 64 or 128.
    pub group: u32,
    /// What a stored value stands for.
    pub code: Code,
    /// How scales are stored.
    pub scales: Scales,
}

/// What a stored value `q` of `bits` bits and its group's scale `s` (and bias `b`) stand for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Code {
    /// `s · (q − 2^(bits − 1))` for unsigned `q` of up to 6 bits.
    Middle,
    /// `s · q` for signed (two's complement) 8-bit `q`.
    Signed,
    /// `s · q + b` for unsigned `q`. The product is rounded to f32 before the sum.
    Bias,
    /// `s · book[q]` for 4-bit `q`.
    Book([i8; 16]),
}

/// How the scales of a format (and its biases) are stored.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Scales {
    /// A float for each group, and another for its bias where the code has one.
    Float,
    /// In two levels: a record for each 256 values.
    Records(ScaleRecords),
    /// A byte `e` for each group: `s = 2^(e − 128)`, half of what E8M0 makes of it, because code books of whole
    /// numbers hold twice what E2M1 stands for.
    E8M0,
}

/// Records of scales: f16 factors `d` (and `m`) in the low (and high) half of the first word, then bytes of integers
/// that factors are multiplied with.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ScaleRecords {
    /// u32 words of a record.
    pub words: u32,
    /// What its integers are.
    pub integers: RecordIntegers,
}

/// What the integers of a record are.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum RecordIntegers {
    /// Byte `g` is signed, and `s = d · byte`.
    Signed,
    /// Of eight groups: `s = d · byte[g]` and `b = −(m · byte[8 + g])`.
    Bytes,
    /// The low half of byte `g` is for `s` and the high half for `b`.
    Nibbles,
}

/// Values that share one record of a format with two levels of scales.
pub const RECORD_VALUES: usize = 256;

/// A format, or rows of it, that nothing here reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unfit(
    /// What does not fit, in the words of an error.
    pub String,
);

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unfit {}

impl QuantFormat {
    /// The formats of all records, each once, in the order in which tables list them.
    pub const ALL: [QuantFormat; distinct()] = all();

    /// MLX's affine quantisation, of which [`QuantFormat::check`] takes 2, 3, 4, 5, 6 and 8 bits in groups of 32, 64
    /// and 128; GGUF's Q4_1 and Q5_1 are this with 4 and 5 bits and groups of 32.
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

    /// Whether scales have two levels: their plane is one of records.
    pub const fn has_records(self) -> bool {
        matches!(self.scales, Scales::Records(_))
    }

    /// Values that scales are stored for at once: those of a group, or of a record.
    pub const fn unit(self) -> usize {
        match self.scales {
            Scales::Records(_) => RECORD_VALUES,
            _ => self.group as usize,
        }
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
    /// floats, bytes, or the u32 words of records.
    pub const fn scales(self, columns: usize) -> usize {
        match self.scales {
            Scales::Records(records) => columns / RECORD_VALUES * records.words as usize,
            _ => columns / self.group as usize,
        }
    }

    /// What scales are stored as, where that is not a choice of the matrix: of floats, the type that GGUF has.
    pub const fn scale_type(self) -> ScaleType {
        match self.scales {
            Scales::Float => ScaleType::F16,
            Scales::Records(_) => ScaleType::U32,
            Scales::E8M0 => ScaleType::U8,
        }
    }

    /// Whether scales may be stored as `stored`.
    pub const fn takes_scales(self, stored: ScaleType) -> bool {
        match self.scales {
            Scales::Float => matches!(stored, ScaleType::F32 | ScaleType::F16 | ScaleType::BF16),
            Scales::Records(_) => matches!(stored, ScaleType::U32),
            Scales::E8M0 => matches!(stored, ScaleType::U8),
        }
    }

    /// Bytes of the scales of one [`QuantFormat::unit`] that are stored so.
    pub const fn scale_bytes(self, stored: ScaleType) -> usize {
        match self.scales {
            Scales::Records(records) => 4 * records.words as usize,
            _ => stored.size(),
        }
    }

    /// Checks that the format is of a kind that is read here and that rows of `columns` values fill whole
    /// groups (and records).
    ///
    /// # Errors
    /// Where not.
    pub fn check(self, columns: usize) -> Result<(), Unfit> {
        if !self.is_readable() {
            return Err(Unfit(format!(
                "{self:?} is not like the formats {}",
                QuantFormat::ALL.map(|f| f.to_string()).join(" ")
            )));
        }
        let unit = self.unit();
        if !columns.is_multiple_of(unit) {
            return Err(Unfit(format!(
                "rows of {columns} values do not fill {self}'s groups of {unit}"
            )));
        }
        Ok(())
    }

    fn is_readable(self) -> bool {
        let code = match self.code {
            Code::Middle => matches!(self.bits, 2..=6),
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

    /// Whether both are read alike; `==` of constants.
    const fn is(self, other: QuantFormat) -> bool {
        let codes = match (self.code, other.code) {
            (Code::Middle, Code::Middle) | (Code::Signed, Code::Signed) | (Code::Bias, Code::Bias) => true,
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

/// Whether no record but `number` that `count` counts from has its format.
const fn is_last(number: usize) -> bool {
    let mut later = number + 1;
    while later < RECORDS.len() {
        if RECORDS[later].format.is(RECORDS[number].format) {
            return false;
        }
        later += 1;
    }
    true
}

const fn distinct() -> usize {
    let (mut count, mut number) = (0, 0);
    while number < RECORDS.len() {
        count += is_last(number) as usize;
        number += 1;
    }
    count
}

const fn all() -> [QuantFormat; distinct()] {
    let mut all = [RECORDS[0].format; distinct()];
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
        // What several records share is named after the last.
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
        for record in RECORDS {
            assert_eq!(record.format.check(256), Ok(()), "{}", record.name);
        }
    }
}
