//! Metadata for writing a GGUF file.

/// Alignment of tensor data in bytes.
pub const ALIGNMENT: u64 = 32;

/// One metadata value.
#[derive(Debug, Clone, PartialEq)]
pub enum MetadataValue {
    /// u32.
    U32(u32),
    /// f32.
    F32(f32),
    /// bool.
    Bool(bool),
    /// A string.
    Text(String),
    /// An array of strings.
    Texts(Vec<String>),
    /// An array of f32.
    F32s(Vec<f32>),
    /// An array of i32.
    I32s(Vec<i32>),
    /// An array of bool.
    Bools(Vec<bool>),
    /// A value copied from another file: its type number and its bytes.
    Raw(Vec<u8>),
}

/// Metadata in file order.
pub type MetadataEntries = Vec<(String, MetadataValue)>;
