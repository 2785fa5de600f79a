//! Prompts on their way into the KV cache, a chunk at a time.

use std::collections::HashMap;

use refrain::{Function, LowerOptions};
use refrain_models::{Batch, LayerState, Pages};

use crate::{Error, Model};

/// The most tokens that one call of the model sees.
const LARGEST: usize = 512;

/// The traced programs that take in tokens, by how many they see.
pub(super) struct PromptPrograms {
    functions: HashMap<usize, Function>,
    sequences: usize,
    pages: Pages,
}

impl PromptPrograms {
    /// For sequences numbered below `sequences`.
    pub fn new(sequences: usize, pages: Pages) -> PromptPrograms {
        PromptPrograms {
            functions: HashMap::new(),
            sequences,
            pages,
        }
    }

    /// How many of `left` tokens the next call sees, of `most` at once: a power of two, unless the last call is almost
    /// that many.
    pub fn chunk(left: usize, most: usize) -> usize {
        let most = most.clamp(1, LARGEST);
        let room = left.next_power_of_two();
        match () {
            () if left >= most => 1 << most.ilog2(),
            () if 4 * left >= 3 * room => left,
            () => room / 2,
        }
        .min(left)
    }

    /// Takes in `tokens` of sequence `sequence` from `position` on, whose pages `table` has, `[N, P]`. Returns before
    /// the device has done so.
    pub fn run(
        &mut self,
        model: &Model,
        states: &[LayerState],
        tokens: &[u32],
        [sequence, position]: [usize; 2],
        table: &[u32],
    ) -> Result<(), Error> {
        let bucket = tokens.len().next_power_of_two();
        let mut padded = tokens.to_vec();
        padded.resize(bucket, 0);
        let position = |t: usize| if t < tokens.len() { (position + t) as i32 } else { -1 };
        let positions: Vec<i32> = (0..bucket).map(position).collect();
        self.function(model, states, bucket)?.call_bytes(&[
            ("tokens", bytemuck::cast_slice(&padded)),
            ("positions", bytemuck::cast_slice(&positions)),
            ("sequences", bytemuck::cast_slice(&vec![sequence as u32; bucket])),
            ("pages", bytemuck::cast_slice(table)),
            ("wanted", &[]),
        ])?;
        Ok(())
    }

    fn function(&mut self, model: &Model, states: &[LayerState], bucket: usize) -> Result<&Function, Error> {
        if !self.functions.contains_key(&bucket) {
            let batch = Batch::inputs(model.device(), bucket, self.sequences, 0, self.pages);
            // The clones are the states' versions within the trace: the updates happen in the same memory.
            let mut states = states.to_vec();
            model.decoder().forward(&batch, &mut states);
            let updated: Vec<_> = states.iter().flat_map(LayerState::arrays).collect();
            let function = Function::trace_with(&updated, LowerOptions::default())?;
            self.functions.insert(bucket, function);
        }
        Ok(&self.functions[&bucket])
    }
}

#[cfg(test)]
mod tests {
    use super::PromptPrograms;

    #[test]
    fn chunks_are_powers_of_two_or_nearly() {
        let cut = |mut left: usize, most: usize| {
            let mut chunks = vec![];
            while left > 0 {
                chunks.push(PromptPrograms::chunk(left, most));
                left -= chunks[chunks.len() - 1];
            }
            chunks
        };
        assert_eq!(cut(1300, 512), [512, 512, 256, 16, 4]);
        assert_eq!(cut(400, 512), [400]);
        assert_eq!(cut(300, 512), [256, 32, 12]);
        assert_eq!(cut(5, 2), [2, 2, 1]);
        assert_eq!(cut(1, 512), [1]);
        assert_eq!(cut(100, 100), [64, 32, 4]);
    }
}
