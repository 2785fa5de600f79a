//! Recurrent states of texts: while a text is decoded they are saved at the end of each page, so that a prompt that
//! continues the text computes only what is new.
//!
//! A text keeps one checkpoint, which moves along. States are saved when the runs up to them are submitted, and can be
//! found once the tokens are known. A step with drafts goes no further than to the end of a page. Whether it reached that
//! is known once it is over, so states are saved then.

use super::{Batcher, PAGE_SIZE, Runner, Running};
use crate::Error;
use crate::engine::pages::{NodeId, PagePool};

/// The checkpoints of a text.
#[derive(Default)]
pub(super) struct TextStates {
    /// A checkpoint of the states after so many tokens, some of which are still being sampled.
    pending: Option<(usize, u32)>,
    /// The page after which states were saved last.
    saved: Option<NodeId>,
}

impl Running {
    /// Returns the number of tokens that are computed once all submitted runs are over.
    fn computed_ahead(&self) -> usize {
        self.prefilled + self.ahead
    }

    /// Returns how many tokens may be computed before states are saved where a page ends: at least one.
    pub(super) fn left_of_page(&self, pool: &PagePool) -> usize {
        if pool.saves_states() {
            PAGE_SIZE - self.computed_ahead() % PAGE_SIZE
        } else {
            usize::MAX
        }
    }
}

impl<R: Runner> Batcher<R> {
    /// Returns how many runs may be submitted at once, so that states can be saved where pages end.
    pub(super) fn runs_to_page_end(&self) -> usize {
        let decoding = self.running().filter(|(_, running)| running.decodes());
        let left = decoding.map(|(_, running)| running.left_of_page(&self.pool));
        left.min().unwrap_or(usize::MAX)
    }

    /// Saves the states of the texts whose submitted runs end with a page.
    ///
    /// # Errors
    /// If the device fails.
    pub(super) fn save_text_states(&mut self) -> Result<(), Error> {
        if !self.pool.saves_states() {
            return Ok(());
        }
        for slot in 0..self.slots.len() {
            if self.slots[slot].as_ref().is_some_and(|running| running.ahead > 0) {
                self.save_states_of(slot)?;
            }
        }
        Ok(())
    }

    /// Saves and caches the states of a text that a step with drafts took to the end of a page.
    ///
    /// # Errors
    /// If the device fails.
    pub(super) fn save_verified_states(&mut self, slot: usize) -> Result<(), Error> {
        if self.pool.saves_states() {
            self.save_states_of(slot)?;
            self.cache_text_states(slot);
        }
        Ok(())
    }

    /// Saves the states of a text if its submitted runs end with a page.
    fn save_states_of(&mut self, slot: usize) -> Result<(), Error> {
        let running = self.slots[slot].as_mut().expect("admitted");
        let computed = running.computed_ahead();
        let is_wanted = computed.is_multiple_of(PAGE_SIZE) && computed < running.request.limit;
        if !is_wanted || running.dropped > 0 || running.text_states.pending.is_some() {
            return Ok(());
        }
        if let Some(checkpoint) = self.pool.reserve_checkpoint() {
            if let Err(error) = self.runner.save_states(slot, checkpoint) {
                self.pool.return_checkpoint(checkpoint);
                return Err(error);
            }
            running.text_states.pending = Some((computed, checkpoint));
        }
        Ok(())
    }

    /// Caches the states that were saved for a text, if the tokens before them are known.
    pub(super) fn cache_text_states(&mut self, slot: usize) {
        let running = self.slots[slot].as_mut().expect("admitted");
        let Some((computed, checkpoint)) = running.text_states.pending else {
            return;
        };
        if running.prefilled < computed {
            return;
        }
        running.text_states.pending = None;
        let tokens = &running.request.tokens[..computed];
        running.node = self.pool.insert(tokens, &running.pages, running.node);
        if let Some(node) = running.node {
            let before = running.text_states.saved.replace(node);
            self.pool.move_checkpoint(before, node, checkpoint);
        }
    }

    /// Releases the checkpoint of a request that leaves before the tokens are known.
    pub(super) fn drop_text_states(&mut self, running: &Running) {
        if let Some((_, checkpoint)) = running.text_states.pending {
            self.pool.return_checkpoint(checkpoint);
        }
    }
}
