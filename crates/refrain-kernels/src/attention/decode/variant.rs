//! Division of the work of decode attention.

use super::super::blocks::UNIT;
use super::{AttentionSizes, DecodeParams, OP};
use crate::kit::iterations::{self, lane_reduction, loop_or_unrolled, looped, too_many};
use crate::rms_norm::Norm;
use crate::tuning::{self, DecodeTuning, SHORT_CACHE, Tuning};
use crate::{OperandSpec, Traits, Unsupported};

/// Maximum number of positions whose keys and values an invocation holds, where subgroups have positions of their own.
const MAX_STEPS: usize = 8;
/// Number of positions up to which as many workgroups as the tuning says share the device. With more, three quarters do: an
/// invocation needs more registers.
const FEW_STEPS: usize = 4;
/// Splits combined per step, as in the shader.
const SPLITS_PER_STEP: usize = 8;

/// Returns the tuning for this number of sequences, the first entry that still fills the device, or for short caches.
fn choose(tuning: &Tuning, traits: &Traits, sizes: &AttentionSizes) -> DecodeTuning {
    let fills_device = |many: &DecodeTuning| {
        let heads = sizes.grouped_heads(many.max_heads);
        heads >= many.min_heads as usize && sizes.tokens * sizes.heads / heads >= many.target_groups.on(traits)
    };
    let short = tuning.decode_short.filter(|_| sizes.capacity <= SHORT_CACHE);
    let many = tuning.decode_many.iter().copied().find(fills_device);
    many.or(short).unwrap_or(tuning.decode)
}

/// Whether subgroups have positions of their own: each of `unit` values of a head has a lane, and all groups of lanes have
/// positions.
fn divides_among_subgroup(decode: &DecodeTuning, traits: &Traits, sizes: &AttentionSizes, unit: usize) -> bool {
    let columns = sizes.value_dim / unit;
    decode.by_subgroups
        && traits.exchanges_lanes()
        && tuning::lanes(traits) == traits.subgroup_size
        && sizes.head_dim == sizes.value_dim
        && columns.is_power_of_two()
        && columns <= traits.subgroup_size as usize
        && decode.threads as usize <= decode.positions as usize * columns
}

/// Returns the positions of a tile, and the number of workgroups that fill the device. With positions of its own, a group
/// of a subgroup has so many `columns`.
fn tile(decode: &DecodeTuning, traits: &Traits, columns: Option<usize>) -> (usize, usize) {
    let (positions, threads) = (decode.positions as usize, decode.threads as usize);
    let filling = decode.target_groups.on(traits);
    let Some(columns) = columns else {
        return (positions.min(threads), filling);
    };
    let groups = threads / columns;
    let tile = positions.min(MAX_STEPS * groups);
    if tile > FEW_STEPS * groups {
        (tile, filling * 3 / 4)
    } else {
        (tile, filling)
    }
}

/// Division of a workgroup, and number of splits.
pub(super) struct DecodeVariant {
    /// Invocations per row.
    pub lanes: u32,
    /// Rows of invocations per workgroup.
    pub rows: u32,
    /// Query heads per workgroup.
    pub heads: usize,
    /// Workgroups that split a token's positions.
    pub splits: usize,
    /// Positions per tile.
    pub tile: usize,
    /// Values per load.
    pub unit: usize,
    /// Whether loops over an invocation's values are unrolled.
    pub unrolled: bool,
    /// Whether each subgroup goes through positions of its own.
    pub by_subgroups: bool,
}

impl DecodeVariant {
    /// Returns the tuning's division, with fewer heads per workgroup where shared memory is too small.
    pub(super) fn of(
        tuning: &Tuning,
        traits: &Traits,
        operands: &[&OperandSpec],
        sizes: &AttentionSizes,
        params: &DecodeParams,
    ) -> Result<DecodeVariant, Unsupported> {
        let decode = &choose(tuning, traits, sizes);
        let lanes = tuning::lanes(traits);
        let heads = sizes.grouped_heads(decode.max_heads);
        let wide = match params.attention.blocks[0] {
            Some(_) => UNIT,
            None => 16 / operands[0].dtype.size(),
        };
        let divides = [sizes.head_dim, sizes.value_dim]
            .iter()
            .all(|dim| dim.is_multiple_of(wide));
        let unit = if divides { wide } else { 2 };
        let by_subgroups = divides_among_subgroup(decode, traits, sizes, unit);
        let (tile, filling) = tile(decode, traits, by_subgroups.then_some(sizes.value_dim / unit));
        let groups = (sizes.tokens * sizes.heads / heads).max(1);
        let max_splits = (filling / groups).min(sizes.capacity / tile);
        let variant = DecodeVariant {
            lanes,
            rows: decode.threads / lanes,
            heads,
            splits: max_splits.clamp(1, decode.max_splits as usize),
            tile,
            unit,
            unrolled: decode.unrolled,
            by_subgroups,
        };
        if variant.shared_bytes(sizes) <= traits.shared_bytes as usize {
            return variant.limit_iterations(traits, sizes, params);
        }
        if heads == 1 {
            let what = format!("heads of {} values do not fit into shared memory", sizes.head_dim);
            return Err(Unsupported::Size { op: OP, what });
        }
        let mut fewer = *tuning;
        fewer.decode_many = &[];
        fewer.decode_short = None;
        fewer.decode.max_heads = heads as u32 - 1;
        DecodeVariant::of(&fewer, traits, operands, sizes, params)
    }

    /// Raises the number of splits until each stays below the driver's limit of iterations, if it has one.
    fn limit_iterations(
        self,
        traits: &Traits,
        sizes: &AttentionSizes,
        params: &DecodeParams,
    ) -> Result<DecodeVariant, Unsupported> {
        let Some(max_iterations) = iterations::max_iterations(traits) else {
            return Ok(self);
        };
        let span = sizes.span(&params.attention);
        (self.splits..=self.splits.max(span.div_ceil(self.tile)))
            .map(|splits| DecodeVariant { splits, ..self })
            .find(|variant| variant.iterations(traits, sizes, params, span) <= max_iterations)
            .ok_or_else(|| too_many(OP, &format!("{span} positions of heads of {} values", sizes.head_dim)))
    }

    /// Returns the loop iterations of an invocation for its split of `span` positions.
    pub(super) fn iterations(
        &self,
        traits: &Traits,
        sizes: &AttentionSizes,
        params: &DecodeParams,
        span: usize,
    ) -> usize {
        let (threads, rows, lanes) = (self.threads(), self.rows as usize, self.lanes as usize);
        let [_, groups] = self.columns(sizes);
        let join = lane_reduction(traits);
        let unroll = |turns: usize, inner: usize| loop_or_unrolled(self.unrolled, turns, inner);
        let values = unroll(self.tile.div_ceil(groups), 0);
        let tile = if self.by_subgroups {
            4 * values
        } else {
            let subs = threads / self.tile;
            let keys = unroll((sizes.head_dim / self.unit).div_ceil(subs), 0);
            let weights = looped(self.tile.div_ceil(lanes), looped(subs, 0)) + looped(self.tile.div_ceil(lanes), 0);
            keys + 2 * values + looped(self.heads.div_ceil(rows), weights + 2 * join)
        };
        let turns = span.div_ceil(self.splits).div_ceil(self.tile);
        // Preparation of queries and key, before the first tile.
        let [vectors, value, own] = [
            self.heads.div_ceil(rows) + 1,
            sizes.value_dim.div_ceil(threads),
            (sizes.head_dim + sizes.value_dim).div_ceil(threads),
        ];
        // A block's largest value is searched for one by one, for two blocks.
        let own = match params.attention.blocks[0] {
            Some(_) => looped(own, 2 * looped(32, 0)),
            None => looped(own, 0),
        };
        let prepare =
            2 * unroll(vectors, 2 * unroll(sizes.head_dim.div_ceil(lanes), 0) + join) + 2 * unroll(value, 0) + own;
        let rotated = params.heads.rotated_pairs();
        let rotate = 2 * unroll(rotated / threads + 1, 0) + looped((self.heads + 1) * rotated / threads + 1, 0);
        // Reduction over the groups, and combination of the splits.
        let combine = looped(self.splits.div_ceil(SPLITS_PER_STEP), 3 * unroll(SPLITS_PER_STEP, 0));
        let pairs = |heads: usize| (heads * sizes.value_dim / 2).div_ceil(threads);
        let finish = looped(pairs(self.heads), looped(groups, 0)) + looped(pairs(self.heads), combine);
        prepare + rotate + looped(turns, tile) + finish
    }

    fn threads(&self) -> usize {
        (self.rows * self.lanes) as usize
    }

    /// Returns the invocations along a head's values, and the number of such groups.
    fn columns(&self, sizes: &AttentionSizes) -> [usize; 2] {
        let columns = (sizes.value_dim / self.unit).min(self.threads());
        [columns, (self.threads() / columns).min(self.tile)]
    }

    fn shared_bytes(&self, sizes: &AttentionSizes) -> usize {
        let [_, groups] = self.columns(sizes);
        let vectors = (self.heads + 2) * sizes.head_dim + (1 + self.heads * groups) * sizes.value_dim;
        let floats = vectors + self.heads * (2 * self.threads() + 200);
        4 * (floats + self.threads()) + 1024
    }

    pub(super) fn constants(&self, sizes: &AttentionSizes, params: &DecodeParams) -> Vec<(u32, u32)> {
        let [columns, groups] = self.columns(sizes);
        let eps = |norm: Option<Norm>| norm.map_or(0.0, |n| n.eps).to_bits();
        let mut constants = vec![
            (0, self.rows * self.lanes),
            (3, self.lanes),
            (4, self.rows),
            (5, sizes.head_dim as u32),
            (6, self.heads as u32),
            (7, params.attention.page_size),
            (8, self.tile as u32),
            (10, columns as u32),
            (11, groups as u32),
            (12, (sizes.heads / sizes.kv_heads) as u32),
            (13, sizes.kv_heads as u32),
            (14, params.heads.rotated_pairs() as u32),
            (15, params.attention.scale.to_bits()),
            (16, params.heads.rope.map_or(1.0, |rope| rope.scale).to_bits()),
            (17, eps(params.heads.q_norm)),
            (18, eps(params.heads.k_norm)),
            (19, params.attention.window.unwrap_or(u32::MAX)),
        ];
        if !self.by_subgroups {
            constants.push((9, (self.threads() / self.tile) as u32));
        }
        if sizes.values_differ() {
            constants.push((20, sizes.value_dim as u32));
        }
        constants
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attention::{AttentionParams, HeadPreparation};
    use crate::{DType, rope};

    const TRAITS: Traits = Traits {
        vendor: 0x10005,
        architecture: crate::Architecture::Unknown,
        compute_units: None,
        memory: crate::MemoryKind::Unified,
        subgroup_size: 8,
        subgroup_required: false,
        full_subgroups: true,
        subgroup_uniform_flow: true,
        subgroup_arithmetic: true,
        subgroup_shuffle: true,
        storage16: true,
        storage8: true,
        integer_dot: false,
        exact_halves: true,
        tickets: true,
        max_invocations: 1024,
        push_bytes: 256,
        shared_bytes: 32_768,
        matrix_cores: None,
        tuning: None,
    };
    const NORM: Option<Norm> = Some(Norm {
        eps: 1e-6,
        weighted: true,
    });

    /// One token over `capacity` positions.
    fn sizes([heads, kv_heads]: [usize; 2], head_dim: usize, capacity: usize) -> AttentionSizes {
        AttentionSizes {
            tokens: 1,
            heads,
            kv_heads,
            head_dim,
            value_dim: head_dim,
            slots: capacity,
            sequences: 1,
            table: capacity,
            capacity,
        }
    }

    fn params(head_dim: usize) -> DecodeParams {
        DecodeParams {
            attention: AttentionParams {
                scale: 1.0,
                page_size: 1,
                window: None,
                decode: true,
                blocks: [None; 2],
            },
            heads: HeadPreparation {
                rope: Some(rope::RopeParams::new(head_dim)),
                q_norm: NORM,
                k_norm: NORM,
            },
            sinks: false,
            gated: false,
        }
    }

    /// Returns the variant for one token over `capacity` positions, and its iterations per invocation.
    fn variant(state: DType, [heads, head_dim]: [usize; 2], capacity: usize) -> (DecodeVariant, usize) {
        let tuning = tuning::choose(&TRAITS);
        let (sizes, params) = (sizes([heads, 1], head_dim, capacity), params(head_dim));
        let keys = OperandSpec::contiguous(state, &[capacity, 1, head_dim]);
        let variant = DecodeVariant::of(tuning, &TRAITS, &[&keys], &sizes, &params).expect("possible");
        let iterations = variant.iterations(&TRAITS, &sizes, &params, capacity);
        (variant, iterations)
    }

    #[test]
    fn long_contexts_are_split_below_the_iteration_limit_of_software_drivers() {
        for state in [DType::F32, DType::F16] {
            for capacity in [4096, 32_768, 131_072, 262_144] {
                for head_dim in (64..=256).step_by(2) {
                    for heads in [1, 4, 32] {
                        let (variant, counted) = variant(state, [heads, head_dim], capacity);
                        let splits = variant.splits;
                        assert!(
                            Some(counted) <= iterations::max_iterations(&TRAITS),
                            "{heads} heads of {head_dim} {state}, {splits} splits: {counted}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn short_contexts_have_no_more_splits_than_fill_the_device() {
        assert_eq!(variant(DType::F16, [8, 128], 4096).0.splits, 1);
        assert_eq!(variant(DType::F16, [2, 128], 4096).0.splits, 2);
    }

    /// Tokens of Qwen3-8B on an H200: one after a short and a long context, and many.
    #[test]
    fn subgroups_take_positions_of_long_caches_and_of_many_sequences() {
        let traits = Traits {
            vendor: 0x10de,
            architecture: crate::Architecture::Hopper,
            compute_units: Some(132),
            memory: crate::MemoryKind::Discrete,
            subgroup_size: 32,
            shared_bytes: 49_152,
            ..TRAITS
        };
        let division = |tokens: usize, capacity: usize, head_dim: usize| {
            let sizes = AttentionSizes {
                tokens,
                sequences: tokens,
                capacity,
                ..sizes([32, 8], head_dim, capacity)
            };
            let keys = OperandSpec::contiguous(DType::F16, &[capacity, 8, head_dim]);
            let tuning = tuning::choose(&traits);
            let variant = DecodeVariant::of(tuning, &traits, &[&keys], &sizes, &params(head_dim)).expect("possible");
            (variant.by_subgroups, variant.heads, variant.tile, variant.splits)
        };
        assert_eq!(division(1, SHORT_CACHE, 128), (false, 2, 64, 16));
        assert_eq!(division(1, SHORT_CACHE + 1, 128), (true, 2, 32, 33));
        assert_eq!(division(16, 256, 128), (true, 2, 64, 1));
        assert_eq!(division(64, 256, 128), (true, 4, 64, 1));
        assert!(!division(1, 16_384, 96).0, "12 lanes a head");
    }

    /// Mesa 22.3 ended the loops of a single split before they reached this position.
    #[test]
    fn iteration_counts_are_slightly_above_measured_ones() {
        let measured = [
            (DType::F16, 4, 64, 34_925),
            (DType::F16, 4, 128, 24_926),
            (DType::F16, 4, 256, 15_855),
            (DType::F32, 4, 256, 12_751),
        ];
        for (state, heads, head_dim, first_lost_position) in measured {
            let (variant, iterations) = variant(state, [heads, head_dim], first_lost_position);
            let all = iterations * variant.splits;
            assert!(
                (65_535..130_000).contains(&all),
                "{heads} heads of {head_dim} {state}: {all}"
            );
        }
    }
}
