//! Prompts on their way into the cache.

use super::{Batcher, Running};
use crate::Error;
use crate::prompts::{PromptChunk, SHORT_CHUNK, most_tokens, next_tokens};

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
        let asked = next_tokens(end - position, most);
        let traced = self.prompts.traced();
        let count = self.prompts.with_room(&self.model, &self.states, asked, 0)?;
        if count < asked {
            self.squeeze.widest = count;
        }
        let chunk = PromptChunk {
            tokens: &tokens[position..][..count],
            sequence: slot,
            position,
            wanted: 0,
            hidden: false,
        };
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

    /// The most tokens of a prompt that this round takes in: as many as there may be where nobody waits for the next token,
    /// nor another prompt for its turn.
    fn widest_chunk(&self) -> usize {
        if self.deterministic {
            return if self.model.device().is_cpu() {
                EQUAL_CHUNK_ON_CPU
            } else {
                EQUAL_CHUNK
            };
        }
        let prompts = self.running().filter(|(_, running)| !running.decodes()).count() + self.queue.len();
        let most = match prompts {
            1 => self.squeeze.chunk(),
            _ => self.squeeze.chunk().min(SHORT_CHUNK),
        };
        if self.running().any(|(_, running)| running.decodes()) {
            self.rounds.width(most, prompts)
        } else {
            most
        }
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
    use refrain::Device;
    use refrain_models::Checkpoint;
    use refrain_vulkan::{DeviceInfo, NullOptions};

    use crate::engine::EngineOptions;
    use crate::engine::batcher::Batcher;
    use crate::engine::batcher::trial::{ask, batcher, model};
    use crate::prompts::MAX_CHUNK;
    use crate::{LoadOptions, Model};

    /// Tokens of each prompt that were taken in after so many rounds of a card whose chunks may be long, in the order of
    /// slots.
    fn fed(prompts: &[u64], rounds: usize) -> Vec<usize> {
        let options = NullOptions {
            without_contents: true,
            ..NullOptions::default()
        };
        let card = refrain_vulkan::Device::null_with(DeviceInfo::made_up("card"), options);
        let checkpoint = Checkpoint::synthetic("tiny:f16").expect("a checkpoint");
        let model = Model::load(&checkpoint, &Device::vulkan(card), &LoadOptions::default()).expect("loads");
        let options = EngineOptions {
            context: 4096,
            streams: 2,
            cache_tokens: 8192,
            ..EngineOptions::default()
        };
        let mut batcher = Batcher::new(&model, &options).expect("fits");
        batcher.squeeze.widest = MAX_CHUNK;
        let _heard: Vec<_> = prompts.iter().map(|&number| ask(&mut batcher, number, 2)).collect();
        (0..rounds).for_each(|_| batcher.turn().expect("goes on"));
        batcher.slots.iter().flatten().map(|running| running.fed).collect()
    }

    #[test]
    fn a_prompt_alone_is_taken_in_by_long_chunks_and_beside_others_by_short_ones() {
        // 2,900 tokens, and 3,410.
        assert_eq!(fed(&[170], 1), [2048]);
        assert_eq!(fed(&[170], 2), [2048 + 512]);
        let beside: usize = fed(&[170, 200], 2).iter().sum();
        assert_eq!(beside, 2 * 512);
    }

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
