/// Why a model could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The checkpoint lacks something or is damaged.
    #[error(transparent)]
    Checkpoint(#[from] refrain_formats::Error),
    /// A tensor is stored in a way that no kernel reads.
    #[error(
        "tensor {tensor} is stored as {encoding}, which weights cannot be; convert the checkpoint to f16, q8_0 or q4_0"
    )]
    Encoding {
        /// The tensor's name.
        tensor: String,
        /// How it is stored.
        encoding: refrain_formats::Encoding,
    },
    /// The device failed or has too little memory.
    #[error(transparent)]
    Array(#[from] refrain::Error),
}
