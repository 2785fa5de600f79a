//! Optional parts of a decode step.

/// Optional parts of a decode step, which cost nothing when off.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct StepExtras {
    /// Stores the log-probabilities of the tokens.
    pub logprobs: bool,
    /// Samples only allowed tokens.
    pub allowed: bool,
    /// Tokens of a draft that each sequence has room for: 0 in a step that samples only allowed tokens.
    pub draft_tokens: usize,
}

impl StepExtras {
    /// Combines both.
    pub fn union(self, other: StepExtras) -> StepExtras {
        StepExtras {
            logprobs: self.logprobs || other.logprobs,
            allowed: self.allowed || other.allowed,
            draft_tokens: self.draft_tokens.max(other.draft_tokens),
        }
    }

    /// Returns the outputs of a run for a sequence: a token, and another after each token of its draft.
    pub fn outputs_per_run(self) -> u64 {
        1 + self.draft_tokens as u64
    }
}
