use std::fmt;
use std::str::FromStr;

use refrain_quant::{QuantFormat, ScaleType, Scales};

/// How one element is stored. Arithmetic is done in [`DType::compute`]'s type.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum DType {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16.
    F16,
    /// bfloat16: the upper half of a binary32.
    BF16,
    /// Two's complement, 32 bits.
    I32,
    /// Unsigned, 32 bits.
    U32,
    /// Unsigned, 8 bits.
    U8,
    /// One byte, 0 or 1.
    Bool,
}

impl DType {
    /// Every storage type, in the order in which tables list them.
    pub const ALL: [DType; 7] = [
        DType::F32,
        DType::F16,
        DType::BF16,
        DType::I32,
        DType::U32,
        DType::U8,
        DType::Bool,
    ];

    /// Bytes per element.
    pub const fn size(self) -> usize {
        match self {
            DType::F32 | DType::I32 | DType::U32 => 4,
            DType::F16 | DType::BF16 => 2,
            DType::U8 | DType::Bool => 1,
        }
    }

    /// The type in which elements are computed with: floats in f32, `I32` in i32, the rest in u32.
    pub const fn compute(self) -> DType {
        match self {
            DType::F32 | DType::F16 | DType::BF16 => DType::F32,
            DType::I32 => DType::I32,
            DType::U32 | DType::U8 | DType::Bool => DType::U32,
        }
    }

    /// What scales of quantised matrices are that are stored so, if any are.
    pub const fn as_scales(self) -> Option<ScaleType> {
        match self {
            DType::F32 => Some(ScaleType::F32),
            DType::F16 => Some(ScaleType::F16),
            DType::BF16 => Some(ScaleType::BF16),
            DType::U32 => Some(ScaleType::U32),
            DType::U8 => Some(ScaleType::U8),
            DType::I32 | DType::Bool => None,
        }
    }

    /// What the scales of a format are stored as, floats as `floats`.
    pub fn of_scales(format: QuantFormat, floats: DType) -> DType {
        match format.scales {
            Scales::Float => floats,
            _ => format.scale_type().into(),
        }
    }

    /// Whether elements are floating-point numbers.
    pub const fn is_float(self) -> bool {
        matches!(self.compute(), DType::F32)
    }

    /// The lower-case name used in kernel names, messages and tables.
    pub const fn name(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::I32 => "i32",
            DType::U32 => "u32",
            DType::U8 => "u8",
            DType::Bool => "bool",
        }
    }
}

impl From<ScaleType> for DType {
    fn from(stored: ScaleType) -> DType {
        match stored {
            ScaleType::F32 => DType::F32,
            ScaleType::F16 => DType::F16,
            ScaleType::BF16 => DType::BF16,
            ScaleType::U32 => DType::U32,
            ScaleType::U8 => DType::U8,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for DType {
    type Err = String;
    fn from_str(text: &str) -> Result<DType, String> {
        DType::ALL
            .into_iter()
            .find(|d| d.name() == text)
            .ok_or_else(|| format!("unknown dtype {text:?}; known: f32 f16 bf16 i32 u32 u8 bool"))
    }
}
