//! Admission: which waiting request gets a slot and pages next.
//!
//! A request is admitted if the pages of its prompt are available, and enough are left for the tokens that it and the
//! running requests are expected to generate. A request waits while another one computes a prefix that it can share.
//! If both have the same prompt, it is forked from the other: nothing of its prompt is computed again. What else of a page
//! is shared is copied.

use std::sync::atomic::Ordering;

use super::drafts::TextDrafts;
use super::text_states::TextStates;
use super::{Batcher, PAGE_SIZE, Runner, Running, Waiting};
use crate::Error;
use crate::engine::pages::CachedPrefix;

impl<R: Runner> Batcher<R> {
    /// Gives waiting requests slots and the pages of their prompts. Clients take turns.
    ///
    /// # Errors
    /// If the device fails.
    pub(super) fn admit(&mut self) -> Result<(), Error> {
        while let Some(slot) = self.slots.iter().position(Option::is_none) {
            let running: Vec<u64> = self.running().map(|(_, running)| running.request.client).collect();
            if running.len() >= self.backpressure.streams(self.slots.len()) {
                return Ok(());
            }
            let mut candidates = vec![];
            for index in 0..self.queue.len() {
                if !self.awaits_prefix(index) && !self.awaits_stored(index)? {
                    candidates.push((index, self.queue[index].client));
                }
            }
            let Some(index) = self.fair_queue.next(candidates.into_iter(), &running) else {
                return Ok(());
            };
            if !self.admit_into(slot, index)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Admits the waiting request at `index` if there are pages for it; returns whether there are.
    fn admit_into(&mut self, slot: usize, index: usize) -> Result<bool, Error> {
        let request = &self.queue[index];
        let attempt = Some((request.number, self.pool.version()));
        if self.refused == attempt {
            return Ok(false);
        }
        let (tokens, reusable) = (request.tokens.len(), request.reusable());
        // The last token is computed for its logits even if it is known.
        let mut prefix = self.pool.lookup(&request.tokens[..reusable]);
        let known = prefix.pages.len();
        let forked = self.fork_source(&request.tokens[..reusable], known);
        // A deterministic engine never preempts: a request has all its pages from the start.
        let positions = if self.deterministic { request.limit } else { tokens };
        let needed = self.pool.pages_for(positions) - known;
        if forked.is_some() || !self.has_pages(request, known, needed) {
            // The page may be one of those that are needed.
            self.release_part(&mut prefix);
        }
        if !self.has_pages(&self.queue[index], known, needed) {
            self.pool.give_back(&prefix.pages);
            self.refused = Some((self.queue[index].number, self.pool.version()));
            return Ok(false);
        }
        let mut pages = std::mem::take(&mut prefix.pages);
        pages.extend((0..needed).map_while(|_| self.pool.take()));
        debug_assert_eq!(pages.len(), known + needed, "these pages are available");
        let copied = self.copy_prefix(slot, &prefix, forked, (known, reusable), pages[known]);
        self.release_part(&mut prefix);
        let cached = match copied {
            Ok(cached) => cached,
            Err(error) => {
                self.pool.give_back(&pages);
                return Err(error);
            }
        };
        let mut request = self.queue.remove(index).expect("a waiting request");
        // A preempted request is admitted again, but its prompt counts once.
        if let Some(cached_tokens) = request.cached_tokens.take() {
            cached_tokens.store(cached, Ordering::Relaxed);
            self.counted.cached_tokens += cached as u64;
            self.counted.prompt_tokens += tokens as u64;
        }
        let clients = self.running().map(|(_, running)| running.request.client);
        let present: Vec<u64> = self.queue.iter().map(|request| request.client).chain(clients).collect();
        self.fair_queue.take(request.client, &present);
        if let Some(constraint) = &mut request.constraint {
            constraint.compute_mask(&mut self.mask_threads);
        }
        let row = slot * self.pages_each;
        self.known_table[row..][..pages.len()].copy_from_slice(&pages);
        self.slots[slot] = Some(Running {
            request,
            pages,
            prefilled: cached,
            save_states_at: [prefix.length, (tokens - 1) / PAGE_SIZE]
                .map(|pages| pages * PAGE_SIZE)
                .into(),
            node: None,
            text_states: TextStates::default(),
            drafts: TextDrafts::default(),
            prompt: tokens,
            cached,
            admitted: self.runner.now(),
            ahead: 0,
            dropped: 0,
            pages_written: 0,
        });
        Ok(true)
    }

    /// Copies what a request in `slot` can go on after into its page `own` and its states: what `forked` has computed, or the
    /// beginning of a page, or the states behind the `known` pages. Returns how many of its `needed` tokens are computed.
    fn copy_prefix(
        &mut self,
        slot: usize,
        prefix: &CachedPrefix,
        forked: Option<(usize, u32)>,
        (known, needed): (usize, usize),
        own: u32,
    ) -> Result<usize, Error> {
        let forked = forked.map(|(from, page)| (from, page, needed));
        let part = prefix
            .part
            .map(|(page, shared)| (slot, page, known * PAGE_SIZE + shared));
        if let Some((from, page, computed)) = forked.or(part) {
            match self.runner.fork([page, own], [from, slot]) {
                // It is computed instead.
                Err(error) if error.is_out_of_memory() => {}
                copied => return copied.map(|()| computed),
            }
        }
        if let Some(checkpoint) = prefix.checkpoint {
            self.runner.restore_states(slot, checkpoint)?;
        }
        Ok(known * PAGE_SIZE)
    }

    /// Whether there are pages for a request of whose tokens `known` pages are cached, and `needed` are not.
    fn has_pages(&self, request: &Waiting, known: usize, needed: usize) -> bool {
        let available = self.pool.available();
        let expected = needed.max(self.expected_pages(request) - known) + self.reserved_pages();
        expected <= available || self.running().next().is_none() && needed <= available
    }

    fn release_part(&mut self, prefix: &mut CachedPrefix) {
        if let Some((page, _)) = prefix.part.take() {
            self.pool.give_back(&[page]);
        }
    }

    /// Returns the slot of a request that has computed these tokens, and its page of those that fill no page. `known` is the
    /// number of their full pages that are cached.
    fn fork_source(&self, needed: &[u32], known: usize) -> Option<(usize, u32)> {
        if !self.pool.caches_prefixes() || needed.len() / PAGE_SIZE != known || needed.len().is_multiple_of(PAGE_SIZE) {
            return None;
        }
        let has_computed = |running: &Running| {
            running.prefilled >= needed.len()
                && running.request.tokens.starts_with(needed)
                // Its states must not have gone further.
                && (!self.runner.is_recurrent() || running.prefilled + running.ahead == needed.len())
        };
        let mut sources = self.running().filter(|(_, running)| has_computed(running));
        sources.next().map(|(slot, running)| (slot, running.pages[known]))
    }

    /// Returns how many pages a request is expected to have at its end.
    fn expected_pages(&self, request: &Waiting) -> usize {
        let tokens = request.tokens.len();
        let left = request.limit.saturating_sub(tokens);
        let growth = if request.embeds || left == 0 {
            0
        } else {
            self.growth.expected(left)
        };
        self.pool.pages_for(tokens + growth)
    }

    /// Returns how many pages running requests are expected to need beyond those they have.
    pub(super) fn reserved_pages(&self) -> usize {
        self.running()
            .map(|(_, running)| {
                self.expected_pages(&running.request)
                    .saturating_sub(running.pages.len())
            })
            .sum()
    }

    /// Whether a running request is computing a prefix that the waiting request at `index` can share. If the model has
    /// recurrent states, they are saved where the two diverge.
    fn awaits_prefix(&mut self, index: usize) -> bool {
        if !self.pool.caches_prefixes() {
            return false;
        }
        let request = &self.queue[index];
        let computes = |running: &Running, number: u64, until: usize| {
            running.request.number == number && running.prefilled < until
        };
        if let Some((number, until)) = request.awaited
            && self.running().any(|(_, running)| computes(running, number, until))
        {
            return true;
        }
        // The last of these is not needed.
        let (tokens, is_recurrent) = (&request.tokens[..=request.reusable()], self.runner.is_recurrent());
        let shared = |running: &Running| match &running.request.tokens {
            // It will be forked.
            others if others == tokens || !is_recurrent && others.starts_with(tokens) => tokens.len() - 1,
            others => shared_prefix(tokens, others),
        };
        let longest = self
            .running()
            .filter(|(_, running)| !running.decodes())
            .map(|(slot, running)| (shared(running), slot))
            .max_by_key(|(shared, _)| *shared);
        let awaited = longest.filter(|&(shared, slot)| {
            let running = self.slots[slot].as_ref().expect("running");
            running.prefilled < shared
        });
        self.queue[index].awaited = awaited.map(|(shared, slot)| {
            let running = self.slots[slot].as_mut().expect("running");
            if !running.save_states_at.contains(&shared) {
                running.save_states_at.push(shared);
            }
            (running.request.number, shared)
        });
        awaited.is_some()
    }
}

/// Returns how many tokens of full pages two requests share and both compute before their last tokens.
fn shared_prefix(tokens: &[u32], others: &[u32]) -> usize {
    let both = tokens[..tokens.len() - 1]
        .chunks_exact(PAGE_SIZE)
        .zip(others[..others.len() - 1].chunks_exact(PAGE_SIZE));
    both.take_while(|(page, other)| page == other).count() * PAGE_SIZE
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::super::test_support::{TestRequest, ask_with, batcher_with, model};

    fn numbered(first: u32, length: u32) -> Vec<u32> {
        (0..length).map(|at| (first + 7 * at) % 200 + 3).collect()
    }

    #[test]
    fn a_waiting_request_evicts_no_cached_prefix() {
        let model = model();
        let mut batcher = batcher_with(&model, 3, 512);
        let cached = numbered(1, 130);
        let _first = ask_with(&mut batcher, 0, cached.clone(), 1);
        while !batcher.is_idle() {
            batcher.step().expect("runs");
        }
        // Six of eight pages, and a request that needs four.
        let running = [(1, 240, 16), (2, 100, 28)].map(|(number, length, tokens)| {
            ask_with(&mut batcher, number, numbered(10 * number as u32, length), tokens)
        });
        let waiting = ask_with(&mut batcher, 3, numbered(90, 220), 20);
        for step in 0..10 {
            batcher.step().expect("runs");
            assert_eq!((batcher.load().running, batcher.load().waiting), (2, 1), "step {step}");
            let prefix = batcher.pool.lookup(&cached);
            assert_eq!(prefix.pages.len(), 2, "step {step}");
            batcher.pool.give_back(&prefix.pages);
        }
        while !batcher.is_idle() {
            batcher.step().expect("runs");
        }
        let counts = running.map(|events| events.try_iter().count());
        assert_eq!(
            (counts, waiting.try_iter().count()),
            ([17, 29], 21),
            "tokens, and an end each"
        );
    }

    #[test]
    fn texts_that_reach_their_limits_are_not_preempted() {
        if !refrain_testing::drawn(8) {
            return;
        }
        let model = model();
        // Three pages each: 16 pages are two thirds of those of eight requests.
        let mut batcher = batcher_with(&model, 8, 16 * 64);
        let requests: Vec<_> = (0..40)
            .map(|number| ask_with(&mut batcher, number, numbered(number as u32, 40), 100))
            .collect();
        let mut most = 0;
        while !batcher.is_idle() {
            batcher.step().expect("runs");
            most = most.max(batcher.load().running);
        }
        assert!(requests.iter().all(|events| events.try_iter().count() == 101));
        assert_eq!((batcher.load().preemptions, most), (0, 5), "{:?}", batcher.load());
    }

    /// Stop strings are found outside of the engine, which sees that nobody wants more.
    #[test]
    fn cancelled_texts_count_as_short() {
        let model = model();
        let mut batcher = batcher_with(&model, 8, 16 * 64);
        for number in 0..60 {
            let request = TestRequest {
                number,
                prompt: numbered(number as u32, 40),
                tokens: 100,
                ..TestRequest::default()
            };
            let (events, cancelled) = request.submit(&mut batcher);
            while events.try_recv().is_err() {
                batcher.step().expect("runs");
            }
            cancelled.store(true, Ordering::Relaxed);
            while !batcher.is_idle() {
                batcher.step().expect("runs");
            }
        }
        let _requests: Vec<_> = (0..8)
            .map(|number| ask_with(&mut batcher, number, numbered(number as u32, 40), 100))
            .collect();
        batcher.step().expect("runs");
        assert_eq!(batcher.load().running, 8);
    }

    #[test]
    fn short_texts_raise_the_number_of_running_requests() {
        let model = model();
        let mut batcher = batcher_with(&model, 8, 16 * 64);
        (0..60).for_each(|_| batcher.growth.ended(1, 100));
        let _requests: Vec<_> = (0..8)
            .map(|number| ask_with(&mut batcher, number, numbered(number as u32, 40), 100))
            .collect();
        batcher.step().expect("runs");
        assert_eq!(batcher.load().running, 8);
        while !batcher.is_idle() {
            batcher.step().expect("runs");
        }
        assert!(batcher.load().preemptions > 0, "they were longer than expected");
    }
}
