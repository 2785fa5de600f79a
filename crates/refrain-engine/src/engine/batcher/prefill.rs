//! Prompts on their way into the cache.

use super::{Batcher, Running};
use crate::Error;
use crate::prefill::{PrefillChunk, SHORT_CHUNK, max_chunk_tokens, next_chunk};

/// Tokens of a prompt that are taken in at once where all are always cut alike, and on a CPU.
const DETERMINISTIC_CHUNK: usize = 128;
const DETERMINISTIC_CPU_CHUNK: usize = 32;

impl Batcher {
    /// Takes in a chunk of a prompt: in turns of the one that came first, and of the one of which least is left, which does
    /// not wait for all of the other then.
    pub(super) fn prefill(&mut self) -> Result<(), Error> {
        let prefilling = self.running().filter(|(_, running)| !running.decodes());
        let is_firsts = self.chunks.is_multiple_of(2);
        let rank = |running: &Running| {
            let left = running.request.tokens.len() - running.prefilled;
            (if is_firsts { 0 } else { left }, running.request.number)
        };
        let Some((slot, _)) = prefilling.min_by_key(|(_, running)| rank(running)) else {
            return Ok(());
        };
        let most = self.chunk_limit();
        if most == 0 {
            return Ok(());
        }
        let running = self.slots[slot].as_mut().expect("chosen");
        let (tokens, position) = (&running.request.tokens, running.prefilled);
        let most = max_chunk_tokens(&self.model, most, position);
        let checkpoint = self.checkpoints.as_ref().zip(running.next_copy());
        let end = checkpoint.map_or(tokens.len() - 1, |(_, at)| at);
        let asked = next_chunk(end - position, most);
        let traced = self.prompts.traced();
        let count = self.prompts.fit_to_memory(&self.model, &self.states, asked, 0)?;
        if count < asked {
            self.backpressure.max_chunk = count;
        }
        let chunk = PrefillChunk {
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
            self.step_times.interrupt();
        }
        running.prefilled += count;
        if running.prefilled < end {
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
    fn chunk_limit(&self) -> usize {
        if self.deterministic {
            return if self.model.device().is_cpu() {
                DETERMINISTIC_CPU_CHUNK
            } else {
                DETERMINISTIC_CHUNK
            };
        }
        let prompts = self.running().filter(|(_, running)| !running.decodes()).count() + self.queue.len();
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

impl Running {
    /// The number of tokens at which its states are copied next.
    fn next_copy(&self) -> Option<usize> {
        self.copied_at.iter().copied().filter(|at| *at > self.prefilled).min()
    }
}

#[cfg(test)]
mod tests {
    use refrain::Device;
    use refrain_models::Checkpoint;
    use refrain_vulkan::{DeviceInfo, NullOptions};

    use crate::engine::EngineOptions;
    use crate::engine::batcher::Batcher;
    use crate::engine::batcher::test_support::{ask, batcher, model};
    use crate::prefill::MAX_CHUNK;
    use crate::{LoadOptions, Model};

    /// Tokens of each prompt that were taken in after so many rounds of a card whose chunks may be long, in the order of
    /// slots.
    fn prefilled(prompts: &[u64], steps: usize) -> Vec<usize> {
        let options = NullOptions {
            without_contents: true,
            ..NullOptions::default()
        };
        let card = refrain_vulkan::Device::null_with(DeviceInfo::mock("card"), options);
        let checkpoint = Checkpoint::synthetic("tiny:f16").expect("a checkpoint");
        let model = Model::load(&checkpoint, &Device::vulkan(card), &LoadOptions::default()).expect("loads");
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
        assert_eq!(prefilled(&[170], 2), [2048 + 512]);
        let beside: usize = prefilled(&[170, 200], 2).iter().sum();
        assert_eq!(beside, 2 * 512);
    }

    #[test]
    fn short_prompts_do_not_wait_for_whole_long_ones() {
        let model = model();
        let mut batcher = batcher(&model, 2);
        // Chunks are narrow then.
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
