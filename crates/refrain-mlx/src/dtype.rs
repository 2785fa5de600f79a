//! MLX's dtypes.

use std::fmt;

use refrain::Array;

use crate::{Error, Result};

/// A dtype of MLX. There are no arrays of `float64` and `complex64` ([`DType::is_supported`]). Numbers of `int64` and
/// `uint64` are kept in 32 bits: larger ones are rejected where they enter, and results beyond wrap.
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

    /// The dtype of the stored elements. Integers that the core has no dtype for are stored in words of 32 bits: narrow
    /// ones are wrapped after each operation ([`DType::wrapped`]), and wide ones lose their upper half.
    pub(crate) fn stored(self) -> Result<refrain::DType> {
        Ok(match self {
            DType::Bool => refrain::DType::Bool,
            DType::U8 => refrain::DType::U8,
            DType::U16 | DType::U32 | DType::U64 => refrain::DType::U32,
            DType::I8 | DType::I16 | DType::I32 | DType::I64 => refrain::DType::I32,
            DType::F16 => refrain::DType::F16,
            DType::BF16 => refrain::DType::BF16,
            DType::F32 => refrain::DType::F32,
            DType::F64 | DType::C64 => {
                return Err(Error::not_implemented(format!("{self} arrays are not supported yet.")));
            }
        })
    }

    /// Stored words as numbers of this dtype, if it is narrower than its words.
    pub(crate) fn wrapped(self, words: Array) -> Array {
        match self {
            DType::I8 => words.shift_left(24).shift_right(24),
            DType::I16 => words.shift_left(16).shift_right(16),
            DType::U16 => words.bit_and(0xffff),
            _ => words,
        }
    }

    /// Whether elements are stored as the core stores its own dtype.
    pub(crate) fn is_native(self) -> bool {
        self.stored().is_ok_and(|stored| DType::from(stored) == self)
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
