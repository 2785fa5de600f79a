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
    #[error("{tokens} tokens do not fit in a context of {context}; shorten the prompt or make the context longer")]
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
    /// A snapshot that does not belong to the session.
    #[error("the saved state does not fit: {0}")]
    Snapshot(String),
    /// A setting of the sampler that makes no sense.
    #[error(transparent)]
    Sampler(#[from] crate::InvalidSetting),
    /// Settings that no device can follow.
    #[error(transparent)]
    Setting(#[from] refrain_lm::sample::TooManyStopIds),
    /// Two executors computed different things.
    #[error("replay and eager differ at token {token}: {difference}")]
    Differs {
        /// Tokens decoded before.
        token: usize,
        /// The first step that differs.
        difference: Box<refrain::Difference>,
    },
    /// No step of the plan has that name.
    #[error(
        "there is no region {name:?} in the decode step; regions are numbers from 0 to {last}, or names such as {example}:0"
    )]
    NoRegion {
        /// What was asked for.
        name: String,
        /// The last step's number.
        last: usize,
        /// A name that there is.
        example: String,
    },
    /// A logit bias of another length than the vocabulary.
    #[error("{found} values are no bias of the logits: the vocabulary has {vocabulary} tokens")]
    BiasLength {
        /// Values given.
        found: usize,
        /// Size of the vocabulary.
        vocabulary: usize,
    },
    /// Logits of a decode step that never ran.
    #[error("nothing was decoded yet")]
    NothingDecoded,
    /// More requests than an engine takes.
    #[error("{most} requests are running or waiting already; try again later")]
    Busy {
        /// Requests that may be under way.
        most: usize,
    },
    /// A text that no token can follow as its constraint asks.
    #[error("the text cannot go on as its grammar asks: {0}")]
    Constraint(String),
    /// What an engine failed of, told to each of its requests.
    #[error("{0}")]
    Engine(String),
    /// A request of an engine for which the device or the host has no memory, even alone.
    #[error("there is no memory for this request: {0}")]
    NoMemory(String),
    /// A panic.
    #[error("this is a bug: {0}")]
    Bug(String),
    /// An engine whose device failed earlier.
    #[error("the engine has ended, since its device failed; start it again")]
    EngineFailed,
    /// The system gives no thread.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
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

impl Error {
    /// Whether memory ran out, of the device or the host: with less of it in use it may go.
    pub fn is_out_of_memory(&self) -> bool {
        match self.array() {
            Some(refrain::Error::Vulkan(error)) => error.is_out_of_memory(),
            _ => false,
        }
    }

    /// What failed on the device, if that is what went wrong.
    pub fn array(&self) -> Option<&refrain::Error> {
        match self {
            Error::Array(error) | Error::Model(refrain_models::Error::Array(error)) => Some(error),
            _ => None,
        }
    }
}
