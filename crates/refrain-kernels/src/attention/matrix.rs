//! Attention of many tokens on matrix cores (flash-attention).
//!
//! Queries, times the scale, and softmax weights are rounded to f16, as keys and values are stored or, from a block
//! format, become in shared memory. Scores, maxima, sums and outputs are f32.

use super::blocks::UNIT;
use super::sizes::AttentionSizes;
use super::{AttentionOperands, AttentionParams, OP, addresses, output_number, with_sinks};
use crate::kit::text::{SourceBuilder, is_wide};
use crate::tuning::Tuning;
use crate::vocabulary::MatrixCores;
use crate::{Call, DType, OperandSpec, Push, Traits, Unsupported};

/// Maximum bytes of keys and values per block. Few devices have much more shared memory per workgroup, and registers
/// hold the next block.
const MAX_BLOCK_BYTES: usize = 32 << 10;

/// Maximum number of outputs per lane in fragments of unknown element order.
const MAX_OUTPUTS_PER_LANE: usize = 128;

/// Division of the work.
struct MatrixVariant {
    /// Subgroups per workgroup, each with a fragment of tokens of one head.
    subgroups: usize,
    /// Query heads per workgroup.
    heads: usize,
    /// Positions per block; a page holds whole blocks.
    positions: usize,
    groups: [usize; 3],
}

impl MatrixVariant {
    /// Returns the tuning's division, with smaller blocks where shared memory is too small. `None` if not even a
    /// fragment of positions fits.
    fn of(
        tuning: &Tuning,
        traits: &Traits,
        cores: MatrixCores,
        sizes: &AttentionSizes,
        params: &AttentionParams,
    ) -> Option<MatrixVariant> {
        let attention = &tuning.attention;
        let size = cores.size as usize;
        let fits = |positions: usize, subgroups: u32| {
            let block = 2 * positions * (sizes.head_dim + sizes.value_dim);
            let staged = if cores.is_opaque() {
                subgroups as usize * size * (6 * positions + 4 * size)
            } else {
                0
            };
            (params.page_size as usize).is_multiple_of(positions)
                && block <= MAX_BLOCK_BYTES
                && block + staged <= traits.shared_bytes as usize
        };
        let max_subgroups = traits.max_invocations / traits.subgroup_size;
        let divide = |subgroups: u32, fragments: usize| {
            // Fewer subgroups rather than none.
            let fewer = (0..u32::BITS)
                .map(|n| subgroups.min(max_subgroups) >> n)
                .take_while(|&n| n > 0);
            let (subgroups, positions) = fewer
                .flat_map(|n| (1..=fragments).rev().map(move |fragments| (n, fragments * size)))
                .find(|&(subgroups, positions)| fits(positions, subgroups))?;
            let heads = sizes.grouped_heads(subgroups);
            let tiles = subgroups as usize / heads;
            Some(MatrixVariant {
                subgroups: tiles * heads,
                heads,
                positions,
                groups: [sizes.heads / heads, sizes.tokens.div_ceil(size).div_ceil(tiles), 1],
            })
        };
        let variant = divide(attention.matrix_subgroups, attention.matrix_fragments)?;
        let enough = attention.target_matrix_groups.on(traits);
        if variant.groups.iter().product::<usize>() >= enough {
            Some(variant)
        } else {
            divide(attention.matrix_subgroups_few, attention.matrix_fragments_few)
        }
    }
}

/// Returns the call on matrix cores, or `None` if the device has none or operands do not suit them. In decode each token
/// has keys of its own, of which a fragment would use one row.
pub(super) fn call(
    tuning: &Tuning,
    traits: &Traits,
    operands: AttentionOperands<'_>,
    sinks: Option<&OperandSpec>,
    sizes: &AttentionSizes,
    params: &AttentionParams,
) -> Option<Result<Call, Unsupported>> {
    let cores = traits.matrix_cores?;
    let [_, keys, values, ..] = operands;
    let AttentionSizes {
        head_dim, value_dim, ..
    } = *sizes;
    let lanes = value_lanes(cores, traits);
    let values_fit = if cores.is_opaque() {
        value_dim * cores.size as usize <= MAX_OUTPUTS_PER_LANE * traits.subgroup_size as usize
    } else {
        value_dim.is_multiple_of(4 * lanes)
    };
    let suits = values_fit
        && !params.decode
        && sizes.tokens >= tuning.attention.min_matrix_tokens
        && [keys, values]
            .into_iter()
            .zip(params.blocks)
            .all(|(o, format)| format.is_some() || o.dtype == DType::F16)
        && (params.blocks[1].is_none() || run(cores, traits, value_dim) == UNIT)
        && head_dim.is_multiple_of(8 * cores.lanes_per_row() as usize)
        && value_dim.is_multiple_of(cores.size as usize);
    if !suits {
        return None;
    }
    let variant = MatrixVariant::of(tuning, traits, cores, sizes, params)?;
    Some(build_call(&variant, cores, traits, operands, sinks, sizes, params))
}

/// Returns the number of lanes that divide a position's values evenly.
fn value_lanes(cores: MatrixCores, traits: &Traits) -> usize {
    (traits.subgroup_size / cores.lanes_per_row()) as usize
}

/// Returns the number of neighbouring values of a position that a lane loads at once.
fn run(cores: MatrixCores, traits: &Traits, value_dim: usize) -> usize {
    let lane_values = value_dim / value_lanes(cores, traits);
    if cores.is_opaque() || lane_values.is_multiple_of(8) {
        8
    } else {
        4
    }
}

fn build_call(
    variant: &MatrixVariant,
    cores: MatrixCores,
    traits: &Traits,
    operands: AttentionOperands<'_>,
    sinks: Option<&OperandSpec>,
    sizes: &AttentionSizes,
    params: &AttentionParams,
) -> Result<Call, Unsupported> {
    let [q, .., out] = operands;
    let mut push = addresses(operands, output_number(sinks), sinks)?;
    let ratio = sizes.heads / sizes.kv_heads;
    let &MatrixVariant {
        subgroups,
        heads,
        positions,
        groups,
    } = variant;
    let numbers = [
        sizes.tokens,
        ratio,
        sizes.kv_heads,
        sizes.slots,
        sizes.sequences,
        sizes.table,
        sizes.capacity,
        params.window.unwrap_or(u32::MAX) as usize,
        q.layout.strides[0],
        q.layout.strides[1],
        out.layout.strides[0],
        out.layout.strides[1],
    ];
    push.extend(numbers.map(|v| Push::U32(v as u32)));
    push.push(Push::F32(params.scale));
    if groups.iter().any(|&g| g > 65_535) {
        let what = format!(
            "{} tokens and {} heads exceed the limit of 65535",
            sizes.tokens, sizes.heads
        );
        return Err(Unsupported::Size { op: OP, what });
    }
    let (run, words, bytes) = match run(cores, traits, sizes.value_dim) {
        8 => ("8u", "uvec4", 16),
        _ => ("4u", "uvec2", 8),
    };
    let text = with_sinks(SourceBuilder::with_fragments(traits, "attention.matrix"), sinks);
    let text = text
        .define("RUN", run)
        .define("RUN_WORDS", words)
        .define("RUN_BYTES", bytes)
        .input("q", q.dtype)
        .runs("q", q.dtype, 8, is_wide(q, &q.layout.strides[..2]))
        .input("positions", DType::I32)
        .input("sequences", DType::U32)
        .input("pages", DType::U32)
        .output("y", out.dtype)
        .store_vec4("y", out.dtype, is_wide(out, &out.layout.strides[..2]))
        .define("HEAD_DIM", format!("{}u", sizes.head_dim))
        .define("VALUE_DIM", format!("{}u", sizes.value_dim))
        .define("POSITIONS", format!("{positions}u"))
        .define("PAGE_SIZE", format!("{}u", params.page_size))
        .define("HEADS", format!("{heads}u"))
        .define("SUBGROUPS", format!("{subgroups}u"))
        .blocks("keys", params.blocks[0])
        .blocks("values", params.blocks[1]);
    let kernel = cores
        .define(traits, text)
        .body(include_str!("matrix.comp"))
        .body(fragment_access(cores))
        .kernel(vec![(0, subgroups as u32 * traits.subgroup_size)]);
    Ok(Call {
        kernel,
        groups: groups.map(|g| g as u32),
        push,
    })
}

/// The text that loads and stores fragments.
fn fragment_access(cores: MatrixCores) -> &'static str {
    if cores.is_opaque() {
        concat!(
            include_str!("../kit/fragments/meet.glsl"),
            include_str!("matrix/opaque_layout.glsl")
        )
    } else {
        include_str!("matrix/known_layout.glsl")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuning;
    use crate::vocabulary::FragmentOrder;

    /// Returns subgroups, heads and positions of a workgroup on a device of 132 compute units, with an H200's tuning.
    fn divide(tokens: usize, head_dim: usize, page_size: u32, traits: Traits) -> Option<[usize; 3]> {
        let cores = MatrixCores::with_order(16, FragmentOrder::Quads);
        let sizes = AttentionSizes {
            tokens,
            heads: 32,
            kv_heads: 8,
            head_dim,
            value_dim: head_dim,
            slots: 4096,
            sequences: 1,
            table: 4096 / page_size as usize,
            capacity: 4096,
        };
        let params = AttentionParams::new(head_dim, page_size);
        let variant = MatrixVariant::of(&tuning::TABLE[0], &traits, cores, &sizes, &params)?;
        let MatrixVariant {
            subgroups,
            heads,
            positions,
            groups,
        } = variant;
        let tiles = tokens.div_ceil(16).div_ceil(subgroups / heads);
        assert_eq!(groups, [32 / heads, tiles, 1]);
        Some([subgroups, heads, positions])
    }

    fn card() -> Traits {
        Traits {
            compute_units: Some(132),
            subgroup_size: 32,
            max_invocations: 1024,
            shared_bytes: 48 << 10,
            ..Traits::minimal()
        }
    }

    #[test]
    fn workgroups_shrink_to_fill_the_device_and_to_its_limits() {
        assert_eq!(divide(256, 128, 64, card()), Some([4, 4, 32]));
        assert_eq!(divide(512, 128, 64, card()), Some([8, 4, 64]));
        let small = Traits {
            max_invocations: 96,
            ..card()
        };
        assert_eq!(divide(2048, 128, 64, small), Some([2, 2, 64]));
    }

    #[test]
    fn blocks_fit_into_pages_and_shared_memory() {
        assert_eq!(divide(2048, 64, 96, card()), Some([8, 4, 48]));
        assert_eq!(divide(2048, 256, 64, card()), Some([8, 4, 32]));
        assert_eq!(divide(2048, 128, 24, card()), None);
        let with = |shared_bytes| Traits { shared_bytes, ..card() };
        assert_eq!(divide(2048, 128, 64, with(16 << 10)), Some([8, 4, 32]));
        assert_eq!(divide(2048, 128, 64, with(4 << 10)), None);
    }
}
