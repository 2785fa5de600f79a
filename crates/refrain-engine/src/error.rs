/// An error of a model or an engine.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The checkpoint is incomplete or damaged.
    #[error(transparent)]
    Checkpoint(#[from] refrain_formats::Error),
    /// The weights could not be loaded onto the device.
    #[error(transparent)]
    Model(#[from] refrain_models::Error),
    /// The device failed.
    #[error(transparent)]
    Array(#[from] refrain::Error),
    /// The model's keys or values cannot be stored in this type.
    #[error(
        "keys or values of {dim} numbers a head cannot be stored as {cache_type}, which needs a multiple of 32; use f16"
    )]
    CacheType {
        /// The type.
        cache_type: refrain_models::CacheType,
        /// Numbers of a head.
        dim: usize,
    },
    /// There are more tokens than the context can hold.
    #[error("{tokens} tokens do not fit in a context of {context}; shorten the prompt or increase the context")]
    ContextFull {
        /// Tokens of the text.
        tokens: usize,
        /// Tokens that the context can hold.
        context: usize,
    },
    /// The context length is out of the model's range.
    #[error("a context of {requested} tokens is out of range: the model supports 1 to {limit}")]
    ContextRange {
        /// Requested tokens.
        requested: usize,
        /// The model's limit.
        limit: usize,
    },
    /// A token id is not in the vocabulary.
    #[error("token id {id} is out of range: the vocabulary has {vocabulary} tokens")]
    TokenRange {
        /// The id.
        id: u32,
        /// Vocabulary size.
        vocabulary: usize,
    },
    /// A snapshot does not belong to the model.
    #[error("the saved state does not fit: {0}")]
    Snapshot(String),
    /// A sampler setting is invalid.
    #[error(transparent)]
    Sampler(#[from] crate::InvalidSetting),
    /// There are more stop ids than the device supports.
    #[error(transparent)]
    Setting(#[from] refrain_lm::sample::TooManyStopIds),
    /// Two executors computed different results.
    #[error("replay and eager differ at token {token}: {difference}")]
    Differs {
        /// Tokens decoded before.
        token: usize,
        /// The first step that differs.
        difference: Box<refrain::Difference>,
    },
    /// The plan has no step of that name.
    #[error("no region {name:?} in the decode step; use a number from 0 to {last}, or a name such as {example}:0")]
    NoRegion {
        /// The requested name.
        name: String,
        /// The last step's number.
        last: usize,
        /// An existing name.
        example: String,
    },
    /// The engine has too many requests.
    #[error("{max} requests are already running or waiting; try again later")]
    Busy {
        /// Limit of running and waiting requests.
        max: usize,
    },
    /// A constraint allows no token.
    #[error("the text cannot continue within its grammar: {0}")]
    Constraint(String),
    /// An engine's failure, as reported to each of its requests.
    #[error("{0}")]
    Engine(String),
    /// The device or the host has too little memory for a request, even on its own.
    #[error("not enough memory for this request: {0}")]
    NoMemory(String),
    /// A panic.
    #[error("this is a bug: {0}")]
    Bug(String),
    /// The engine's device has failed earlier.
    #[error("the engine has stopped because its device failed; restart it")]
    EngineFailed,
    /// The system cannot create a thread.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
    /// The prompt is empty.
    #[error("the prompt is empty: give at least one token")]
    EmptyPrompt,
    /// The draft model cannot guess tokens of the model.
    #[error("this model cannot draft: {0}")]
    UnsuitableDraft(String),
    /// The model computed NaN or infinity.
    #[error(
        "the logits after position {position} contain NaN or infinity: the checkpoint is damaged, or its values overflow"
    )]
    NotANumber {
        /// The last token's position.
        position: usize,
    },
}

impl Error {
    /// Whether the device or the host ran out of memory. A retry with less memory in use may succeed.
    pub fn is_out_of_memory(&self) -> bool {
        match self.array() {
            Some(refrain::Error::Vulkan(error)) => error.is_out_of_memory(),
            _ => false,
        }
    }

    /// Whether the device or its driver failed.
    pub fn is_device_failure(&self) -> bool {
        matches!(self.array(), Some(refrain::Error::Vulkan(_)))
    }

    /// Returns the device's error, if that is the cause.
    pub fn array(&self) -> Option<&refrain::Error> {
        match self {
            Error::Array(error) | Error::Model(refrain_models::Error::Array(error)) => Some(error),
            _ => None,
        }
    }
}
