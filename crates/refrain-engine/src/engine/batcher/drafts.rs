//! Drafts: whether the next step verifies guesses at the next tokens of requests, and which.

use std::time::Duration;

use super::{Batcher, PAGE_SIZE, Runner, SlotId};
use crate::engine::row_count::rounded;
#[cfg(test)]
use crate::engine::speculation::DRAFT_WIDTHS;
use crate::engine::speculation::{Acceptance, Draft, DraftPolicy, MAX_DRAFTS, Proposer};
use crate::{Error, Model};

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

#[cfg(test)]
impl Speculator {
    /// Lets all drafts seem to pay, however long steps take on the machine of the test.
    pub fn eager(self) -> Speculator {
        self.timed(&[0], |_| Duration::from_secs(1000))
    }

    /// Lets drafts of `tokens` tokens seem to pay most, however long steps take.
    pub fn drafting(self, tokens: usize) -> Speculator {
        let [fast, plain, slow] = [1, 1_000_000_000, 1_000_000_000_000].map(Duration::from_secs);
        let widths = [&[0], &DRAFT_WIDTHS[..]].concat();
        self.timed(&widths, |width| match width {
            0 => plain,
            _ if width == tokens => fast,
            _ => slow,
        })
    }

    /// Lets steps with drafts of these widths, 0 for none, seem to have taken so long, often enough to count.
    fn timed(mut self, widths: &[usize], took: impl Fn(usize) -> Duration) -> Speculator {
        for rows in 1..=16 {
            for &width in widths {
                (0..16).for_each(|_| self.policy.measured((rows, width), took(width)));
            }
        }
        self
    }
}

/// What speculation keeps of a request.
#[derive(Default)]
pub(super) struct TextDrafts {
    pub acceptance: Acceptance,
    /// Number of its tokens that the proposer knows.
    known: usize,
}

/// The lengths of the drafts that are worth verifying.
#[derive(Default)]
struct PlannedDrafts {
    /// Tokens that the step verifies in each row, padding included; 0 if it verifies none.
    width: usize,
    /// How many tokens can be proposed in each slot.
    lengths: Vec<usize>,
}

/// The drafts of the next step.
#[derive(Default)]
pub(super) struct Drafts {
    /// See [`PlannedDrafts::width`].
    pub width: usize,
    by_slot: Vec<Draft>,
    /// How long proposing them took. What only the first drafts of texts take is left out.
    pub time: Duration,
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
        let mut planned = self.plan_drafts();
        if planned.width > 0 && !self.in_flight.is_empty() {
            let numbers = self
                .slots
                .iter()
                .map(|running| running.as_ref().map(|running| running.request.number));
            let numbers: Vec<Option<u64>> = numbers.collect();
            self.poll_all()?;
            let before = std::mem::replace(&mut planned, self.plan_drafts());
            self.note_lost_drafts(&numbers, &before, &planned);
        }
        Ok(self.propose(&planned))
    }

    /// Counts drafts as refused that the tokens in flight made void: the device waited for nothing.
    fn note_lost_drafts(&mut self, numbers: &[Option<u64>], before: &PlannedDrafts, now: &PlannedDrafts) {
        let Some(speculator) = &mut self.speculator else {
            return;
        };
        for (slot, running) in self.slots.iter_mut().enumerate() {
            if let Some(running) = running
                && numbers[slot] == Some(running.request.number)
                && before.lengths[slot] > 0
                && now.lengths.get(slot).is_none_or(|length| *length == 0)
            {
                speculator.policy.verified(&mut running.drafts.acceptance, false);
            }
        }
    }

    /// Decides how many tokens of drafts the next step verifies, if the known tokens are the last ones.
    fn plan_drafts(&mut self) -> PlannedDrafts {
        let decoding = || self.running().filter(|(_, running)| running.decodes());
        let is_restricted = decoding().any(|(_, running)| running.request.extras().allowed);
        let rows = self.runner.rows().len().max(rounded(decoding().count()));
        let Some(speculator) = self.speculator.as_mut().filter(|_| !is_restricted) else {
            return PlannedDrafts::default();
        };
        let mut lengths = vec![0; self.slots.len()];
        let mut requests = vec![];
        for (slot, running) in self.slots.iter_mut().enumerate() {
            let Some(running) = running.as_mut().filter(|running| running.decodes()) else {
                continue;
            };
            let tokens = &running.request.tokens;
            match std::mem::replace(&mut running.drafts.known, tokens.len()) {
                0 => speculator.proposer.prefill(slot, tokens, &running.request.options),
                known => speculator.proposer.commit(slot, &tokens[known..]),
            }
            // The last token of a text is sampled behind its draft.
            let left = running.request.limit.saturating_sub(tokens.len() + running.ahead + 1);
            let left = left.min(running.left_of_page(&self.pool) - 1);
            lengths[slot] = speculator.proposer.length(slot, left.min(MAX_DRAFTS));
            let rate = speculator.policy.rate(&running.drafts.acceptance);
            requests.push((rate, lengths[slot]));
        }
        let width = speculator.policy.choose(rows, &requests);
        for (length, running) in lengths.iter().zip(&mut self.slots) {
            if let Some(running) = running.as_mut().filter(|_| width == 0 && *length > 0) {
                running.drafts.acceptance.not_worth_it();
            }
        }
        PlannedDrafts { width, lengths }
    }

    /// Proposes drafts that continue the last tokens.
    fn propose(&mut self, planned: &PlannedDrafts) -> Drafts {
        let width = planned.width;
        let Some(speculator) = self.speculator.as_mut().filter(|_| width > 0) else {
            return Drafts::default();
        };
        let begun = self.runner.now();
        let mut by_slot = vec![Draft::default(); planned.lengths.len()];
        for (slot, length) in planned.lengths.iter().enumerate().filter(|(_, length)| **length > 0) {
            by_slot[slot] = speculator.proposer.propose(slot, width.min(*length));
        }
        let took = self.runner.now().saturating_duration_since(begun);
        let time = took.saturating_sub(speculator.proposer.take_setup_time());
        Drafts { width, by_slot, time }
    }

    /// Returns the model that drafts, if one does.
    pub fn draft_model(&self) -> Option<Model> {
        self.speculator.as_ref()?.proposer.model().cloned()
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

    /// Hands on what the model's own head drafted behind the last token of a request.
    ///
    /// # Errors
    /// If the device fails.
    pub(super) fn offer_drafts(&mut self, slot: usize, row: usize) -> Result<(), Error> {
        if let Some(speculator) = &mut self.speculator {
            let length = self.slots[slot].as_ref().expect("admitted").request.tokens.len();
            speculator.proposer.offer(slot, length, self.runner.drafted(row)?);
        }
        Ok(())
    }

    /// Notes whether a token of a request's draft was accepted.
    pub(super) fn verified(&mut self, slot: usize, index: usize, is_accepted: bool) {
        self.counted.accepted_tokens[index] += u64::from(is_accepted);
        let running = self.slots[slot].as_mut().expect("admitted");
        if let Some(speculator) = &mut self.speculator {
            speculator.policy.verified(&mut running.drafts.acceptance, is_accepted);
        }
    }
}
