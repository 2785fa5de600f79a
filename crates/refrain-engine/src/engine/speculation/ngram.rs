//! Prompt lookup: drafts are the tokens that followed where the last ones occurred before.

use std::collections::HashMap;

use super::{Draft, Proposer};
use crate::GenerateOptions;

/// Number of last tokens that must have occurred before.
const MIN_MATCH: usize = 3;
/// Longest match that is distinguished from longer ones.
const MAX_MATCH: usize = 32;
/// Earlier occurrences that are compared, the latest first.
const MAX_OCCURRENCES: usize = 16;

/// Proposes tokens by looking up the last ones in each slot's text.
pub struct NgramProposer {
    slots: Vec<NgramIndex>,
}

/// A text, and where each of its n-grams ends.
#[derive(Default)]
struct NgramIndex {
    tokens: Vec<u32>,
    /// Number of tokens up to the end of an n-gram's last occurrence.
    last: HashMap<[u32; MIN_MATCH], u32>,
    /// For each token, the same for the occurrence before the one that ends with it; 0 if there is none.
    before: Vec<u32>,
}

impl NgramProposer {
    /// Creates one for `slots` slots.
    pub fn new(slots: usize) -> NgramProposer {
        NgramProposer {
            slots: (0..slots).map(|_| NgramIndex::default()).collect(),
        }
    }
}

impl Proposer for NgramProposer {
    fn prefill(&mut self, slot: usize, tokens: &[u32], _options: &GenerateOptions) {
        self.slots[slot] = NgramIndex::default();
        self.commit(slot, tokens);
    }

    fn commit(&mut self, slot: usize, tokens: &[u32]) {
        tokens.iter().for_each(|token| self.slots[slot].push(*token));
    }

    fn propose(&mut self, slot: usize, max: usize) -> Draft {
        Draft {
            tokens: self.slots[slot].propose(max),
            forced: 0,
        }
    }
}

impl NgramIndex {
    fn push(&mut self, token: u32) {
        self.tokens.push(token);
        let end = self.tokens.len() as u32;
        let before = match self.tokens.last_chunk::<MIN_MATCH>() {
            Some(ngram) => self.last.insert(*ngram, end).unwrap_or(0),
            None => 0,
        };
        self.before.push(before);
    }

    /// Returns the number of equal tokens before two ends.
    fn match_length(&self, end: usize) -> usize {
        let both = self.tokens[..end].iter().rev().zip(self.tokens.iter().rev());
        both.take(MAX_MATCH).take_while(|(a, b)| a == b).count()
    }

    fn propose(&self, max: usize) -> Vec<u32> {
        let (mut best, mut longest) = (0, 0);
        let mut end = self.before.last().map_or(0, |end| *end as usize);
        for _ in 0..MAX_OCCURRENCES {
            if end == 0 || longest == MAX_MATCH {
                break;
            }
            let length = self.match_length(end);
            // Of equal matches, the latest is the most likely to go on.
            if length > longest {
                (best, longest) = (end, length);
            }
            end = self.before[end - 1] as usize;
        }
        // Where the tokens that followed run out, the text is periodic.
        let period = self.tokens.len() - best;
        (0..longest.min(max))
            .map(|at| self.tokens[best + at % period])
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proposed(tokens: &[u32], max: usize) -> Vec<u32> {
        let mut proposer = NgramProposer::new(2);
        let options = GenerateOptions::default();
        proposer.prefill(1, &[7; 9], &options);
        proposer.prefill(1, &tokens[..tokens.len() / 2], &options);
        proposer.commit(1, &tokens[tokens.len() / 2..]);
        proposer.propose(1, max).tokens
    }

    #[test]
    fn proposes_what_followed_the_longest_match() {
        assert_eq!(proposed(&[1, 2, 3, 4, 5, 6, 1, 2, 3], 7), [4, 5, 6]);
        assert_eq!(proposed(&[1, 2, 3, 4, 5, 6, 1, 2, 3], 2), [4, 5]);
        let twice = [9, 1, 2, 3, 4, 8, 1, 2, 3, 5];
        assert_eq!(proposed(&[&twice[..], &[9, 1, 2, 3]].concat(), 7), [4, 8, 1, 2]);
        assert_eq!(proposed(&[&twice[..], &[8, 1, 2, 3]].concat(), 7), [5, 8, 1, 2]);
        let latest = [&twice[..], &[6, 1, 2, 3]].concat();
        assert_eq!(proposed(&latest, 7), [5, 6, 1], "the latest of equal matches");
    }

    #[test]
    fn proposes_nothing_without_a_match() {
        for tokens in [&[][..], &[1], &[1, 2, 3], &[1, 2, 1, 2], &[1, 2, 3, 4, 2, 3]] {
            assert!(proposed(tokens, 7).is_empty(), "{tokens:?}");
        }
        assert!(proposed(&[1, 2, 3, 4, 1, 2, 3], 0).is_empty());
    }

    #[test]
    fn continues_periods() {
        assert_eq!(proposed(&[5; 8], 7), [5; 7]);
        assert_eq!(proposed(&[1, 2, 1, 2, 1, 2, 1], 5), [2, 1, 2, 1, 2]);
    }

    /// At least nine of ten drafts are accepted while a text copies its prompt.
    #[test]
    fn copies_are_predicted() {
        let prompt: Vec<u32> = (0..400).map(|at: u32| at.wrapping_mul(2_654_435_761) >> 24).collect();
        let mut proposer = NgramProposer::new(1);
        proposer.prefill(0, &prompt, &GenerateOptions::default());
        let (mut drafts, mut accepted, mut at) = (0, 0, 100);
        proposer.commit(0, &prompt[at..at + MIN_MATCH]);
        at += MIN_MATCH;
        while at < 300 {
            let proposed = proposer.propose(0, 7).tokens;
            let right = proposed.iter().zip(&prompt[at..]).take_while(|(a, b)| a == b).count();
            (drafts, accepted) = (drafts + proposed.len(), accepted + right);
            proposer.commit(0, &prompt[at..=at + right]);
            at += right + 1;
        }
        assert!(drafts > 100 && 10 * accepted >= 9 * drafts, "{accepted} of {drafts}");
    }
}
