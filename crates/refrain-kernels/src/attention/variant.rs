//! Division of the work of attention without matrix cores.

use super::{AttentionParams, AttentionSizes, OP};
use crate::kit::iterations::{self, lane_reduction, loop_or_unrolled, looped, too_many};
use crate::tuning::{self, Tuning};
use crate::{Traits, Unsupported};

/// Maximum number of pairs of values of all heads per invocation for which loops are unrolled although software drivers
/// then take seconds to compile.
const MAX_UNROLLED_PAIRS: usize = 16;
/// Maximum factor of rows for which loops stay rolled to meet a driver's limit of iterations: more rows cost short
/// contexts little, and unrolling costs a second of compilation.
const MAX_ROLLED_ROWS_FACTOR: u32 = 4;

/// Division of a workgroup, and number of splits.
#[derive(Clone, Copy, Debug)]
pub(super) struct AttentionVariant {
    /// Invocations per row.
    pub lanes: u32,
    /// Rows of invocations per workgroup; each takes its own positions.
    pub rows: u32,
    /// Pairs of a head's key or value per invocation, whichever are more.
    pub pairs: usize,
    /// Whether loops over pairs are unrolled.
    pub unrolled: bool,
    /// Query heads per workgroup.
    pub heads: usize,
    /// Workgroups that split a token's positions.
    pub splits: usize,
}

impl AttentionVariant {
    /// Returns the tuning's division, or one that stays below the driver's limit of iterations.
    pub(super) fn of(
        tuning: &Tuning,
        traits: &Traits,
        sizes: &AttentionSizes,
        params: &AttentionParams,
    ) -> Result<AttentionVariant, Unsupported> {
        let attention = &tuning.attention;
        let lanes = tuning::lanes(traits);
        let splits = splits(tuning, traits, sizes);
        let (heads, threads) = match (splits, heads(tuning, traits, sizes)) {
            (1, 1) => (1, attention.threads),
            (1, heads) => (heads, attention.grouped_threads),
            _ => (sizes.grouped_heads(attention.max_heads_split), attention.threads_split),
        };
        let variant = AttentionVariant {
            lanes,
            rows: threads / lanes,
            pairs: (sizes.head_dim.max(sizes.value_dim) / 2).div_ceil(lanes as usize),
            // Narrow subgroups hold many pairs per invocation; unrolled, such a kernel takes seconds to
            // compile on software drivers, and arrays in memory cost those nothing.
            unrolled: lanes >= 16,
            heads,
            splits,
        };
        match iterations::max_iterations(traits) {
            None => Ok(variant),
            Some(max) => variant.limit_iterations(max, traits, sizes, sizes.span(params)),
        }
    }

    /// Returns the first variant that attends over `span` positions in at most `max` iterations: this one, one of more
    /// rows, or an unrolled one.
    fn limit_iterations(
        self,
        max: usize,
        traits: &Traits,
        sizes: &AttentionSizes,
        span: usize,
    ) -> Result<AttentionVariant, Unsupported> {
        let unrolled = AttentionVariant {
            unrolled: true,
            heads: sizes.grouped_heads((MAX_UNROLLED_PAIRS / self.pairs).clamp(1, self.heads) as u32),
            ..self
        };
        let doublings = |variant: AttentionVariant| {
            (0..10).map(move |n| AttentionVariant {
                rows: variant.rows << n,
                ..variant
            })
        };
        doublings(self)
            .take_while(|variant| variant.rows <= MAX_ROLLED_ROWS_FACTOR * self.rows)
            .chain(doublings(unrolled))
            .find(|variant| variant.fits(traits) && variant.iterations(traits, span) <= max)
            .ok_or_else(|| too_many(OP, &format!("{span} positions of heads of {} values", sizes.head_dim)))
    }

    /// Whether the device can run such workgroups. The tuning's own always fit (see [`Tuning::fits`]).
    fn fits(&self, traits: &Traits) -> bool {
        let threads = self.lanes * self.rows;
        threads <= traits.max_invocations && tuning::attention_bytes(threads) <= traits.shared_bytes
    }

    /// Returns the loop iterations of an invocation for its split of `span` positions.
    pub(super) fn iterations(&self, traits: &Traits, span: usize) -> usize {
        let (rows, join) = (self.rows as usize, lane_reduction(traits));
        let over_pairs = |inner: usize| loop_or_unrolled(self.unrolled, self.pairs, inner);
        let attend = 4 * over_pairs(0) + self.heads * (2 * over_pairs(0) + join);
        // A row takes four positions per iteration.
        let steps = span.div_ceil(self.splits).div_ceil(4 * rows);
        let join_rows = 2 * looped(rows, 0) + over_pairs(looped(rows, 0));
        self.heads * (over_pairs(0) + join_rows) + looped(steps, 1 + attend)
    }

    /// Returns the kernel's specialisation constants.
    pub(super) fn constants(&self, page_size: u32) -> Vec<(u32, u32)> {
        vec![
            (0, self.lanes * self.rows),
            (3, self.lanes),
            (4, self.rows),
            (5, self.pairs as u32),
            (6, self.heads as u32),
            (7, page_size),
        ]
    }
}

/// Returns the query heads per workgroup. More of them read keys and values fewer times; there must remain half as many
/// workgroups as fill the device.
fn heads(tuning: &Tuning, traits: &Traits, sizes: &AttentionSizes) -> usize {
    let heads = sizes.grouped_heads(tuning.attention.max_heads);
    if 2 * sizes.tokens * sizes.heads / heads >= tuning.attention.target_groups.on(traits) {
        heads
    } else {
        1
    }
}

/// Returns the number of splits of a token's positions: as many as fill the device, if each has enough positions.
fn splits(tuning: &Tuning, traits: &Traits, sizes: &AttentionSizes) -> usize {
    /// Minimum number of positions that are worth a workgroup.
    const MIN_POSITIONS: usize = 64;
    /// Minimum number of splits that are worth combining (16 tokens of Qwen3-8B on an H200: 22.6 µs by two).
    const MIN_SPLITS: usize = 4;
    /// Maximum number of splits that the combining call has room for.
    const MAX_SPLITS: u32 = 64;
    let heads = sizes.grouped_heads(tuning.attention.max_heads_split);
    let groups = (sizes.tokens * sizes.heads / heads).max(1);
    let max_splits = (tuning.attention.target_groups.on(traits) / groups).min(sizes.capacity / MIN_POSITIONS);
    match max_splits.min(tuning.attention.max_splits.min(MAX_SPLITS) as usize) {
        0..MIN_SPLITS => 1,
        splits => splits,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn software(subgroup_size: u32) -> (Tuning, Traits) {
        let traits = Traits {
            vendor: 0x10005,
            subgroup_size,
            subgroup_arithmetic: true,
            max_invocations: 1024,
            shared_bytes: 32_768,
            matrix_cores: None,
            ..Traits::minimal()
        };
        let tuning = *tuning::choose(&traits);
        (tuning, traits)
    }

    fn sizes(tokens: usize, [heads, head_dim]: [usize; 2], capacity: usize) -> AttentionSizes {
        AttentionSizes {
            tokens,
            heads,
            kv_heads: 1,
            head_dim,
            value_dim: head_dim,
            slots: capacity,
            sequences: 1,
            table: capacity,
            capacity,
        }
    }

    const PARAMS: AttentionParams = AttentionParams {
        scale: 1.0,
        page_size: 1,
        window: None,
        decode: false,
        blocks: [None; 2],
    };

    #[test]
    fn long_contexts_stay_below_the_iteration_limit_of_software_drivers() {
        for lanes in [4, 8, 16] {
            let (tuning, traits) = software(lanes);
            let max = iterations::max_iterations(&traits).expect("a limit");
            for capacity in [4096, 16_384, 131_072, 262_144] {
                for head_dim in (64..=256).step_by(16) {
                    for (tokens, heads) in [(1, 1), (1, 2), (1, 32), (512, 4), (512, 32)] {
                        let sizes = sizes(tokens, [heads, head_dim], capacity);
                        let variant = AttentionVariant::of(&tuning, &traits, &sizes, &PARAMS).expect("possible");
                        let counted = variant.iterations(&traits, capacity);
                        assert!(counted <= max, "{variant:?}: {counted}");
                        assert!(
                            variant.fits(&traits) && heads.is_multiple_of(variant.heads),
                            "{variant:?}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn short_contexts_and_windows_follow_the_tuning() {
        let (tuning, traits) = software(8);
        for (capacity, window) in [(3_000, None), (262_144, Some(3_000))] {
            let params = AttentionParams { window, ..PARAMS };
            let variant =
                AttentionVariant::of(&tuning, &traits, &sizes(512, [4, 128], capacity), &params).expect("possible");
            assert_eq!(variant.lanes * variant.rows, tuning.attention.grouped_threads);
            assert_eq!(variant.heads as u32, tuning.attention.max_heads);
            assert!(!variant.unrolled && variant.splits == 1);
        }
    }

    #[test]
    fn rejects_contexts_beyond_the_iteration_limit() {
        let (tuning, traits) = software(8);
        let error =
            AttentionVariant::of(&tuning, &traits, &sizes(512, [4, 128], 1 << 30), &PARAMS).expect_err("too long");
        assert!(error.to_string().contains("1073741824 positions"), "{error}");
    }

    /// Mesa 22.3, with subgroups of 8 in two rows, ended the loops of these variants before they reached this position.
    #[test]
    fn iteration_counts_are_slightly_above_measured_ones() {
        let (tuning, traits) = software(8);
        let measured = [
            (128, 4, false, 4_120),
            (128, 2, false, 6_016),
            (128, 1, false, 8_448),
            (64, 4, false, 6_624),
            (256, 2, false, 3_464),
            (64, 4, true, 47_663),
            (128, 2, true, 74_894),
        ];
        for (head_dim, heads, unrolled, first_lost_position) in measured {
            let sizes = sizes(512, [heads, head_dim], 1024);
            let variant = AttentionVariant::of(&tuning, &traits, &sizes, &PARAMS).expect("possible");
            let variant = AttentionVariant { unrolled, ..variant };
            let counted = variant.iterations(&traits, first_lost_position + 1);
            assert!(
                (65_535..90_000).contains(&counted) && variant.rows == 2,
                "{variant:?}: {counted}"
            );
        }
    }
}
