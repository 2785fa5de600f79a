//! Storage types of tensors.

use std::fmt;

use refrain_quant::{QuantRecord, ScaleType};

/// Storage type of a tensor's values. All are little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16.
    F16,
    /// bfloat16: the upper half of a binary32.
    BF16,
    /// IEEE 754 binary64. Tensors never have it: they appear as F32.
    F64,
    /// 32-bit integers.
    I32,
    /// 32-bit unsigned integers.
    U32,
    /// Bytes.
    U8,
    /// Booleans, one byte each.
    Bool,
    /// A supported quantisation format.
    Quantised(&'static QuantRecord),
    /// A type that the file format defines but no model here supports, such as `F8_E4M3`. Such a tensor is listed,
    /// and reading it is an error.
    Other(&'static str),
}

impl Encoding {
    /// Bytes per value, for unquantised encodings.
    pub fn value_bytes(self) -> Option<usize> {
        match self {
            Encoding::F32 | Encoding::I32 | Encoding::U32 => Some(4),
            Encoding::F16 | Encoding::BF16 => Some(2),
            Encoding::F64 => Some(8),
            Encoding::U8 | Encoding::Bool => Some(1),
            _ => None,
        }
    }

    /// The quantisation format, if it is one.
    pub fn quantised(self) -> Option<&'static QuantRecord> {
        match self {
            Encoding::Quantised(record) => Some(record),
            _ => None,
        }
    }

    /// Returns the encoding of the quantisation format `name`.
    ///
    /// # Panics
    /// If there is no such format.
    pub fn named(name: &str) -> Encoding {
        let record = refrain_quant::by_name(name);
        Encoding::Quantised(record.unwrap_or_else(|| panic!("unknown quantisation format {name:?}")))
    }

    /// Encoding of scales and biases of type `stored`.
    pub(crate) fn from_scale_type(stored: ScaleType) -> Encoding {
        match stored {
            ScaleType::F32 => Encoding::F32,
            ScaleType::F16 => Encoding::F16,
            ScaleType::BF16 => Encoding::BF16,
            ScaleType::U32 => Encoding::U32,
            ScaleType::U8 => Encoding::U8,
        }
    }

    /// The same type as a scale type.
    pub fn to_scale_type(self) -> Option<ScaleType> {
        match self {
            Encoding::F32 => Some(ScaleType::F32),
            Encoding::F16 => Some(ScaleType::F16),
            Encoding::BF16 => Some(ScaleType::BF16),
            Encoding::U32 => Some(ScaleType::U32),
            Encoding::U8 => Some(ScaleType::U8),
            _ => None,
        }
    }

    /// Bits per value in the quants plane, for quantised encodings.
    pub fn quant_bits(self) -> Option<usize> {
        self.quantised().map(|record| record.format.bits as usize)
    }

    /// Values that share one scale, for quantised encodings.
    pub fn group(self) -> Option<usize> {
        self.quantised().map(|record| record.format.group as usize)
    }

    /// GGUF's block format, if it has one.
    pub fn block(self) -> Option<refrain_quant::GgufBlock> {
        self.quantised()?.block
    }

    /// Values per GGUF block; 1 for encodings without blocks.
    pub fn block_values(self) -> usize {
        self.block().map_or(1, |block| block.values)
    }

    /// Bytes per GGUF block.
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
            Encoding::F64 => "F64",
            Encoding::I32 => "I32",
            Encoding::U32 => "U32",
            Encoding::U8 => "U8",
            Encoding::Bool => "BOOL",
            Encoding::Quantised(record) => record.label,
            Encoding::Other(name) => name,
        })
    }
}
