//! Speculation: guesses at the next tokens, which one step of the model verifies together.

mod ngram;
mod policy;
mod synthetic;

pub use ngram::NgramProposer;
pub use policy::{Acceptance, DraftPolicy};
pub use synthetic::SyntheticProposer;

/// Maximum tokens of a draft.
pub const MAX_DRAFTS: usize = 7;
/// Tokens of a draft that rows of verifying steps have room for.
pub const DRAFT_WIDTHS: [usize; 2] = [3, MAX_DRAFTS];
/// Maximum tokens of a verifying step, drafts included: beyond, computing takes longer than reading the weights.
pub const MAX_VERIFIED_TOKENS: usize = 64;

/// What guesses at the next tokens of texts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Speculation {
    /// Nothing: each step computes one token of a text.
    #[default]
    Off,
    /// Prompt lookup: what followed where the last tokens occurred before, in prompt or answer.
    Ngram,
    /// Nothing sensible: each token of a draft is accepted with this probability if those before it were, whatever is
    /// sampled. This measures speed with random weights. Texts are not those of the model.
    Synthetic {
        /// The probability, in percent.
        percent: u8,
    },
}

/// A guess at a text's next tokens.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Draft {
    /// The tokens.
    pub tokens: Vec<u32>,
    /// Number of first tokens that are accepted whatever is sampled: none, except to measure speed.
    pub forced: usize,
}

impl Draft {
    /// Drops all tokens but the first `length`.
    pub fn truncate(&mut self, length: usize) {
        self.tokens.truncate(length);
        self.forced = self.forced.min(length);
    }

    /// Whether the token at `index` is accepted, given the one that was sampled there.
    pub fn accepts(&self, index: usize, sampled: u32) -> bool {
        index < self.forced || self.tokens.get(index) == Some(&sampled)
    }
}

/// Guesses how texts continue. A text belongs to a slot until another begins there.
pub trait Proposer: Send {
    /// Begins a text with the tokens that are known.
    fn prefill(&mut self, slot: usize, tokens: &[u32]);

    /// Appends tokens that were generated, accepted ones of drafts included.
    fn commit(&mut self, slot: usize, tokens: &[u32]);

    /// Guesses up to `max` tokens that follow.
    fn propose(&mut self, slot: usize, max: usize) -> Draft;
}

/// Returns whether a step of so many rows may verify a draft of so many tokens in each.
pub fn is_allowed(rows: usize, draft_tokens: usize) -> bool {
    rows * (1 + draft_tokens) <= MAX_VERIFIED_TOKENS
}
