//! Attention of many tokens on matrix cores.
//!
//! Queries, times the scale, and weights are rounded to f16, as keys and values are stored; scores, maxima,
//! sums and results are f32.

use super::sizes::AttentionSizes;
use super::{AttentionOperands, AttentionParams, OP, addresses, output, with_sinks};
use crate::kit::text::Text;
use crate::tuning::Tuning;
use crate::vocabulary::MatrixCores;
use crate::{Call, DType, OperandSpec, Push, Traits, Unsupported};

/// Subgroups of a workgroup.
const SUBGROUPS: usize = 8;

/// The call on matrix cores, where the device has some and operands suit them.
pub(super) fn call(
    tuning: &Tuning,
    traits: &Traits,
    operands: AttentionOperands<'_>,
    sinks: Option<&OperandSpec>,
    sizes: &AttentionSizes,
    params: &AttentionParams,
) -> Option<Result<Call, Unsupported>> {
    let cores = traits.matrix_cores.filter(|cores| !cores.is_hidden())?;
    let [_, keys, values, ..] = operands;
    let AttentionSizes {
        head_dim, value_dim, ..
    } = *sizes;
    let size = cores.size as usize;
    let positions = tuning.attention.matrix_fragments / (1 + usize::from(head_dim.max(value_dim) > 128)) * size;
    // Of a position's values, those that a lane takes: of every lane as many.
    let lanes = (traits.subgroup_size / cores.lanes_per_row()) as usize;
    let lane_values = value_dim / lanes;
    let suits = sizes.tokens >= tuning.attention.least_matrix_tokens
        && [keys, values].iter().all(|o| o.dtype == DType::F16)
        && head_dim.is_multiple_of(8 * cores.lanes_per_row() as usize)
        && value_dim.is_multiple_of(size)
        && value_dim.is_multiple_of(4 * lanes)
        && (params.page_size as usize).is_multiple_of(positions);
    suits.then(|| made(cores, traits, operands, sinks, sizes, params, [positions, lane_values]))
}

fn made(
    cores: MatrixCores,
    traits: &Traits,
    operands: AttentionOperands<'_>,
    sinks: Option<&OperandSpec>,
    sizes: &AttentionSizes,
    params: &AttentionParams,
    [positions, lane_values]: [usize; 2],
) -> Result<Call, Unsupported> {
    let [q, .., out] = operands;
    let mut push = addresses(operands, output(sinks), sinks)?;
    let ratio = sizes.heads / sizes.kv_heads;
    let heads = sizes.grouped_heads(SUBGROUPS as u32);
    let subgroups = SUBGROUPS / heads * heads;
    let numbers = [
        sizes.tokens,
        ratio,
        sizes.kv_heads,
        sizes.slots,
        sizes.sequences,
        sizes.table,
        sizes.reach,
        params.window.unwrap_or(u32::MAX) as usize,
        q.layout.strides[0],
        q.layout.strides[1],
        out.layout.strides[0],
        out.layout.strides[1],
    ];
    push.extend(numbers.map(|v| Push::U32(v as u32)));
    push.push(Push::F32(params.scale));
    let tiles = sizes.tokens.div_ceil(cores.size as usize).div_ceil(subgroups / heads);
    let groups = [sizes.heads / heads, tiles, 1];
    if groups.iter().any(|&g| g > 65_535) {
        let what = format!("{} tokens and {} heads are too many", sizes.tokens, sizes.heads);
        return Err(Unsupported::Size { op: OP, what });
    }
    let (run, words) = if lane_values.is_multiple_of(8) {
        ("8u", "uvec4")
    } else {
        ("4u", "uvec2")
    };
    let text = with_sinks(Text::with_fragments(traits, "attention.matrix"), sinks);
    let text = match sizes.values_differ() {
        true => text.define("VALUE_DIM", format!("{}u", sizes.value_dim)),
        false => text,
    };
    let text = text
        .define("RUN", run)
        .define("RUN_WORDS", words)
        .input("q", q.dtype)
        .input("positions", DType::I32)
        .input("sequences", DType::U32)
        .input("pages", DType::U32)
        .output("y", out.dtype)
        .define("HEAD_DIM", format!("{}u", sizes.head_dim))
        .define("POSITIONS", format!("{positions}u"))
        .define("PAGE_SIZE", format!("{}u", params.page_size))
        .define("HEADS", format!("{heads}u"))
        .define("SUBGROUPS", format!("{subgroups}u"));
    let kernel = cores
        .define(traits, text)
        .body(include_str!("matrix.comp"))
        .kernel(vec![(0, subgroups as u32 * traits.subgroup_size)]);
    Ok(Call {
        kernel,
        groups: groups.map(|g| g as u32),
        push,
    })
}
