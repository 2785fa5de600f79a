use std::panic::Location;

use crate::DType;

/// What can go wrong when arrays are computed. Cheap to clone: an invalid array hands it on.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// Shapes, axes or dtypes that do not fit the operation.
    #[error("{op}: {what} (at {at})")]
    Invalid {
        /// The operation.
        op: &'static str,
        /// What does not fit, with the shapes.
        what: String,
        /// Where in the source the operation was called.
        at: &'static Location<'static>,
    },
    /// The device has no kernel for this operation.
    #[error("{device} cannot compute {op} of {dtype}: {why}")]
    Unsupported {
        /// The operation.
        op: String,
        /// The dtype of its result.
        dtype: DType,
        /// The device's name.
        device: String,
        /// What is missing.
        why: String,
    },
    /// A state was updated and then an older version of it was read.
    #[error(
        "{op} reads version {read} of a state that has been updated since (it is at version {current}); use the array that the update returned"
    )]
    StaleState {
        /// The reading operation.
        op: String,
        /// The version that it wants.
        read: u64,
        /// The version that the state has.
        current: u64,
    },
    /// A placeholder was evaluated outside of a function.
    #[error("input {name:?} has no value: it stands for an argument of a traced function")]
    UnboundInput {
        /// The placeholder's name.
        name: String,
    },
    /// A traced function was made or called with what does not fit it.
    #[error("{0}")]
    Call(String),
    /// A file of arrays could not be read or written.
    #[error("{}: {what}", path.display())]
    File {
        /// The file.
        path: std::path::PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// Settings of kernels that a device cannot have.
    #[error(transparent)]
    Tuning(#[from] refrain_kernels::tuning::BadTuning),
    /// The CPU executor asked for more memory than there is.
    #[error("there is no memory for {bytes} bytes; compute less at once, or free arrays")]
    HostMemory {
        /// How much was asked for.
        bytes: u64,
    },
    /// The GPU or its driver failed.
    #[error(transparent)]
    Vulkan(#[from] std::sync::Arc<refrain_vulkan::Error>),
}

impl From<refrain_vulkan::Error> for Error {
    fn from(error: refrain_vulkan::Error) -> Error {
        Error::Vulkan(std::sync::Arc::new(error))
    }
}
