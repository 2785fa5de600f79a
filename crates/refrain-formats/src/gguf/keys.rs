//! Access to a GGUF file's metadata by the file's own keys.

use super::{Gguf, vocabulary};
use crate::Error;

/// A GGUF file's metadata by the file's own keys. A getter returns `None` if the key is missing, and an error that
/// names file and key if the value has another type.
#[derive(Debug, Clone, Copy)]
pub struct GgufKeys<'a> {
    gguf: &'a Gguf,
    /// Bytes of the file, which hold the arrays.
    bytes: &'a [u8],
}

impl<'a> GgufKeys<'a> {
    pub(crate) fn new(gguf: &'a Gguf, bytes: &'a [u8]) -> Self {
        GgufKeys { gguf, bytes }
    }

    /// Returns an error about the file.
    pub fn error(&self, reason: impl Into<String>) -> Error {
        Error::file(self.gguf.file(), reason)
    }

    /// Reads a string.
    ///
    /// # Errors
    /// If the value has another type.
    pub fn string(&self, key: &str) -> Result<Option<&'a str>, Error> {
        self.gguf.metadata.string(key)
    }

    /// Reads a boolean.
    ///
    /// # Errors
    /// If the value has another type.
    pub fn flag(&self, key: &str) -> Result<Option<bool>, Error> {
        self.gguf.metadata.flag(key)
    }

    /// Reads a token id.
    ///
    /// # Errors
    /// If the value is not a token id.
    pub fn id(&self, key: &str) -> Result<Option<u32>, Error> {
        self.gguf.metadata.id(key)
    }

    /// Returns the length of an array.
    ///
    /// # Errors
    /// If the value has another type.
    pub fn array_length(&self, key: &str) -> Result<Option<usize>, Error> {
        self.gguf.metadata.array_length(key)
    }

    /// Reads an array of strings.
    ///
    /// # Errors
    /// If the value has another type, or is corrupt.
    pub fn strings(&self, key: &str) -> Result<Option<Vec<&'a str>>, Error> {
        self.gguf.metadata.strings(key, self.bytes)
    }

    /// Reads an array of numbers.
    ///
    /// # Errors
    /// If the value has another type, or is corrupt.
    pub fn numbers(&self, key: &str) -> Result<Option<Vec<f64>>, Error> {
        self.gguf.metadata.numbers(key, self.bytes)
    }

    /// Returns the tokens that end a reply: those with that role, and control tokens known by name.
    ///
    /// # Errors
    /// If the values are not token ids, or there is no vocabulary.
    pub fn eos_ids(&self) -> Result<Vec<u32>, Error> {
        vocabulary::eos_ids(self)
    }
}
