//! How the numbers of a tensor are stored in a file.

use std::fmt;

use refrain_quant::{QuantRecord, ScaleType};

/// How the numbers of a tensor are stored in a file. All are little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16.
    F16,
    /// The upper half of a binary32.
    BF16,
    /// 32-bit integers.
    I32,
    /// 32-bit unsigned integers.
    U32,
    /// Bytes.
    U8,
    /// Truth values, one byte each.
    Bool,
    /// Quantised in a format that is known here.
    Quantised(&'static QuantRecord),
    /// A type that the file format knows and that no model here reads, such as `F8_E4M3`. Such a
    /// tensor is listed, but refused when asked for.
    Other(&'static str),
}

impl Encoding {
    /// Bytes of one value, for encodings that store values one by one.
    pub fn value_bytes(self) -> Option<usize> {
        match self {
            Encoding::F32 | Encoding::I32 | Encoding::U32 => Some(4),
            Encoding::F16 | Encoding::BF16 => Some(2),
            Encoding::U8 | Encoding::Bool => Some(1),
            _ => None,
        }
    }

    /// The quantised format, if it is one.
    pub fn quantised(self) -> Option<&'static QuantRecord> {
        match self {
            Encoding::Quantised(record) => Some(record),
            _ => None,
        }
    }

    /// The encoding of a quantised format.
    ///
    /// # Panics
    /// If no format has that name.
    pub fn named(name: &str) -> Encoding {
        let record = refrain_quant::by_name(name);
        Encoding::Quantised(record.unwrap_or_else(|| panic!("{name:?} is no quantised format")))
    }

    /// What scales and biases that are stored so are.
    pub(crate) fn of_scales(stored: ScaleType) -> Encoding {
        match stored {
            ScaleType::F32 => Encoding::F32,
            ScaleType::F16 => Encoding::F16,
            ScaleType::BF16 => Encoding::BF16,
            ScaleType::U32 => Encoding::U32,
            ScaleType::U8 => Encoding::U8,
        }
    }

    /// What numbers that are stored so are, as scales and biases.
    pub fn as_scales(self) -> Option<ScaleType> {
        match self {
            Encoding::F32 => Some(ScaleType::F32),
            Encoding::F16 => Some(ScaleType::F16),
            Encoding::BF16 => Some(ScaleType::BF16),
            Encoding::U32 => Some(ScaleType::U32),
            Encoding::U8 => Some(ScaleType::U8),
            _ => None,
        }
    }

    /// Bits of one value in the quants plane, for quantised encodings.
    pub fn quant_bits(self) -> Option<usize> {
        self.quantised().map(|record| record.format.bits as usize)
    }

    /// Values that share one scale, for quantised encodings.
    pub fn group(self) -> Option<usize> {
        self.quantised().map(|record| record.format.group as usize)
    }

    /// GGUF's blocks of it, where it has such.
    pub fn block(self) -> Option<refrain_quant::GgufBlock> {
        self.quantised()?.block
    }

    /// Values in one GGUF block; 1 for encodings without blocks.
    pub fn block_values(self) -> usize {
        self.block().map_or(1, |block| block.values)
    }

    /// Bytes of one GGUF block.
    pub fn block_bytes(self) -> Option<usize> {
        self.block().map(|block| block.bytes)
    }
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Encoding::F32 => "F32",
            Encoding::F16 => "F16",
            Encoding::BF16 => "BF16",
            Encoding::I32 => "I32",
            Encoding::U32 => "U32",
            Encoding::U8 => "U8",
            Encoding::Bool => "BOOL",
            Encoding::Quantised(record) => record.label,
            Encoding::Other(name) => name,
        })
    }
}
