//! How many tokens of a prompt one call of the model sees.

use crate::Session;

/// The fewest that a deep context leaves.
const FEWEST: u64 = 16;

impl Session {
    /// Takes the tokens that the next call sees from the front of `rest`.
    pub(super) fn next_chunk<'t>(&self, rest: &mut &'t [u32]) -> Option<&'t [u32]> {
        if rest.is_empty() {
            return None;
        }
        let config = self.model.config();
        // Scores and sums of values.
        let each = 2 * config.heads * config.head_dim;
        let tokens = chunk(self.chunk, self.tokens.len(), each, self.model.device().most_work());
        let (chunk, later) = rest.split_at(tokens.min(rest.len()));
        *rest = later;
        Some(chunk)
    }
}

/// `chunk` tokens, or so many fewer behind `depth` tokens that a layer's attention, of `each`
/// multiplications for a token and a position, takes no more than `most`: a power of two.
fn chunk(chunk: usize, depth: usize, each: usize, most: u64) -> usize {
    let tokens = most / (each * (depth + chunk)).max(1) as u64;
    chunk.min(1 << tokens.max(FEWEST).ilog2())
}

#[cfg(test)]
mod tests {
    use super::chunk;

    #[test]
    fn chunks_shrink_with_depth() {
        let slow = |depth| chunk(512, depth, 2 * 32 * 128, 1 << 34);
        assert_eq!(
            [0, 3_000, 7_000, 32_000, 120_000, 1 << 30].map(slow),
            [512, 512, 256, 64, 16, 16]
        );
        assert_eq!(chunk(512, 32_000, 2 * 32 * 128, 1 << 38), 512);
        assert_eq!(chunk(5, 120_000, 2 * 32 * 128, 1 << 34), 5);
        assert_eq!(chunk(100, 0, 0, 1 << 34), 100);
    }
}
