//! Metadata values of a GGUF file.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::Error;

use super::reader::Cursor;

/// The types of metadata values, by their number in the file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum ValueType {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    String,
    Array,
    U64,
    I64,
    F64,
}

impl ValueType {
    pub(crate) fn by_number(number: u32) -> Option<Self> {
        use ValueType::*;
        const ALL: [ValueType; 13] = [U8, I8, U16, I16, U32, I32, F32, Bool, String, Array, U64, I64, F64];
        ALL.get(number as usize).copied()
    }

    /// Size of a value in bytes; the minimum for strings and arrays.
    pub(crate) fn min_bytes(self) -> usize {
        use ValueType::*;
        match self {
            U8 | I8 | Bool => 1,
            U16 | I16 => 2,
            U32 | I32 | F32 => 4,
            U64 | I64 | F64 | String => 8,
            Array => 12,
        }
    }
}

/// One metadata value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum GgufValue {
    /// Any integer.
    Integer(i128),
    Float(f64),
    Bool(bool),
    String(String),
    /// An array, left in the file.
    Array {
        item: ValueType,
        count: usize,
        /// Offset of its items in the file.
        start: usize,
    },
}

impl GgufValue {
    fn kind(&self) -> &'static str {
        match self {
            GgufValue::Integer(_) => "an integer",
            GgufValue::Float(_) => "a number",
            GgufValue::Bool(_) => "a boolean",
            GgufValue::String(_) => "a string",
            GgufValue::Array { .. } => "an array",
        }
    }
}

/// All metadata of a file.
#[derive(Debug, Default)]
pub(crate) struct GgufMetadata {
    pub file: String,
    pub values: BTreeMap<String, GgufValue>,
    /// Byte range of each value in the file: its type number and its bytes.
    pub ranges: BTreeMap<String, Range<usize>>,
}

impl GgufMetadata {
    fn type_error(&self, key: &str, value: &GgufValue, required: &str) -> Error {
        let found = value.kind();
        Error::file(&self.file, format!("metadata {key} is {found}, not {required}"))
    }

    pub(crate) fn error(&self, reason: impl Into<String>) -> Error {
        Error::file(&self.file, reason)
    }

    pub(crate) fn string(&self, key: &str) -> Result<Option<&str>, Error> {
        match self.values.get(key) {
            None => Ok(None),
            Some(GgufValue::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.type_error(key, other, "a string")),
        }
    }

    pub(crate) fn flag(&self, key: &str) -> Result<Option<bool>, Error> {
        match self.values.get(key) {
            None => Ok(None),
            Some(GgufValue::Bool(flag)) => Ok(Some(*flag)),
            Some(other) => Err(self.type_error(key, other, "a boolean")),
        }
    }

    pub(crate) fn number(&self, key: &str) -> Result<Option<f64>, Error> {
        match self.values.get(key) {
            None => Ok(None),
            Some(GgufValue::Float(number)) => Ok(Some(*number)),
            Some(GgufValue::Integer(number)) => Ok(Some(*number as f64)),
            Some(other) => Err(self.type_error(key, other, "a number")),
        }
    }

    /// A positive count.
    pub(crate) fn count(&self, key: &str) -> Result<Option<usize>, Error> {
        match self.values.get(key) {
            None => Ok(None),
            Some(GgufValue::Integer(number)) => match usize::try_from(*number) {
                Ok(count) if count > 0 => Ok(Some(count)),
                _ => Err(Error::file(
                    &self.file,
                    format!("metadata {key} is {number}, not a positive count"),
                )),
            },
            Some(other) => Err(self.type_error(key, other, "a positive count")),
        }
    }

    /// A non-negative integer.
    pub(crate) fn unsigned(&self, key: &str) -> Result<Option<usize>, Error> {
        match self.values.get(key) {
            None => Ok(None),
            Some(GgufValue::Integer(number)) => match usize::try_from(*number) {
                Ok(number) => Ok(Some(number)),
                Err(_) => Err(self.error(format!("metadata {key} is {number}, which is out of range"))),
            },
            Some(other) => Err(self.type_error(key, other, "a non-negative integer")),
        }
    }

    /// A token id.
    pub(crate) fn id(&self, key: &str) -> Result<Option<u32>, Error> {
        match self.values.get(key) {
            None => Ok(None),
            Some(GgufValue::Integer(number)) => u32::try_from(*number).map(Some).map_err(|_| {
                Error::file(
                    &self.file,
                    format!("metadata {key} is {number}, which is not a token id"),
                )
            }),
            Some(other) => Err(self.type_error(key, other, "a token id")),
        }
    }

    /// The length of an array.
    pub(crate) fn array_length(&self, key: &str) -> Result<Option<usize>, Error> {
        match self.values.get(key) {
            None => Ok(None),
            Some(GgufValue::Array { count, .. }) => Ok(Some(*count)),
            Some(other) => Err(self.type_error(key, other, "an array")),
        }
    }

    /// An array of strings.
    pub(crate) fn strings<'a>(&self, key: &str, bytes: &'a [u8]) -> Result<Option<Vec<&'a str>>, Error> {
        self.items(key, bytes, "an array of strings", |item, cursor| match item {
            ValueType::String => Some(cursor.string("a string")),
            _ => None,
        })
    }

    /// An array of numbers.
    pub(crate) fn numbers(&self, key: &str, bytes: &[u8]) -> Result<Option<Vec<f64>>, Error> {
        self.items(key, bytes, "an array of numbers", |item, cursor| {
            match item {
                ValueType::String | ValueType::Array => return None,
                _ => {}
            }
            Some(cursor.scalar(item).map(|value| match value {
                GgufValue::Float(number) => number,
                GgufValue::Integer(number) => number as f64,
                GgufValue::Bool(flag) => f64::from(u8::from(flag)),
                _ => f64::NAN,
            }))
        })
    }

    /// Reads the items of an array. `read` returns `None` for items of another type.
    fn items<'a, T>(
        &self,
        key: &str,
        bytes: &'a [u8],
        required: &str,
        mut read: impl FnMut(ValueType, &mut Cursor<'a, '_>) -> Option<Result<T, Error>>,
    ) -> Result<Option<Vec<T>>, Error> {
        let Some(value) = self.values.get(key) else {
            return Ok(None);
        };
        let GgufValue::Array { item, count, start } = value else {
            return Err(self.type_error(key, value, required));
        };
        let mut cursor = Cursor::new(bytes, *start, &self.file);
        let mut items = Vec::with_capacity(*count);
        for _ in 0..*count {
            match read(*item, &mut cursor) {
                Some(value) => items.push(value?),
                None => {
                    return Err(Error::file(&self.file, format!("metadata {key} is not {required}")));
                }
            }
        }
        Ok(Some(items))
    }
}
