//! Errors with the kind of exception that MLX raises.

use std::fmt;

/// Results of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// The exception that MLX's Python module raises for an error.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ErrorKind {
    /// Shapes, sizes or arguments do not fit: `ValueError`.
    Value,
    /// An index is out of range: `IndexError`.
    Index,
    /// An axis does not exist: both `IndexError` and `ValueError`.
    Axis,
    /// An argument has the wrong type: `TypeError`.
    Type,
    /// Anything that fails while computing: `RuntimeError`.
    Runtime,
    /// Memory is exhausted: `MemoryError`, which is a `RuntimeError` in MLX.
    Memory,
    /// A file cannot be read or written: `RuntimeError`.
    File,
    /// MLX has it and this crate does not: `NotImplementedError`, which is a `RuntimeError`.
    NotImplemented,
}

/// An error of an operation.
#[derive(Clone, Debug)]
pub struct Error {
    /// The kind of exception.
    pub kind: ErrorKind,
    /// What is wrong, in the form `[operation] Sentence.` where MLX has one.
    pub message: String,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error {
            kind,
            message: message.into(),
        }
    }

    /// An error of kind [`ErrorKind::Value`].
    pub fn value(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Value, message)
    }

    /// An error of kind [`ErrorKind::NotImplemented`].
    pub fn not_implemented(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::NotImplemented, message)
    }

    pub(crate) fn axis(op: &str, axis: i64, rank: usize) -> Error {
        let message = format!("[{op}] Axis {axis} is out of bounds for array with {rank} dimensions.");
        Error::new(ErrorKind::Axis, message)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl From<refrain::Error> for Error {
    fn from(error: refrain::Error) -> Error {
        match error {
            // The location is a line of this library, which says nothing to its user.
            refrain::Error::Invalid { op, what, .. } => Error::value(format!("[{op}] {what}.")),
            error @ refrain::Error::HostMemory { .. } => Error::new(ErrorKind::Memory, error.to_string()),
            error @ refrain::Error::File { .. } => Error::new(ErrorKind::File, error.to_string()),
            error => Error::new(ErrorKind::Runtime, error.to_string()),
        }
    }
}
