//! Errors of checkpoints, worded for the user.

use std::path::PathBuf;

/// Errors of opening and reading a checkpoint. Each message names the file (and tensor) and says what is wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or directory could not be opened, listed or mapped.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Path of the file or directory.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// A file or checkpoint could not be written. Nothing of it remains.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// Path of the file or directory.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The target exists and must not be replaced.
    #[error("cannot write {}: it already exists; remove it, or choose another name", path.display())]
    Exists {
        /// Path of the target.
        path: PathBuf,
    },
    /// The progress callback stopped writing a checkpoint. Nothing of it remains.
    #[error("stopped before {} was complete; the partial output was removed", path.display())]
    Stopped {
        /// Path of the checkpoint.
        path: PathBuf,
    },
    /// The checkpoint cannot be converted to the requested format.
    #[error("{0}")]
    Conversion(String),
    /// There is no such synthetic checkpoint.
    #[error("synthetic checkpoint {spec:?}: {reason}")]
    Synthetic {
        /// The name given.
        spec: String,
        /// What is wrong with it, and the available choices.
        reason: String,
    },
    /// The path is neither a checkpoint directory nor a GGUF file.
    #[error("{}: {reason}", path.display())]
    NotACheckpoint {
        /// The path.
        path: PathBuf,
        /// What is missing there.
        reason: String,
    },
    /// A file is corrupt or has an invalid value.
    #[error("{file}: {reason}")]
    File {
        /// Name of the file.
        file: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A tensor is corrupt, or its storage type is not supported.
    #[error("{file}: tensor {tensor}: {reason}")]
    Tensor {
        /// Name of the file.
        file: String,
        /// Name of the tensor in that file.
        tensor: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The model's architecture is not supported.
    #[error("{file}: architecture {architecture:?} is not supported (supported: {supported})")]
    Architecture {
        /// The file that names the architecture.
        file: String,
        /// The architecture named there.
        architecture: String,
        /// The architectures that are supported.
        supported: String,
    },
    /// The model uses a feature that is not supported.
    #[error("{file}: {reason}")]
    Unsupported {
        /// The file that requests it.
        file: String,
        /// The feature, and the supported ones.
        reason: String,
    },
    /// No file of the checkpoint has a tensor that the model needs.
    #[error("{checkpoint}: tensor {tensor} is missing")]
    MissingTensor {
        /// The checkpoint.
        checkpoint: String,
        /// The tensor's name.
        tensor: String,
    },
    /// A tensor's shape contradicts the configuration.
    #[error("{checkpoint}: tensor {tensor} has shape {found:?}, but the configuration requires {expected:?}")]
    Shape {
        /// The checkpoint.
        checkpoint: String,
        /// The tensor's name.
        tensor: String,
        /// Its shape.
        found: Vec<usize>,
        /// The shape that the configuration requires.
        expected: Vec<usize>,
    },
    /// A text could not be encoded, or token ids could not be decoded.
    #[error("tokenizer: {0}")]
    Tokenizer(String),
    /// A chat template has a syntax error, or failed to render.
    #[error("chat template: {0}")]
    Template(String),
    /// The messages do not have the structure that a chat template expects.
    #[error("messages: {0}")]
    Messages(String),
}

impl Error {
    /// Returns an error about a file.
    pub fn file(file: impl Into<String>, reason: impl Into<String>) -> Self {
        Error::File {
            file: file.into(),
            reason: reason.into(),
        }
    }

    /// Returns an error about a tensor of a file.
    pub fn tensor(file: impl Into<String>, tensor: impl Into<String>, reason: impl Into<String>) -> Self {
        Error::Tensor {
            file: file.into(),
            tensor: tensor.into(),
            reason: reason.into(),
        }
    }
}
