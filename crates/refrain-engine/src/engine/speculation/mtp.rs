//! Drafts of the model's own multi-token prediction head: each step that verifies a draft makes the next one.

use super::{Draft, Proposer};
use crate::GenerateOptions;

/// Proposes what the head drafted in the last step.
pub struct MtpProposer {
    texts: Vec<Text>,
}

/// The text in a slot.
#[derive(Clone, Default)]
struct Text {
    /// Number of its tokens.
    length: usize,
    /// What follows a text of so many tokens.
    drafted: (usize, Vec<u32>),
}

impl MtpProposer {
    /// Creates one for `slots` slots.
    pub fn new(slots: usize) -> MtpProposer {
        MtpProposer {
            texts: vec![Text::default(); slots],
        }
    }
}

impl Proposer for MtpProposer {
    fn prefill(&mut self, slot: usize, tokens: &[u32], _options: &GenerateOptions) {
        self.texts[slot] = Text {
            length: tokens.len(),
            ..Text::default()
        };
    }

    fn commit(&mut self, slot: usize, tokens: &[u32]) {
        self.texts[slot].length += tokens.len();
    }

    fn offer(&mut self, slot: usize, length: usize, tokens: Vec<u32>) {
        self.texts[slot].drafted = (length, tokens);
    }

    /// The first step has nothing to verify, but drafts for the next one.
    fn length(&mut self, _slot: usize, max: usize) -> usize {
        max
    }

    fn propose(&mut self, slot: usize, max: usize) -> Draft {
        let text = &mut self.texts[slot];
        let (length, mut tokens) = std::mem::take(&mut text.drafted);
        tokens.truncate(if length == text.length { max } else { 0 });
        Draft { tokens, forced: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draft_belongs_to_a_text_of_one_length() {
        let mut proposer = MtpProposer::new(2);
        proposer.prefill(1, &[5, 6, 7], &GenerateOptions::default());
        assert_eq!((proposer.length(1, 3), proposer.propose(1, 3)), (3, Draft::default()));
        proposer.offer(1, 5, vec![1, 2, 3]);
        proposer.commit(1, &[8, 9]);
        assert_eq!(proposer.propose(1, 2).tokens, [1, 2]);
        proposer.offer(1, 6, vec![1, 2, 3]);
        proposer.commit(1, &[8, 9]);
        assert_eq!(proposer.propose(1, 3), Draft::default(), "another token came between");
        proposer.offer(1, 3, vec![1]);
        proposer.prefill(1, &[5, 6, 7], &GenerateOptions::default());
        assert_eq!(proposer.propose(1, 3), Draft::default(), "another text");
    }
}
