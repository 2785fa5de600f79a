//! Prefill: chunks of prompts, between the tokens of decoding requests.

use super::{Batcher, Runner, Running};
use crate::Error;
use crate::prefill::{PrefillPiece, SHORT_CHUNK, next_chunk};

/// Tokens of a chunk in a deterministic engine, and in one on the CPU.
const DETERMINISTIC_CHUNK: usize = 128;
const DETERMINISTIC_CPU_CHUNK: usize = 32;

impl<R: Runner> Batcher<R> {
    /// Computes a chunk of prompts. It begins with the prompt that arrived first, or with the one that has the fewest
    /// tokens left, in turn, so that short prompts do not wait for long ones. Further prompts fill the rest of the chunk.
    /// Returns whether a prompt is complete now.
    ///
    /// # Errors
    /// If the device fails.
    pub(super) fn prefill(&mut self) -> Result<bool, Error> {
        let prompts = self.running().filter(|(_, running)| running.prefills());
        let pieces = self.choose_pieces(prompts, self.chunk_limit());
        let count = pieces.iter().map(|(_, tokens)| tokens).sum();
        if count == 0 {
            return Ok(false);
        }
        let fitting = self.runner.fit_chunk(count, 0)?;
        if fitting < count {
            self.backpressure.max_chunk = fitting;
        }
        let pieces = shortened(&pieces, fitting);
        let piece = |&(slot, tokens): &(usize, usize)| {
            let running = self.slots[slot].as_ref().expect("chosen");
            running.piece(slot, tokens)
        };
        if self
            .runner
            .prefill(pieces.iter().map(piece).collect(), &self.known_table)?
        {
            self.step_times.interrupt();
        }
        self.chunk = Some(fitting);
        self.chunks += 1;
        let mut is_complete = false;
        for (slot, tokens) in pieces {
            self.cache_prefix(slot, tokens)?;
            is_complete |= self.slots[slot].as_ref().is_some_and(|running| !running.prefills());
        }
        Ok(is_complete)
    }

    /// Returns the slots whose prompts the next chunk computes, and how many tokens of each: up to `budget` together.
    pub(super) fn choose_pieces<'r>(
        &self,
        prompts: impl Iterator<Item = (usize, &'r Running)>,
        mut budget: usize,
    ) -> Vec<(usize, usize)> {
        let mut prompts: Vec<(usize, &Running)> = prompts.collect();
        let is_firsts = self.chunks.is_multiple_of(2);
        prompts.sort_by_key(|(_, running)| {
            let left = running.request.reusable() - running.prefilled;
            (if is_firsts { 0 } else { left }, running.request.number)
        });
        let mut pieces = vec![];
        let mut count = 0;
        for (slot, running) in prompts {
            // Attention to many tokens takes long, whichever prompt they belong to.
            budget = budget.min(self.runner.max_chunk_tokens(budget, running.prefilled));
            let end = running.next_end(running.request.reusable(), self.runner.checkpoints().is_some());
            let tokens = end - running.prefilled;
            let tokens = tokens.min(budget.saturating_sub(count));
            if tokens == 0 {
                break;
            }
            pieces.push((slot, tokens));
            count += tokens;
            // The tokens of other requests must not change how a prompt is computed.
            if self.deterministic {
                break;
            }
        }
        let rounded = next_chunk(count, budget);
        shortened(&pieces, rounded)
    }

    /// Notes that tokens of a prompt are computed, caches its full pages, and saves its states where they may be needed.
    pub(super) fn cache_prefix(&mut self, slot: usize, tokens: usize) -> Result<(), Error> {
        let running = self.slots[slot].as_mut().expect("chosen");
        running.prefilled += tokens;
        let computed = &running.request.tokens[..running.prefilled];
        running.node = self.pool.insert(computed, &running.pages, running.node);
        if !running.save_states_at.contains(&running.prefilled) {
            return Ok(());
        }
        let runner = &mut self.runner;
        let save = |checkpoint| runner.save_states(slot, checkpoint);
        self.pool.save_states(computed, save)
    }

    /// Returns how many tokens of prompts the next step may compute: as many as possible if no request decodes and no
    /// other prompt waits.
    pub(super) fn chunk_limit(&self) -> usize {
        if self.deterministic {
            return if self.runner.is_synchronous() {
                DETERMINISTIC_CPU_CHUNK
            } else {
                DETERMINISTIC_CHUNK
            };
        }
        let prompts = self.running().filter(|(_, running)| running.prefills()).count() + self.queue.len();
        let most = match prompts {
            1 => self.backpressure.chunk(),
            _ => self.backpressure.chunk().min(SHORT_CHUNK),
        };
        if self.running().any(|(_, running)| running.decodes()) {
            self.step_times.width(most, prompts)
        } else {
            most
        }
    }
}

/// Returns the first `count` tokens of pieces.
fn shortened(pieces: &[(usize, usize)], mut count: usize) -> Vec<(usize, usize)> {
    let mut shorter = vec![];
    for &(slot, tokens) in pieces {
        let tokens = tokens.min(count);
        if tokens > 0 {
            shorter.push((slot, tokens));
        }
        count -= tokens;
    }
    shorter
}

impl Running {
    /// Returns the next `tokens` tokens of its prompt, which is in `slot`.
    pub(super) fn piece(&self, slot: usize, tokens: usize) -> PrefillPiece<'_> {
        PrefillPiece {
            tokens: &self.request.tokens[self.prefilled..][..tokens],
            sequence: slot,
            position: self.prefilled,
            next: self.request.tokens.get(self.prefilled + tokens).copied(),
        }
    }

    /// Returns the number of tokens at which the next chunk ends at the latest: where states are saved, or at `end`.
    pub(super) fn next_end(&self, end: usize, saves_states: bool) -> usize {
        let saved = self
            .save_states_at
            .iter()
            .copied()
            .filter(|at| *at > self.prefilled && saves_states);
        saved.min().unwrap_or(end).min(end)
    }
}

#[cfg(test)]
mod tests {
    use refrain::Device;
    use refrain_vulkan::{DeviceInfo, NullOptions};

    use crate::engine::EngineOptions;
    use crate::engine::batcher::Batcher;
    use crate::engine::batcher::test_support::{ask, batcher, load, model};
    use crate::prefill::MAX_CHUNK;

    /// Returns the computed tokens of each prompt after so many steps of a card with long chunks, in the order of slots.
    fn prefilled(prompts: &[u64], steps: usize) -> Vec<usize> {
        let options = NullOptions {
            without_contents: true,
            ..NullOptions::default()
        };
        let card = refrain_vulkan::Device::null_with(DeviceInfo::mock("card"), options);
        let model = load("tiny:f16", &Device::vulkan(card));
        let options = EngineOptions {
            context: 4096,
            streams: 2,
            cache_tokens: 8192,
            ..EngineOptions::default()
        };
        let mut batcher = Batcher::new(&model, &options).expect("fits");
        batcher.backpressure.max_chunk = MAX_CHUNK;
        let _events: Vec<_> = prompts.iter().map(|&number| ask(&mut batcher, number, 2)).collect();
        (0..steps).for_each(|_| batcher.step().expect("goes on"));
        batcher
            .slots
            .iter()
            .flatten()
            .map(|running| running.prefilled)
            .collect()
    }

    #[test]
    fn single_prompts_use_long_chunks_and_concurrent_ones_short_chunks() {
        // 2,900 tokens, and 3,410.
        assert_eq!(prefilled(&[170], 1), [2048]);
        assert_eq!(prefilled(&[170], 2), [2048 + 768]);
        let beside: usize = prefilled(&[170, 200], 2).iter().sum();
        assert_eq!(beside, 2 * 512);
    }

    #[test]
    fn short_prompts_do_not_wait_for_whole_long_ones() {
        let model = model();
        let mut batcher = batcher(&model, 2);
        // Chunks are short then.
        batcher.deterministic = true;
        let [long, short] = [13, 0].map(|number| ask(&mut batcher, number, 3));
        let (mut steps, mut first) = (0, None);
        while first.is_none() {
            batcher.step().expect("goes on");
            steps += usize::from(batcher.chunks > 0);
            first = short.try_recv().ok();
        }
        assert!(steps <= 4, "{steps}");
        assert!(long.try_recv().is_err(), "its prompt takes eight chunks");
        while !batcher.is_idle() {
            batcher.step().expect("goes on");
        }
        assert_eq!((long.try_iter().count(), short.try_iter().count()), (4, 3));
    }
}
