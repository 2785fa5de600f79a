//! Errors of loading a model.

/// Errors of loading a model.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The checkpoint is incomplete or corrupt.
    #[error(transparent)]
    Checkpoint(#[from] refrain_formats::Error),
    /// No kernel supports the tensor's encoding.
    #[error(
        "tensor {tensor} is stored as {encoding}, which is unsupported; convert the checkpoint to f16, q8_0 or q4_0"
    )]
    Encoding {
        /// The tensor's name.
        tensor: String,
        /// Its encoding.
        encoding: refrain_formats::Encoding,
    },
    /// The device failed or has too little memory.
    #[error(transparent)]
    Array(#[from] refrain::Error),
}
