//! Prompts on their way into the cache.

use super::{Batcher, Running};
use crate::Error;
use crate::prompts::{PromptChunk, most_tokens, next_tokens};

/// Tokens of a prompt that are taken in at once where all are always cut alike, and on a CPU.
const EQUAL_CHUNK: usize = 128;
const EQUAL_CHUNK_ON_CPU: usize = 32;

impl Batcher {
    /// Takes in a chunk of a prompt: in turns of the one that came first, and of the one of which least is left, which does
    /// not wait for all of the other then.
    pub(super) fn feed(&mut self) -> Result<(), Error> {
        let feeding = self.running().filter(|(_, running)| !running.decodes());
        let is_firsts = self.chunks.is_multiple_of(2);
        let rank = |running: &Running| {
            let left = running.request.tokens.len() - running.fed;
            (if is_firsts { 0 } else { left }, running.request.number)
        };
        let Some((slot, _)) = feeding.min_by_key(|(_, running)| rank(running)) else {
            return Ok(());
        };
        let most = self.widest_chunk();
        if most == 0 {
            return Ok(());
        }
        let running = self.slots[slot].as_mut().expect("chosen");
        let (tokens, position) = (&running.request.tokens, running.fed);
        let most = most_tokens(&self.model, most, position);
        let checkpoint = self.checkpoints.as_ref().zip(running.next_copy());
        let end = checkpoint.map_or(tokens.len() - 1, |(_, at)| at);
        let count = next_tokens(end - position, most);
        let chunk = PromptChunk {
            tokens: &tokens[position..][..count],
            sequence: slot,
            position,
            wanted: 0,
            hidden: false,
        };
        let traced = self.prompts.traced();
        self.prompts.run(&self.model, &self.states, &chunk, &self.known_table)?;
        self.chunk = Some(count);
        self.chunks += 1;
        if self.prompts.traced() > traced {
            self.rounds.interrupt();
        }
        running.fed += count;
        if running.fed < end {
            return Ok(());
        }
        self.pool.remember(&tokens[..end], &running.pages);
        match checkpoint {
            Some((checkpoints, _)) => self
                .pool
                .keep_states(&tokens[..end], |copy| checkpoints.save(slot, copy)),
            None => Ok(()),
        }
    }

    /// The most tokens of a prompt that this round takes in: as many as there may be where nobody waits for the next token.
    fn widest_chunk(&self) -> usize {
        if self.deterministic {
            return match self.model.device().is_cpu() {
                true => EQUAL_CHUNK_ON_CPU,
                false => EQUAL_CHUNK,
            };
        }
        if !self.running().any(|(_, running)| running.decodes()) {
            return self.squeeze.chunk();
        }
        let prompts = self.running().filter(|(_, running)| !running.decodes()).count();
        self.rounds.width(self.squeeze.chunk(), self.queue.len() + prompts)
    }
}

impl Running {
    /// The number of tokens at which its states are copied next.
    fn next_copy(&self) -> Option<usize> {
        self.copied_at.iter().copied().filter(|at| *at > self.fed).min()
    }
}

#[cfg(test)]
mod tests {
    use crate::engine::batcher::trial::{ask, batcher, model};

    #[test]
    fn a_short_prompt_does_not_wait_for_all_of_a_long_one() {
        let model = model();
        let mut batcher = batcher(&model, 2);
        // Chunks are narrow then.
        batcher.deterministic = true;
        let [long, short] = [13, 0].map(|number| ask(&mut batcher, number, 3));
        let (mut turns, mut first) = (0, None);
        while first.is_none() {
            batcher.turn().expect("goes on");
            turns += usize::from(batcher.chunks > 0);
            first = short.try_recv().ok();
        }
        assert!(turns <= 4, "{turns}");
        assert!(long.try_recv().is_err(), "its prompt takes eight chunks");
        while !batcher.is_idle() {
            batcher.turn().expect("goes on");
        }
        assert_eq!((long.try_iter().count(), short.try_iter().count()), (4, 3));
    }
}
