//! Drafts: whether the next step verifies guesses at the next tokens of requests, and which.

use super::{Batcher, PAGE_SIZE, Runner, SlotId};
use crate::Error;
use crate::engine::row_count::rounded;
use crate::engine::speculation::{Acceptance, Draft, DraftPolicy, MAX_DRAFTS, Proposer};

/// What an engine that speculates keeps.
pub(super) struct Speculator {
    pub proposer: Box<dyn Proposer>,
    pub policy: DraftPolicy,
}

impl Speculator {
    /// Creates one that knows no text yet.
    pub fn new(proposer: Box<dyn Proposer>) -> Speculator {
        Speculator {
            proposer,
            policy: DraftPolicy::default(),
        }
    }
}

/// What speculation keeps of a request.
#[derive(Default)]
pub(super) struct TextDrafts {
    pub acceptance: Acceptance,
    /// Number of its tokens that the proposer knows.
    known: usize,
}

/// The drafts of the next step.
#[derive(Default)]
pub(super) struct Drafts {
    /// Tokens that the step verifies in each row, padding included; 0 if it verifies none.
    pub width: usize,
    by_slot: Vec<Draft>,
}

impl<R: Runner> Batcher<R> {
    /// Returns the drafts of the next step, if they are worth verifying. Nothing is in flight then: drafts continue the
    /// last token.
    ///
    /// # Errors
    /// If the device fails.
    pub(super) fn draft(&mut self) -> Result<Drafts, Error> {
        if self.speculator.is_none() {
            return Ok(Drafts::default());
        }
        // How many tokens a step in flight that verifies some will give is unknown.
        if self.runner.extras().draft_tokens > 0 {
            self.poll_all()?;
        }
        let mut drafts = self.propose();
        if drafts.width > 0 && !self.in_flight.is_empty() {
            let numbers = self
                .slots
                .iter()
                .map(|running| running.as_ref().map(|running| running.request.number));
            let numbers: Vec<Option<u64>> = numbers.collect();
            self.poll_all()?;
            let before = std::mem::replace(&mut drafts, self.propose());
            self.note_lost_drafts(&numbers, &before, &drafts);
        }
        Ok(drafts)
    }

    /// Counts drafts as refused that the tokens in flight made void: the device waited for nothing.
    fn note_lost_drafts(&mut self, numbers: &[Option<u64>], before: &Drafts, now: &Drafts) {
        for (slot, running) in self.slots.iter_mut().enumerate() {
            if let Some(running) = running
                && numbers[slot] == Some(running.request.number)
                && !before.by_slot[slot].tokens.is_empty()
                && now.by_slot.get(slot).is_none_or(|draft| draft.tokens.is_empty())
            {
                running.drafts.acceptance.add(false);
            }
        }
    }

    /// Proposes drafts that continue the tokens that are known.
    fn propose(&mut self) -> Drafts {
        let decoding = || self.running().filter(|(_, running)| running.decodes());
        let is_restricted = decoding().any(|(_, running)| running.request.extras().allowed);
        let rows = self.runner.rows().len().max(rounded(decoding().count()));
        let Some(speculator) = self.speculator.as_mut().filter(|_| !is_restricted) else {
            return Drafts::default();
        };
        let mut by_slot = vec![Draft::default(); self.slots.len()];
        let mut requests = vec![];
        for (slot, running) in self.slots.iter_mut().enumerate() {
            let Some(running) = running.as_mut().filter(|running| running.decodes()) else {
                continue;
            };
            let tokens = &running.request.tokens;
            match std::mem::replace(&mut running.drafts.known, tokens.len()) {
                0 => speculator.proposer.prefill(slot, tokens),
                known => speculator.proposer.commit(slot, &tokens[known..]),
            }
            // The last token of a text is sampled behind its draft.
            let left = running.request.limit.saturating_sub(tokens.len() + running.ahead + 1);
            let left = left.min(running.left_of_page(&self.pool) - 1);
            by_slot[slot] = speculator.proposer.propose(slot, left.min(MAX_DRAFTS));
            requests.push((running.drafts.acceptance.rate(), by_slot[slot].tokens.len()));
        }
        let width = speculator.policy.choose(rows, &requests);
        for (draft, running) in by_slot.iter_mut().zip(&mut self.slots) {
            if let Some(running) = running.as_mut().filter(|_| width == 0 && !draft.tokens.is_empty()) {
                running.drafts.acceptance.forget();
            }
            draft.truncate(width);
        }
        Drafts { width, by_slot }
    }

    /// Returns the draft of each row, as far as there are pages for its tokens: no request is preempted for drafts.
    pub(super) fn grant_drafts(&mut self, rows: &[Option<SlotId>], mut drafts: Drafts) -> Vec<Draft> {
        let draft_of = |slot_id: &Option<SlotId>| {
            let Some((slot, _)) = *slot_id else {
                return Draft::default();
            };
            let mut draft = std::mem::take(&mut drafts.by_slot[slot]);
            let running = self.slots[slot].as_mut().expect("admitted");
            let tokens = running.request.tokens.len();
            while running.pages.len() < self.pool.pages_for(tokens + draft.tokens.len()) {
                match self.pool.take() {
                    Some(page) => running.pages.push(page),
                    None => draft.truncate(running.pages.len() * PAGE_SIZE - tokens),
                }
            }
            draft
        };
        rows.iter().map(draft_of).collect()
    }

    /// Notes whether a token of a request's draft was accepted.
    pub(super) fn verified(&mut self, slot: usize, index: usize, is_accepted: bool) {
        self.counted.accepted_tokens[index] += u64::from(is_accepted);
        let running = self.slots[slot].as_mut().expect("admitted");
        running.drafts.acceptance.add(is_accepted);
    }
}
