//! What can be wrong with a checkpoint, in the user's language.

use std::path::PathBuf;

/// Everything that opening or reading a checkpoint can fail with. Each message says which file
/// (and tensor) it is about and what is wrong with it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or directory could not be opened, listed or mapped.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// What was to be read.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// A file or checkpoint could not be written. Nothing of it is left.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// What was to be written.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// Something is there already, and nothing may be replaced.
    #[error("cannot write {}: it exists already; remove it, or choose another name", path.display())]
    Exists {
        /// What was to be written.
        path: PathBuf,
    },
    /// Whoever watched the progress of writing a checkpoint asked to stop. Nothing of it is left.
    #[error("stopped before all of {} was written; nothing is left of it", path.display())]
    Stopped {
        /// What was being written.
        path: PathBuf,
    },
    /// A checkpoint cannot be converted to the format asked for.
    #[error("{0}")]
    Conversion(String),
    /// There is no synthetic checkpoint of that name.
    #[error("synthetic checkpoint {spec:?}: {reason}")]
    Synthetic {
        /// The name given.
        spec: String,
        /// What is wrong with it, and what there is.
        reason: String,
    },
    /// The path is neither a checkpoint directory nor a GGUF file.
    #[error("{}: {reason}", path.display())]
    NotACheckpoint {
        /// The path given.
        path: PathBuf,
        /// What a checkpoint would need there.
        reason: String,
    },
    /// A file is damaged or says something that cannot be.
    #[error("{file}: {reason}")]
    File {
        /// Name of the file.
        file: String,
        /// What is wrong with it.
        reason: String,
    },
    /// One tensor of a file is damaged, or stored in a way that cannot be read.
    #[error("{file}: tensor {tensor}: {reason}")]
    Tensor {
        /// Name of the file.
        file: String,
        /// Name of the tensor in that file.
        tensor: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The model is of an architecture that is not known here.
    #[error("{file}: architecture {architecture:?} is not supported (supported: {supported})")]
    Architecture {
        /// The file that names the architecture.
        file: String,
        /// The architecture named there.
        architecture: String,
        /// The architectures that are supported.
        supported: String,
    },
    /// The model has something that nothing here computes.
    #[error("{file}: {reason}")]
    Unsupported {
        /// The file that says so.
        file: String,
        /// What it says, and what is supported.
        reason: String,
    },
    /// A tensor that the model needs is in no file of the checkpoint.
    #[error("{checkpoint}: tensor {tensor} is missing")]
    MissingTensor {
        /// Where it was looked for.
        checkpoint: String,
        /// The tensor's name.
        tensor: String,
    },
    /// A tensor has another shape than the configuration calls for.
    #[error("{checkpoint}: tensor {tensor} has shape {found:?}, but the configuration calls for {expected:?}")]
    Shape {
        /// Where the tensor lies.
        checkpoint: String,
        /// The tensor's name.
        tensor: String,
        /// Its shape.
        found: Vec<usize>,
        /// The shape that the configuration calls for.
        expected: Vec<usize>,
    },
    /// A text could not be encoded, or ids not decoded.
    #[error("tokenizer: {0}")]
    Tokenizer(String),
    /// A chat template does not parse, or failed while rendering.
    #[error("chat template: {0}")]
    Template(String),
    /// The messages to render are not of the form that a chat template takes.
    #[error("messages: {0}")]
    Messages(String),
}

impl Error {
    /// That a file is damaged or says something that cannot be.
    pub fn file(file: impl Into<String>, reason: impl Into<String>) -> Self {
        Error::File {
            file: file.into(),
            reason: reason.into(),
        }
    }

    /// The same of one tensor of a file.
    pub fn tensor(file: impl Into<String>, tensor: impl Into<String>, reason: impl Into<String>) -> Self {
        Error::Tensor {
            file: file.into(),
            tensor: tensor.into(),
            reason: reason.into(),
        }
    }
}
