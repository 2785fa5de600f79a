//! How the work of a decode step's attention is divided.

use super::{AttentionSizes, DecodeParams, OP};
use crate::kit::iterations::{self, joined_lanes, looped, rounds, too_many};
use crate::rms_norm::Norm;
use crate::tuning::{self, DecodeTuning, Tuning};
use crate::{OperandSpec, Traits, Unsupported};

/// Parts that are joined at once, as in the shader.
const AT_ONCE: usize = 8;

/// What a row says of so many sequences.
fn chosen(tuning: &Tuning, traits: &Traits, sizes: &AttentionSizes) -> DecodeTuning {
    let is_enough = |many: &&DecodeTuning| {
        let groups = sizes.tokens * sizes.heads / sizes.grouped_heads(many.most_heads);
        groups >= many.enough_groups.on(traits)
    };
    *tuning.decode_many.iter().find(is_enough).unwrap_or(&tuning.decode)
}

/// How the work is divided.
pub(super) struct DecodeVariant {
    /// Invocations of a row.
    pub lanes: u32,
    /// Rows of invocations.
    pub rows: u32,
    /// Query heads that a workgroup takes.
    pub heads: usize,
    /// Workgroups that share a token's positions.
    pub parts: usize,
    /// Positions of a tile.
    pub tile: usize,
    /// Values loaded at once.
    pub unit: usize,
    /// Whether loops over an invocation's values are unrolled.
    pub unrolled: bool,
}

impl DecodeVariant {
    pub(super) fn of(
        tuning: &Tuning,
        traits: &Traits,
        operands: &[&OperandSpec],
        sizes: &AttentionSizes,
        params: &DecodeParams,
    ) -> Result<DecodeVariant, Unsupported> {
        let decode = &chosen(tuning, traits, sizes);
        let lanes = tuning::lanes(traits);
        let heads = sizes.grouped_heads(decode.most_heads);
        let tile = decode.positions as usize;
        let groups = (sizes.tokens * sizes.heads / heads).max(1);
        let most = (decode.enough_groups.on(traits) / groups).min(sizes.reach / tile);
        let wide = 16 / operands[0].dtype.size();
        let whole = [sizes.head_dim, sizes.value_dim]
            .iter()
            .all(|dim| dim.is_multiple_of(wide));
        let unit = if whole { wide } else { 2 };
        let variant = DecodeVariant {
            lanes,
            rows: decode.threads / lanes,
            heads,
            parts: most.clamp(1, decode.most_parts as usize),
            tile,
            unit,
            unrolled: decode.unrolled,
        };
        match variant.shared_bytes(sizes) > traits.shared_bytes as usize {
            false => variant.within(traits, sizes, params),
            true if heads > 1 => {
                let mut fewer = *tuning;
                fewer.decode_many = &[];
                fewer.decode.most_heads = heads as u32 - 1;
                DecodeVariant::of(&fewer, traits, operands, sizes, params)
            }
            true => Err(Unsupported::Size {
                op: OP,
                what: format!("heads of {} values do not fit into shared memory", sizes.head_dim),
            }),
        }
    }

    /// The same in so many parts that each stays below the drivers' limit of iterations, if they have one.
    fn within(
        self,
        traits: &Traits,
        sizes: &AttentionSizes,
        params: &DecodeParams,
    ) -> Result<DecodeVariant, Unsupported> {
        let Some(most) = iterations::most(traits) else {
            return Ok(self);
        };
        let span = sizes.span(&params.attention);
        (self.parts..=self.parts.max(span.div_ceil(self.tile)))
            .map(|parts| DecodeVariant { parts, ..self })
            .find(|variant| variant.iterations(traits, sizes, params, span) <= most)
            .ok_or_else(|| too_many(OP, &format!("{span} positions of heads of {} values", sizes.head_dim)))
    }

    /// Iterations of an invocation that takes its part of `span` positions.
    pub(super) fn iterations(
        &self,
        traits: &Traits,
        sizes: &AttentionSizes,
        params: &DecodeParams,
        span: usize,
    ) -> usize {
        let (threads, rows, lanes) = (self.threads(), self.rows as usize, self.lanes as usize);
        let [_, groups] = self.columns(sizes);
        let join = joined_lanes(traits);
        let unroll = |turns: usize, inner: usize| rounds(self.unrolled, turns, inner);
        let subs = threads / self.tile;
        let keys = unroll((sizes.head_dim / self.unit).div_ceil(subs), 0);
        let values = unroll(self.tile.div_ceil(groups), 0);
        let weights = looped(self.tile.div_ceil(lanes), looped(subs, 0)) + looped(self.tile.div_ceil(lanes), 0);
        let tile = keys + 2 * values + looped(self.heads.div_ceil(rows), weights + 2 * join);
        let turns = span.div_ceil(self.parts).div_ceil(self.tile);
        // What makes queries and key, before the first tile.
        let [vectors, value, own] = [
            self.heads.div_ceil(rows) + 1,
            sizes.value_dim.div_ceil(threads),
            (sizes.head_dim + sizes.value_dim).div_ceil(threads),
        ];
        let make = 2 * unroll(vectors, 2 * unroll(sizes.head_dim.div_ceil(lanes), 0) + join)
            + 2 * unroll(value, 0)
            + looped(own, 0);
        let rotated = params.heads.rotated_pairs();
        let rotate = 2 * unroll(rotated / threads + 1, 0) + looped((self.heads + 1) * rotated / threads + 1, 0);
        // What sums over the groups, and joins the parts.
        let parts = looped(self.parts.div_ceil(AT_ONCE), 3 * unroll(AT_ONCE, 0));
        let pairs = (self.heads * sizes.value_dim / 2).div_ceil(threads);
        let finish = looped(pairs, looped(groups, 0)) + looped(pairs, parts);
        make + rotate + looped(turns, tile) + finish
    }

    fn threads(&self) -> usize {
        (self.rows * self.lanes) as usize
    }

    /// Invocations along a head's values, and groups of them.
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
            (9, (self.threads() / self.tile) as u32),
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
        subnormal_halves: true,
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

    /// The variant for one token over `reach` positions, and the iterations of its invocations.
    fn variant(state: DType, [heads, head_dim]: [usize; 2], reach: usize) -> (DecodeVariant, usize) {
        let tuning = tuning::choose(&TRAITS);
        let sizes = AttentionSizes {
            tokens: 1,
            heads,
            kv_heads: 1,
            head_dim,
            value_dim: head_dim,
            slots: reach,
            sequences: 1,
            table: reach,
            reach,
        };
        let params = DecodeParams {
            attention: AttentionParams {
                scale: 1.0,
                page_size: 1,
                window: None,
                decode: true,
            },
            heads: HeadPreparation {
                rope: Some(rope::RopeParams::new(head_dim)),
                q_norm: NORM,
                k_norm: NORM,
            },
            sinks: false,
            gated: false,
        };
        let keys = OperandSpec::contiguous(state, &[reach, 1, head_dim]);
        let variant = DecodeVariant::of(tuning, &TRAITS, &[&keys], &sizes, &params).expect("possible");
        let iterations = variant.iterations(&TRAITS, &sizes, &params, reach);
        (variant, iterations)
    }

    #[test]
    fn long_contexts_are_shared_by_enough_parts_for_software_drivers() {
        for state in [DType::F32, DType::F16] {
            for reach in [4096, 32_768, 131_072, 262_144] {
                for head_dim in (64..=256).step_by(2) {
                    for heads in [1, 4, 32] {
                        let (variant, counted) = variant(state, [heads, head_dim], reach);
                        let parts = variant.parts;
                        assert!(
                            Some(counted) <= iterations::most(&TRAITS),
                            "{heads} heads of {head_dim} {state}, {parts} parts: {counted}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn short_contexts_are_not_shared_by_more_workgroups_than_keep_the_device_busy() {
        assert_eq!(variant(DType::F16, [8, 128], 4096).0.parts, 1);
        assert_eq!(variant(DType::F16, [2, 128], 4096).0.parts, 2);
    }

    /// Mesa 22.3 ended the loops of one part before they came to this position.
    #[test]
    fn counts_are_a_little_above_what_was_measured() {
        let measured = [
            (DType::F16, 4, 64, 34_925),
            (DType::F16, 4, 128, 24_926),
            (DType::F16, 4, 256, 15_855),
            (DType::F32, 4, 256, 12_751),
        ];
        for (state, heads, head_dim, first_missed) in measured {
            let (variant, iterations) = variant(state, [heads, head_dim], first_missed);
            let all = iterations * variant.parts;
            assert!(
                (65_535..130_000).contains(&all),
                "{heads} heads of {head_dim} {state}: {all}"
            );
        }
    }
}
