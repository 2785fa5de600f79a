//! How the numbers of a tensor are stored in a file.

use std::fmt;

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
    /// GGUF blocks of 32 values along the last axis: an f16 scale d, then 32 signed bytes q;
    /// value = d·q. 34 bytes a block.
    Q8_0,
    /// GGUF blocks of 32 values along the last axis: an f16 scale d, then 16 bytes, of which byte
    /// j holds value j in its low and value j + 16 in its high half; value = d·(q − 8). 18 bytes a
    /// block.
    Q4_0,
    /// MLX's affine quantisation: unsigned integers of `bits` bits packed into u32 words along the
    /// last axis, and a scale and a bias for each `group` of values; value = scale·q + bias.
    MlxAffine {
        /// Bits per value: 4 or 8.
        bits: u8,
        /// Values that share a scale and a bias: 32, 64 or 128.
        group: u16,
    },
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

    /// Bits of one value in the quants plane (8 for [`Encoding::Q8_0`], 4 for
    /// [`Encoding::Q4_0`]), for quantised encodings.
    pub fn quant_bits(self) -> Option<usize> {
        match self {
            Encoding::Q8_0 => Some(8),
            Encoding::Q4_0 => Some(4),
            Encoding::MlxAffine { bits, .. } => Some(bits as usize),
            _ => None,
        }
    }

    /// Values that share one scale, for quantised encodings.
    pub fn group(self) -> Option<usize> {
        match self {
            Encoding::Q8_0 | Encoding::Q4_0 => Some(32),
            Encoding::MlxAffine { group, .. } => Some(group as usize),
            _ => None,
        }
    }

    /// Bytes of one GGUF block of 32 values.
    pub(crate) fn block_bytes(self) -> Option<usize> {
        match self {
            Encoding::Q8_0 => Some(34),
            Encoding::Q4_0 => Some(18),
            _ => None,
        }
    }
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Encoding::F32 => f.write_str("F32"),
            Encoding::F16 => f.write_str("F16"),
            Encoding::BF16 => f.write_str("BF16"),
            Encoding::I32 => f.write_str("I32"),
            Encoding::U32 => f.write_str("U32"),
            Encoding::U8 => f.write_str("U8"),
            Encoding::Bool => f.write_str("BOOL"),
            Encoding::Q8_0 => f.write_str("Q8_0"),
            Encoding::Q4_0 => f.write_str("Q4_0"),
            Encoding::MlxAffine { bits, group } => write!(f, "MLX {bits}-bit/{group}"),
            Encoding::Other(name) => f.write_str(name),
        }
    }
}
