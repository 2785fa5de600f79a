//! How attention's work is divided.

use super::{AttentionParams, AttentionSizes, OP};
use crate::kit::iterations::{self, joined_lanes, looped, rounds, too_many};
use crate::tuning::{self, Tuning};
use crate::{Traits, Unsupported};

/// Pairs of values of all heads that an invocation may hold where their loops are unrolled although that
/// takes software drivers seconds to compile.
const MOST_UNROLLED: usize = 16;
/// Where rows are too few for a driver's limit of iterations, loops stay as they are up to so many times
/// as many rows: they cost short contexts little, and unrolling a second of compilation.
const MOST_ROWS_LOOPED: u32 = 4;

/// How a workgroup is divided, and how many there are.
#[derive(Clone, Copy, Debug)]
pub(super) struct AttentionVariant {
    /// Invocations of a row.
    pub lanes: u32,
    /// Rows of invocations, each of which walks positions of its own.
    pub rows: u32,
    /// Pairs of a head per invocation, of its keys or its values, whichever are more.
    pub pairs: usize,
    /// Whether loops over them are unrolled.
    pub unrolled: bool,
    /// Query heads that a workgroup takes.
    pub heads: usize,
    /// Workgroups that share a token's positions.
    pub parts: usize,
}

impl AttentionVariant {
    /// What the tuning asks for, or, where its drivers' limit of iterations would be passed, what stays
    /// below.
    pub(super) fn of(
        tuning: &Tuning,
        traits: &Traits,
        sizes: &AttentionSizes,
        params: &AttentionParams,
    ) -> Result<AttentionVariant, Unsupported> {
        let attention = &tuning.attention;
        let lanes = tuning::lanes(traits);
        let parts = parts(tuning, traits, sizes);
        let (heads, threads) = match (parts, heads(tuning, traits, sizes)) {
            (1, 1) => (1, attention.threads),
            (1, heads) => (heads, attention.grouped_threads),
            _ => (sizes.grouped_heads(attention.most_heads_split), attention.threads_split),
        };
        let variant = AttentionVariant {
            lanes,
            rows: threads / lanes,
            pairs: (sizes.head_dim.max(sizes.value_dim) / 2).div_ceil(lanes as usize),
            // Narrow subgroups hold many pairs per invocation; unrolled, such a kernel takes seconds to
            // compile on software drivers, and arrays in memory cost those nothing.
            unrolled: lanes >= 16,
            heads,
            parts,
        };
        match iterations::most(traits) {
            None => Ok(variant),
            Some(most) => variant.within(most, traits, sizes, sizes.span(params)),
        }
    }

    /// The first of this variant, ones of more rows, and unrolled ones, that attends over `span` positions
    /// in `most` iterations.
    fn within(
        self,
        most: usize,
        traits: &Traits,
        sizes: &AttentionSizes,
        span: usize,
    ) -> Result<AttentionVariant, Unsupported> {
        let unrolled = AttentionVariant {
            unrolled: true,
            heads: sizes.grouped_heads((MOST_UNROLLED / self.pairs).clamp(1, self.heads) as u32),
            ..self
        };
        let doublings = |variant: AttentionVariant| {
            (0..10).map(move |n| AttentionVariant {
                rows: variant.rows << n,
                ..variant
            })
        };
        doublings(self)
            .take_while(|variant| variant.rows <= MOST_ROWS_LOOPED * self.rows)
            .chain(doublings(unrolled))
            .find(|variant| variant.fits(traits) && variant.iterations(traits, span) <= most)
            .ok_or_else(|| too_many(OP, &format!("{span} positions of heads of {} values", sizes.head_dim)))
    }

    /// Whether a device can run such workgroups; the tuning's own do fit (see [`Tuning::fits`]).
    fn fits(&self, traits: &Traits) -> bool {
        let threads = self.lanes * self.rows;
        threads <= traits.max_invocations && tuning::attention_bytes(threads) <= traits.shared_bytes
    }

    /// Iterations of an invocation that takes its part of `span` positions.
    pub(super) fn iterations(&self, traits: &Traits, span: usize) -> usize {
        let (rows, join) = (self.rows as usize, joined_lanes(traits));
        let over_pairs = |inner: usize| rounds(self.unrolled, self.pairs, inner);
        let attend = 4 * over_pairs(0) + self.heads * (2 * over_pairs(0) + join);
        // As often as there are positions for, four to a row at a time.
        let turns = span.div_ceil(self.parts).div_ceil(4 * rows);
        let join_rows = 2 * looped(rows, 0) + over_pairs(looped(rows, 0));
        self.heads * (over_pairs(0) + join_rows) + looped(turns, 1 + attend)
    }

    /// The kernel's specialisation constants.
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

/// How many query heads of one key head a workgroup takes: the more, the fewer times keys and values
/// are read, as long as there are half as many workgroups as keep the device busy.
fn heads(tuning: &Tuning, traits: &Traits, sizes: &AttentionSizes) -> usize {
    let heads = sizes.grouped_heads(tuning.attention.most_heads);
    if 2 * sizes.tokens * sizes.heads / heads >= tuning.attention.enough_groups.on(traits) {
        heads
    } else {
        1
    }
}

/// How many workgroups share a token's positions: as many as keep the device busy, if each then has
/// enough to do.
fn parts(tuning: &Tuning, traits: &Traits, sizes: &AttentionSizes) -> usize {
    /// Fewer positions are not worth a workgroup.
    const FEWEST_POSITIONS: usize = 64;
    /// Fewer parts are not worth joining them (16 tokens of Qwen3-8B on an H200: 22.6 µs by two).
    const FEWEST_PARTS: usize = 4;
    /// What the call that joins them has room for.
    const MOST_PARTS: u32 = 64;
    let heads = sizes.grouped_heads(tuning.attention.most_heads_split);
    let groups = (sizes.tokens * sizes.heads / heads).max(1);
    let most = (tuning.attention.enough_groups.on(traits) / groups).min(sizes.reach / FEWEST_POSITIONS);
    match most.min(tuning.attention.most_parts.min(MOST_PARTS) as usize) {
        0..FEWEST_PARTS => 1,
        parts => parts,
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

    fn sizes(tokens: usize, [heads, head_dim]: [usize; 2], reach: usize) -> AttentionSizes {
        AttentionSizes {
            tokens,
            heads,
            kv_heads: 1,
            head_dim,
            value_dim: head_dim,
            slots: reach,
            sequences: 1,
            table: reach,
            reach,
        }
    }

    const PARAMS: AttentionParams = AttentionParams {
        scale: 1.0,
        page_size: 1,
        window: None,
        decode: false,
    };

    #[test]
    fn long_contexts_stay_below_the_limit_of_software_drivers() {
        for lanes in [4, 8, 16] {
            let (tuning, traits) = software(lanes);
            let most = iterations::most(&traits).expect("a limit");
            for reach in [4096, 16_384, 131_072, 262_144] {
                for head_dim in (64..=256).step_by(16) {
                    for (tokens, heads) in [(1, 1), (1, 2), (1, 32), (512, 4), (512, 32)] {
                        let sizes = sizes(tokens, [heads, head_dim], reach);
                        let variant = AttentionVariant::of(&tuning, &traits, &sizes, &PARAMS).expect("possible");
                        let counted = variant.iterations(&traits, reach);
                        assert!(counted <= most, "{variant:?}: {counted}");
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
    fn short_contexts_and_windows_are_divided_as_the_tuning_says() {
        let (tuning, traits) = software(8);
        for (reach, window) in [(3_000, None), (262_144, Some(3_000))] {
            let params = AttentionParams { window, ..PARAMS };
            let variant =
                AttentionVariant::of(&tuning, &traits, &sizes(512, [4, 128], reach), &params).expect("possible");
            assert_eq!(variant.lanes * variant.rows, tuning.attention.grouped_threads);
            assert_eq!(variant.heads as u32, tuning.attention.most_heads);
            assert!(!variant.unrolled && variant.parts == 1);
        }
    }

    #[test]
    fn what_cannot_be_kept_below_the_limit_is_refused() {
        let (tuning, traits) = software(8);
        let error =
            AttentionVariant::of(&tuning, &traits, &sizes(512, [4, 128], 1 << 30), &PARAMS).expect_err("too long");
        assert!(error.to_string().contains("1073741824 positions"), "{error}");
    }

    /// Mesa 22.3 ended the loops of these, by subgroups of 8 in two rows, before they came to this position.
    #[test]
    fn counts_are_a_little_above_what_was_measured() {
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
        for (head_dim, heads, unrolled, first_missed) in measured {
            let sizes = sizes(512, [heads, head_dim], 1024);
            let variant = AttentionVariant::of(&tuning, &traits, &sizes, &PARAMS).expect("possible");
            let variant = AttentionVariant { unrolled, ..variant };
            let counted = variant.iterations(&traits, first_missed + 1);
            assert!(
                (65_535..90_000).contains(&counted) && variant.rows == 2,
                "{variant:?}: {counted}"
            );
        }
    }
}
