//! Forced tokens: where a constraint leaves no choice, the next tokens are computed like a piece of a prompt.

use super::{Batcher, Runner};
use crate::engine::request::EngineEvent;

impl<R: Runner> Batcher<R> {
    /// Continues a request with tokens that its constraint forces, unless sampling them one by one is as good. The model
    /// has run for its last token, and that run is not sampled from.
    pub(super) fn append_forced(&mut self, slot: usize, forced: &[u32]) {
        let others = self.running().filter(|(_, running)| running.decodes()).count() - 1;
        let running = self.slots[slot].as_mut().expect("admitted");
        let request = &running.request;
        // All others wait for the chunk, about as long as for a token of theirs.
        if self.deterministic || forced.len() <= 1 + others || request.top_logprobs.is_some() {
            return;
        }
        let positions = (request.tokens.len() + forced.len()).min(request.limit);
        let missing = self.pool.pages_for(positions).saturating_sub(running.pages.len());
        if missing > self.pool.available() {
            return;
        }
        let at = slot * self.pages_each + running.pages.len();
        let pages: Vec<u32> = (0..missing).map_while(|_| self.pool.take()).collect();
        self.known_table[at..][..pages.len()].copy_from_slice(&pages);
        running.pages.extend(pages);
        running.prefilled += 1;
        let slot_id = running.slot_id(slot);
        self.runner.leave(slot_id);
        let end: Option<EngineEvent> = forced.iter().find_map(|&token| self.push(slot, token, None));
        match end {
            Some(end) => self.end(slot, end),
            None => self.continue_restricted(slot),
        }
    }
}
