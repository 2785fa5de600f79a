//! The metadata of a GGUF file under the file's own keys.

use super::{Gguf, vocabulary};
use crate::Error;

/// The metadata of a GGUF file under the file's own keys. Each getter gives `None` where the file is silent, and an error
/// that names file and key where the value is of another type.
#[derive(Debug, Clone, Copy)]
pub struct GgufKeys<'a> {
    gguf: &'a Gguf,
    /// Those of the file, in which long arrays stay.
    bytes: &'a [u8],
}

impl<'a> GgufKeys<'a> {
    pub(crate) fn new(gguf: &'a Gguf, bytes: &'a [u8]) -> Self {
        GgufKeys { gguf, bytes }
    }

    /// That the file is wrong.
    pub fn error(&self, reason: impl Into<String>) -> Error {
        Error::file(self.gguf.file(), reason)
    }

    /// A string.
    ///
    /// # Errors
    /// If it is of another type.
    pub fn string(&self, key: &str) -> Result<Option<&'a str>, Error> {
        self.gguf.metadata.string(key)
    }

    /// A truth value.
    ///
    /// # Errors
    /// If it is of another type.
    pub fn flag(&self, key: &str) -> Result<Option<bool>, Error> {
        self.gguf.metadata.flag(key)
    }

    /// A token id.
    ///
    /// # Errors
    /// If it is none.
    pub fn id(&self, key: &str) -> Result<Option<u32>, Error> {
        self.gguf.metadata.id(key)
    }

    /// The length of an array.
    ///
    /// # Errors
    /// If it is of another type.
    pub fn array_length(&self, key: &str) -> Result<Option<usize>, Error> {
        self.gguf.metadata.array_length(key)
    }

    /// An array of strings.
    ///
    /// # Errors
    /// If it is of another type, or damaged.
    pub fn strings(&self, key: &str) -> Result<Option<Vec<&'a str>>, Error> {
        self.gguf.metadata.strings(key, self.bytes)
    }

    /// An array of numbers.
    ///
    /// # Errors
    /// If it is of another type, or damaged.
    pub fn numbers(&self, key: &str) -> Result<Option<Vec<f64>>, Error> {
        self.gguf.metadata.numbers(key, self.bytes)
    }

    /// The tokens that end a text: those that have the role, and control tokens known to do so.
    ///
    /// # Errors
    /// If what is there are no token ids, or no vocabulary.
    pub fn eos_ids(&self) -> Result<Vec<u32>, Error> {
        vocabulary::eos_ids(self)
    }
}
