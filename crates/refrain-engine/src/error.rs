/// What can go wrong between a checkpoint and its text.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The checkpoint lacks something or is damaged.
    #[error(transparent)]
    Checkpoint(#[from] refrain_formats::Error),
    /// The weights could not be brought onto the device.
    #[error(transparent)]
    Model(#[from] refrain_models::Error),
    /// The device failed.
    #[error(transparent)]
    Array(#[from] refrain::Error),
    /// More tokens than the session has room for.
    #[error("{tokens} tokens do not fit in a context of {context}; shorten the prompt or give a larger --ctx")]
    ContextFull {
        /// Tokens that the session would hold.
        tokens: usize,
        /// Tokens that it can hold.
        context: usize,
    },
    /// A context that the model cannot have.
    #[error("a context of {asked} tokens is out of range: the model was made for 1 to {limit}")]
    ContextRange {
        /// Tokens asked for.
        asked: usize,
        /// The model's limit.
        limit: usize,
    },
    /// A token id beyond the vocabulary.
    #[error("token id {id} is out of range: the vocabulary has {vocabulary} tokens")]
    TokenRange {
        /// The id.
        id: u32,
        /// Size of the vocabulary.
        vocabulary: usize,
    },
    /// Nothing to compute.
    #[error("the prompt is empty: give at least one token")]
    EmptyPrompt,
    /// The model computed something that is no number.
    #[error(
        "the logits after position {position} are not all numbers: the checkpoint is damaged, or its values overflow"
    )]
    NotANumber {
        /// The last token's position.
        position: usize,
    },
}
