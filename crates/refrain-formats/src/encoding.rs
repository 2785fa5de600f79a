//! How the numbers of a tensor are stored in a file.

use std::fmt;

/// How the numbers of a tensor are stored in a file. All are little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(non_camel_case_types)] // the names that GGUF gives its types
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
    /// As [`Encoding::Q4_0`] with an f16 minimum m after the scale; value = d·q + m. 20 bytes a block.
    Q4_1,
    /// GGUF blocks of 32 values: an f16 scale d, the values' fifth bits (value j's in bit j of 4 bytes),
    /// then their lower four as in [`Encoding::Q4_0`]; value = d·(q − 16). 22 bytes a block.
    Q5_0,
    /// As [`Encoding::Q5_0`] with an f16 minimum m after the scale; value = d·q + m. 24 bytes a block.
    Q5_1,
    /// GGUF blocks of 256 values in groups of 16: a byte for each group (factor a low, b high), 64 bytes
    /// of 2-bit values, f16 d and m; value = (d·a)·q − m·b. 84 bytes a block.
    Q2_K,
    /// GGUF blocks of 256 values in groups of 16: 32 bytes of third bits, 64 bytes of lower two, a 6-bit
    /// factor a for each group in 12 bytes, f16 d; value = (d·(a − 32))·(q − 4). 110 bytes a block.
    Q3_K,
    /// GGUF blocks of 256 values in groups of 32: f16 d and m, 6-bit factors a and b for each group in
    /// 12 bytes, 128 bytes of 4-bit values; value = (d·a)·q − m·b. 144 bytes a block.
    Q4_K,
    /// As [`Encoding::Q4_K`], with 32 bytes of fifth bits before the lower four. 176 bytes a block.
    Q5_K,
    /// GGUF blocks of 256 values in groups of 16: 128 bytes of the lower four bits, 64 bytes of the upper
    /// two, a signed byte a for each group, f16 d; value = (d·a)·(q − 32). 210 bytes a block.
    Q6_K,
    /// MLX's affine quantisation: unsigned integers of `bits` bits packed into u32 words along the
    /// last axis, and a scale and a bias for each `group` of values; value = scale·q + bias.
    MlxAffine {
        /// Bits per value: 2, 3, 4, 5, 6 or 8.
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
            Encoding::Q2_K => Some(2),
            Encoding::Q3_K => Some(3),
            Encoding::Q4_0 | Encoding::Q4_1 | Encoding::Q4_K => Some(4),
            Encoding::Q5_0 | Encoding::Q5_1 | Encoding::Q5_K => Some(5),
            Encoding::Q6_K => Some(6),
            Encoding::MlxAffine { bits, .. } => Some(bits as usize),
            _ => None,
        }
    }

    /// Values that share one scale, for quantised encodings.
    pub fn group(self) -> Option<usize> {
        match self {
            Encoding::Q2_K | Encoding::Q3_K | Encoding::Q6_K => Some(16),
            Encoding::MlxAffine { group, .. } => Some(group as usize),
            _ => self.block_bytes().map(|_| 32),
        }
    }

    /// Values in one GGUF block; 1 for encodings without blocks.
    pub(crate) fn block_values(self) -> usize {
        match self.block_bytes() {
            None => 1,
            Some(_) if self.has_records() => 256,
            Some(_) => 32,
        }
    }

    /// Whether scales have two levels, as GGUF's K-quants have them.
    pub(crate) fn has_records(self) -> bool {
        use Encoding::{Q2_K, Q3_K, Q4_K, Q5_K, Q6_K};
        matches!(self, Q2_K | Q3_K | Q4_K | Q5_K | Q6_K)
    }

    /// Bytes of one GGUF block.
    pub(crate) fn block_bytes(self) -> Option<usize> {
        match self {
            Encoding::Q8_0 => Some(34),
            Encoding::Q4_0 => Some(18),
            Encoding::Q4_1 => Some(20),
            Encoding::Q5_0 => Some(22),
            Encoding::Q5_1 => Some(24),
            Encoding::Q2_K => Some(84),
            Encoding::Q3_K => Some(110),
            Encoding::Q4_K => Some(144),
            Encoding::Q5_K => Some(176),
            Encoding::Q6_K => Some(210),
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
            Encoding::Q4_1 => f.write_str("Q4_1"),
            Encoding::Q5_0 => f.write_str("Q5_0"),
            Encoding::Q5_1 => f.write_str("Q5_1"),
            Encoding::Q2_K => f.write_str("Q2_K"),
            Encoding::Q3_K => f.write_str("Q3_K"),
            Encoding::Q4_K => f.write_str("Q4_K"),
            Encoding::Q5_K => f.write_str("Q5_K"),
            Encoding::Q6_K => f.write_str("Q6_K"),
            Encoding::MlxAffine { bits, group } => write!(f, "MLX {bits}-bit/{group}"),
            Encoding::Other(name) => f.write_str(name),
        }
    }
}
