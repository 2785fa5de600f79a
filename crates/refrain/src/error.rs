use std::panic::Location;

use crate::DType;

/// An error of array code. Cheap to clone: operations on an invalid array pass it on.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// Shapes, axes or dtypes do not fit the operation.
    #[error("{op}: {what} (at {at})")]
    Invalid {
        /// The operation.
        op: &'static str,
        /// What does not fit, with the shapes.
        what: String,
        /// The source location that called the operation.
        at: &'static Location<'static>,
    },
    /// The device has no kernel for the operation.
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
        /// The version that it reads.
        read: u64,
        /// The state's current version.
        current: u64,
    },
    /// A placeholder was evaluated outside a function.
    #[error("input {name:?} has no value: it stands for an argument of a traced function")]
    UnboundInput {
        /// The placeholder's name.
        name: String,
    },
    /// Invalid use of a function, an argument or a device.
    #[error("{0}")]
    Call(String),
    /// A file of arrays could not be read or written.
    #[error("{}: {what}", path.display())]
    File {
        /// The file.
        path: std::path::PathBuf,
        /// What is wrong.
        what: String,
    },
    /// Invalid kernel settings, or settings that the device does not support.
    #[error(transparent)]
    Tuning(#[from] refrain_kernels::tuning::TuningError),
    /// Host memory is exhausted.
    #[error("out of host memory: {bytes} bytes are not available; compute less at once, or free arrays")]
    HostMemory {
        /// The size of the allocation.
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
