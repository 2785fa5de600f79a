//! MLX's dtypes.

use std::fmt;

use crate::{Error, Result};

/// A dtype of MLX. Arrays of seven of them exist ([`DType::is_supported`]); the others are names for promotion and for
/// error messages.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DType {
    /// `bool_`.
    Bool,
    /// `uint8`.
    U8,
    /// `uint16`.
    U16,
    /// `uint32`.
    U32,
    /// `uint64`.
    U64,
    /// `int8`.
    I8,
    /// `int16`.
    I16,
    /// `int32`.
    I32,
    /// `int64`.
    I64,
    /// `float16`.
    F16,
    /// `bfloat16`.
    BF16,
    /// `float32`.
    F32,
    /// `float64`.
    F64,
    /// `complex64`.
    C64,
}

/// A category of dtypes, narrower ones last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Category {
    /// `bool_`.
    Bool,
    /// `unsignedinteger`.
    Unsigned,
    /// `signedinteger`.
    Signed,
    /// `floating`.
    Floating,
    /// `complexfloating`.
    Complex,
}

impl DType {
    /// All dtypes.
    pub const ALL: [DType; 14] = [
        DType::Bool,
        DType::U8,
        DType::U16,
        DType::U32,
        DType::U64,
        DType::I8,
        DType::I16,
        DType::I32,
        DType::I64,
        DType::F16,
        DType::BF16,
        DType::F32,
        DType::F64,
        DType::C64,
    ];

    /// MLX's name without the module: `float32`, `bool`.
    pub const fn name(self) -> &'static str {
        match self {
            DType::Bool => "bool",
            DType::U8 => "uint8",
            DType::U16 => "uint16",
            DType::U32 => "uint32",
            DType::U64 => "uint64",
            DType::I8 => "int8",
            DType::I16 => "int16",
            DType::I32 => "int32",
            DType::I64 => "int64",
            DType::F16 => "float16",
            DType::BF16 => "bfloat16",
            DType::F32 => "float32",
            DType::F64 => "float64",
            DType::C64 => "complex64",
        }
    }

    /// Bytes per element.
    pub const fn size(self) -> usize {
        match self {
            DType::Bool | DType::U8 | DType::I8 => 1,
            DType::U16 | DType::I16 | DType::F16 | DType::BF16 => 2,
            DType::U32 | DType::I32 | DType::F32 => 4,
            DType::U64 | DType::I64 | DType::F64 | DType::C64 => 8,
        }
    }

    /// The category.
    pub const fn category(self) -> Category {
        match self {
            DType::Bool => Category::Bool,
            DType::U8 | DType::U16 | DType::U32 | DType::U64 => Category::Unsigned,
            DType::I8 | DType::I16 | DType::I32 | DType::I64 => Category::Signed,
            DType::F16 | DType::BF16 | DType::F32 | DType::F64 => Category::Floating,
            DType::C64 => Category::Complex,
        }
    }

    /// Whether this is a real floating-point dtype.
    pub fn is_floating(self) -> bool {
        self.category() == Category::Floating
    }

    /// Whether this is an integer dtype; bool is not.
    pub fn is_integer(self) -> bool {
        matches!(self.category(), Category::Signed | Category::Unsigned)
    }

    /// Whether arrays of this dtype can be made.
    pub fn is_supported(self) -> bool {
        self.stored().is_ok()
    }

    /// The dtype itself if it is floating, else float32.
    pub fn at_least_float(self) -> DType {
        if self.category() >= Category::Floating {
            self
        } else {
            DType::F32
        }
    }

    /// The dtype of the stored elements.
    pub(crate) fn stored(self) -> Result<refrain::DType> {
        Ok(match self {
            DType::Bool => refrain::DType::Bool,
            DType::U8 => refrain::DType::U8,
            DType::U32 => refrain::DType::U32,
            DType::I32 => refrain::DType::I32,
            DType::F16 => refrain::DType::F16,
            DType::BF16 => refrain::DType::BF16,
            DType::F32 => refrain::DType::F32,
            _ => {
                let supported = "bool, uint8, uint32, int32, float16, bfloat16 and float32";
                let message = format!("{self} arrays are not supported yet; there are {supported}.");
                return Err(Error::not_implemented(message));
            }
        })
    }
}

impl From<refrain::DType> for DType {
    fn from(stored: refrain::DType) -> DType {
        match stored {
            refrain::DType::Bool => DType::Bool,
            refrain::DType::U8 => DType::U8,
            refrain::DType::U32 => DType::U32,
            refrain::DType::I32 => DType::I32,
            refrain::DType::F16 => DType::F16,
            refrain::DType::BF16 => DType::BF16,
            refrain::DType::F32 => DType::F32,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
