use std::fmt;
use std::str::FromStr;

use refrain_quant::{QuantFormat, ScaleType, Scales};

/// Storage type of an element. Arithmetic uses the type [`DType::compute`].
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
    /// All storage types, in table order.
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

    /// The type of arithmetic: f32 for floats, i32 for `I32`, u32 for the rest.
    pub const fn compute(self) -> DType {
        match self {
            DType::F32 | DType::F16 | DType::BF16 => DType::F32,
            DType::I32 => DType::I32,
            DType::U32 | DType::U8 | DType::Bool => DType::U32,
        }
    }

    /// The corresponding type of quantisation scales; `None` if scales never have this type.
    pub const fn to_scale_type(self) -> Option<ScaleType> {
        match self {
            DType::F32 => Some(ScaleType::F32),
            DType::F16 => Some(ScaleType::F16),
            DType::BF16 => Some(ScaleType::BF16),
            DType::U32 => Some(ScaleType::U32),
            DType::U8 => Some(ScaleType::U8),
            DType::I32 | DType::Bool => None,
        }
    }

    /// The storage type of a format's scales: `floats` if the format stores them as floats.
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

    /// Lower-case name in kernel names, messages and tables.
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
