//! How many tokens of prompts a call computes, and how many they are padded to.

use refrain::Device;

use crate::Model;

/// Limit of tokens per call of the model.
pub(crate) const MAX_CHUNK: usize = 2048;
/// Limit if another prompt waits or logits of all tokens are requested, and limit up to which shorter prompts are
/// padded.
pub(crate) const SHORT_CHUNK: usize = 512;
/// Smallest shape class that is three quarters of a power of two.
const MIN_THREE_QUARTERS: usize = 96;
/// Smallest chunk limit, however deep the context.
const MIN_CHUNK_LIMIT: u64 = 16;

/// Token counts of the shape classes, ascending: powers of two, and three quarters of those large enough to be
/// worth a program.
pub(crate) fn class_sizes() -> impl Iterator<Item = usize> {
    let powers = (0..usize::BITS).map(|bit| 1usize << bit);
    powers.flat_map(|power| {
        let fewer = power / 4 * 3;
        (fewer >= MIN_THREE_QUARTERS)
            .then_some(fewer)
            .into_iter()
            .chain([power])
    })
}

/// Returns the token count that `tokens` tokens are padded to.
pub(crate) fn class_tokens(tokens: usize) -> usize {
    class_sizes().find(|&size| size >= tokens).unwrap_or(tokens)
}

/// Returns how many tokens one call may compute after `depth` others, at most `max`. It bounds the device time of a
/// layer's attention.
pub(crate) fn max_chunk_tokens(model: &Model, max: usize, depth: usize) -> usize {
    let config = model.config();
    // Scores, and weighted sums of values.
    let each = config.attention.heads * (config.attention.head_dim + config.attention.value_dim);
    limit_chunk(max, depth, each, model.device().max_submit_work())
}

/// Returns the largest power of two, at most `chunk`, for which attention after `depth` tokens takes no more than
/// `max` multiplications, at `each` multiplications per token and position.
fn limit_chunk(chunk: usize, depth: usize, each: usize, max: u64) -> usize {
    let tokens = max / (each * (depth + chunk)).max(1) as u64;
    chunk.min(1 << tokens.max(MIN_CHUNK_LIMIT).ilog2())
}

/// Returns the default chunk size of a prompt while no other waits. Matrix cores need less time per token for
/// larger products: 2,048 tokens of Qwen3-8B on an H200 take 11 % less in one call than in four, of Qwen3-0.6B 44
/// %.
pub(crate) fn default_chunk(device: &Device) -> usize {
    if device.has_matrix_cores() {
        MAX_CHUNK
    } else {
        SHORT_CHUNK
    }
}

/// Returns how many of `left` tokens the next call computes, at most `max`. Large counts are rounded down to a shape
/// class, since padding would cost as much as tokens; unless the call for the rest would have as much of it.
pub(crate) fn next_chunk(left: usize, max: usize) -> usize {
    let most = left.min(max);
    if most <= SHORT_CHUNK {
        return most;
    }
    let rounded = class_sizes().take_while(|&size| size <= most).last().unwrap_or(most);
    let whole = class_tokens(left);
    if whole <= max && whole == rounded + class_tokens(left - rounded) {
        return left;
    }
    rounded
}

#[cfg(test)]
mod tests {
    use super::{class_tokens, limit_chunk, next_chunk};

    fn cut(mut left: usize, max: usize, next: fn(usize, usize) -> usize) -> Vec<usize> {
        let mut chunks = vec![];
        while left > 0 {
            chunks.push(next(left, max));
            left -= chunks[chunks.len() - 1];
        }
        chunks
    }

    #[test]
    fn chunks_shrink_with_depth() {
        let slow = |depth| limit_chunk(512, depth, 2 * 32 * 128, 1 << 34);
        assert_eq!(
            [0, 3_000, 7_000, 32_000, 120_000, 1 << 30].map(slow),
            [512, 512, 256, 64, 16, 16]
        );
        assert_eq!(limit_chunk(512, 32_000, 2 * 32 * 128, 1 << 38), 512);
        assert_eq!(limit_chunk(5, 120_000, 2 * 32 * 128, 1 << 34), 5);
        assert_eq!(limit_chunk(100, 0, 0, 1 << 34), 100);
    }

    #[test]
    fn pads_to_powers_of_two_or_three_quarters_of_them() {
        let padded = [1, 3, 17, 65, 90, 97, 128, 129, 300, 385, 700, 1025, 1537].map(class_tokens);
        assert_eq!(padded, [1, 4, 32, 96, 96, 128, 128, 192, 384, 512, 768, 1536, 2048]);
    }

    #[test]
    fn cuts_long_prompts_without_padding() {
        let cut = |left, max| cut(left, max, next_chunk);
        assert_eq!(cut(5000, 2048), [2048, 2048, 768, 136]);
        assert_eq!(cut(1600, 2048), [1536, 64]);
        // 1,536 and 384 tokens, but not 512.
        assert_eq!(cut(1920, 2048), [1536, 384]);
        assert_eq!(cut(1921, 2048), [1921]);
        assert_eq!(cut(4000, 2048), [2048, 1952]);
        assert_eq!(cut(750, 1024), [750]);
        assert_eq!(cut(750, 750), [512, 238]);
        assert_eq!(cut(700, 512), [512, 188]);
        assert_eq!(cut(300, 2048), [300]);
        assert_eq!(cut(30, 13), [13, 13, 4]);
    }
}
