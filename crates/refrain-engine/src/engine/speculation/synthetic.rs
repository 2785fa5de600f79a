//! Drafts that are accepted by chance, to measure speed with random weights.

use super::{Draft, Proposer};
use crate::GenerateOptions;

/// Proposes tokens without regard to the text. Each is accepted with the same probability if those before it were.
pub struct SyntheticProposer {
    percent: u32,
    /// The last token of each slot's text.
    last: Vec<u32>,
    random: u64,
}

impl SyntheticProposer {
    /// Creates one for `slots` slots, with the probability in percent.
    pub fn new(slots: usize, percent: u8) -> SyntheticProposer {
        SyntheticProposer {
            percent: percent.into(),
            last: vec![0; slots],
            random: 1,
        }
    }

    fn is_accepted(&mut self) -> bool {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        ((self.random >> 33) % 100) < u64::from(self.percent)
    }
}

impl Proposer for SyntheticProposer {
    fn prefill(&mut self, slot: usize, tokens: &[u32], _options: &GenerateOptions) {
        self.commit(slot, tokens);
    }

    fn commit(&mut self, slot: usize, tokens: &[u32]) {
        if let Some(last) = tokens.last() {
            self.last[slot] = *last;
        }
    }

    fn length(&mut self, _slot: usize, max: usize) -> usize {
        max
    }

    fn propose(&mut self, slot: usize, max: usize) -> Draft {
        let forced = (0..max).take_while(|_| self.is_accepted()).count();
        // Random weights often repeat a token, which must not be accepted by itself.
        let last = self.last[slot];
        let guess = if last > 0 { last - 1 } else { 1 };
        Draft {
            tokens: vec![guess; max],
            forced,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_accepted_with_the_given_probability() {
        for percent in [0, 50, 80, 100] {
            let mut proposer = SyntheticProposer::new(1, percent);
            let (mut verified, mut accepted) = (0, 0);
            for _ in 0..1000 {
                let draft = proposer.propose(0, 7);
                verified += (draft.forced + 1).min(draft.tokens.len());
                accepted += draft.forced;
            }
            let found = 100 * accepted / verified;
            assert!(found.abs_diff(percent.into()) <= 3, "{found} instead of {percent}");
        }
    }
}
