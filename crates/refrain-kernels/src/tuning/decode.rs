//! Tuning of decode attention.

use super::GroupCount;
use super::matrix_tiles::H200_UNITS;

/// Maximum number of positions of a cache for which [`Tuning::decode_short`](super::Tuning::decode_short) is used.
pub const SHORT_CACHE: usize = 2048;

/// Sizes of decode attention. A workgroup computes some query heads of one key head, over a split of a token's
/// positions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DecodeTuning {
    /// Invocations per workgroup: a multiple of `positions`.
    pub threads: u32,
    /// Positions per step of a workgroup: a power of two.
    pub positions: u32,
    /// Maximum number of query heads of a workgroup.
    pub max_heads: u32,
    /// Fewest query heads of a workgroup for which an entry of [`Tuning::decode_many`](super::Tuning::decode_many) is used.
    pub min_heads: u32,
    /// Whether each subgroup goes through positions of its own, where its lanes can exchange values and a head's values
    /// divide among them; otherwise a workgroup takes positions together.
    pub by_subgroups: bool,
    /// Maximum number of splits of a token's positions.
    pub max_splits: u32,
    /// Workgroups that fill the device.
    pub target_groups: GroupCount,
    /// Whether loops over an invocation's values are unrolled.
    pub unrolled: bool,
}

/// Attention of a layer of Qwen3-8B after 290 tokens, µs on an H200: 32 sequences take 20.5 with four heads and 64
/// positions, 26.8 with two heads; 24 sequences 18.8 and 18.0, with 32 positions 19.9. 64 sequences after 1,100 tokens take
/// 92.2 (with all subgroups of a workgroup together 108).
pub(super) const H200_DECODE_MANY: [DecodeTuning; 2] = [
    DecodeTuning {
        positions: 64,
        max_heads: 4,
        min_heads: 4,
        target_groups: GroupCount::scaled(200, H200_UNITS),
        ..H200_DECODE
    },
    DecodeTuning {
        positions: 64,
        min_heads: 2,
        target_groups: GroupCount::scaled(200, H200_UNITS),
        ..H200_DECODE
    },
];

/// Attention of a layer of Qwen3-8B after 16,400 tokens, µs on an H200: 34.2; 31.7 with 64 positions; 38.3 with 64
/// invocations, 34.1 with 256; 48.4 with 256 that take 64 positions together. With 64 positions the text is longer, so that a
/// token of one text is 2 % slower after 256 tokens, by `refrain bench`.
pub(super) const H200_DECODE: DecodeTuning = DecodeTuning {
    threads: 128,
    positions: 32,
    max_heads: 2,
    min_heads: 1,
    by_subgroups: true,
    max_splits: 64,
    target_groups: GroupCount::scaled(528, H200_UNITS),
    unrolled: true,
};

/// The shorter text is faster in short caches: after 256 tokens, one text of Qwen3-8B Q4_K_M has 412 tokens a second on an
/// H200, and 405 by subgroups with 64 positions, 413 with 32; from an empty cache, Q4_0 has 478 and 473.
pub(super) const H200_DECODE_SHORT: DecodeTuning = DecodeTuning {
    threads: 256,
    positions: 64,
    by_subgroups: false,
    target_groups: GroupCount::scaled(264, H200_UNITS),
    ..H200_DECODE
};
