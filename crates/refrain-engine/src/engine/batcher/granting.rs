//! Pages of decoding requests: who gets more, and which of them the device still has to know.

use super::{Batcher, Runner};
use crate::engine::runner::NewPages;

impl<R: Runner> Batcher<R> {
    /// Gives decoding requests the pages for `runs` more runs; returns whether there were enough.
    pub(super) fn grant(&mut self, runs: usize) -> bool {
        for running in self.slots.iter_mut().flatten().filter(|running| running.decodes()) {
            let request = &running.request;
            let positions = (request.tokens.len() + running.ahead + runs).min(request.limit);
            while running.pages.len() < self.pool.pages_for(positions) {
                match self.pool.take() {
                    Some(page) => running.pages.push(page),
                    None => return false,
                }
            }
        }
        true
    }

    /// Returns the pages of the requests in `slots` that the device's page table lacks.
    pub(super) fn new_pages(&mut self, slots: impl Iterator<Item = usize>) -> NewPages {
        let mut all = vec![];
        for slot in slots {
            let running = self.slots[slot].as_mut().expect("admitted");
            let new = running.pages[running.pages_written..].to_vec();
            let at = slot * self.pages_each + running.pages_written;
            self.known_table[at..][..new.len()].copy_from_slice(&new);
            running.pages_written = running.pages.len();
            if !new.is_empty() {
                all.push((at, new));
            }
        }
        all
    }
}
