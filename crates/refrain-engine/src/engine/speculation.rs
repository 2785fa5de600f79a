//! Speculation: guesses at the next tokens, which one step of the model verifies together.

mod draft_model;
mod mtp;
mod ngram;
mod policy;
mod synthetic;

use std::time::Duration;

use draft_model::ModelProposer;
pub use draft_model::{draft_memory, draft_obstacle};
use mtp::MtpProposer;
use ngram::NgramProposer;
pub use policy::{Acceptance, DraftPolicy};
use synthetic::SyntheticProposer;

use super::EngineOptions;
use crate::{GenerateOptions, Model};

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
    /// A smaller model of the same vocabulary, [`EngineOptions::draft`], which samples as the text is sampled.
    Model,
    /// The multi-token prediction head of the model itself, which was loaded with it
    /// ([`LoadOptions::mtp_head`](crate::LoadOptions::mtp_head)). Nothing if it has none.
    Mtp,
    /// Nothing sensible: each token of a draft is accepted with this probability if those before it were, whatever is
    /// sampled. This measures speed with random weights. Texts are not those of the model. If the model was loaded with a
    /// multi-token prediction head, it drafts in vain, so that its time counts.
    Synthetic {
        /// The probability, in percent.
        percent: u8,
    },
}

impl Speculation {
    /// Whether a multi-token prediction head drafts, if the model has one.
    pub fn uses_mtp_head(self) -> bool {
        matches!(self, Speculation::Mtp | Speculation::Synthetic { .. })
    }
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
    /// Begins a text with the tokens that are known, which is sampled with these options.
    fn prefill(&mut self, slot: usize, tokens: &[u32], options: &GenerateOptions);

    /// Appends tokens that were generated, accepted ones of drafts included.
    fn commit(&mut self, slot: usize, tokens: &[u32]);

    /// Takes a guess at what follows a text of `length` tokens, which the model itself made.
    fn offer(&mut self, _slot: usize, _length: usize, _tokens: Vec<u32>) {}

    /// Returns how many tokens [`Proposer::propose`] would guess, at most `max`. It may guess fewer. This costs little, so
    /// that nothing is guessed before it is known to pay.
    fn length(&mut self, slot: usize, max: usize) -> usize {
        self.propose(slot, max).tokens.len()
    }

    /// Guesses up to `max` tokens that follow.
    fn propose(&mut self, slot: usize, max: usize) -> Draft;

    /// Returns the time since the last call that only the first drafts of texts take, such as for their prompts.
    fn take_setup_time(&mut self) -> Duration {
        Duration::ZERO
    }

    /// Returns the model that guesses, if one does.
    fn model(&self) -> Option<&Model> {
        None
    }
}

/// Creates what guesses the tokens of an engine's texts. `vocabulary` is that of the model that verifies. Returns `None`
/// if nothing does.
pub fn new_proposer(options: &EngineOptions, vocabulary: usize) -> Option<Box<dyn Proposer>> {
    let slots = options.streams.max(1);
    match options.speculation {
        Speculation::Off => None,
        Speculation::Ngram => Some(Box::new(NgramProposer::new(slots))),
        Speculation::Model => {
            let draft = options.draft.clone()?;
            Some(Box::new(ModelProposer::new(draft, options.context, slots, vocabulary)))
        }
        Speculation::Mtp => Some(Box::new(MtpProposer::new(slots))),
        Speculation::Synthetic { percent } => Some(Box::new(SyntheticProposer::new(slots, percent))),
    }
}

/// Returns whether a step of so many rows may verify a draft of so many tokens in each.
pub fn is_allowed(rows: usize, draft_tokens: usize) -> bool {
    rows * (1 + draft_tokens) <= MAX_VERIFIED_TOKENS
}
