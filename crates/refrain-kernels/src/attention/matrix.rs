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

/// The most subgroups of a workgroup.
const SUBGROUPS: usize = 8;
/// Shared memory that is left to others.
const SPARED: usize = 1 << 10;

/// The call on matrix cores, where the device has some and operands suit them.
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
    let shares = KeyShares::new(tuning, traits, cores, sizes);
    let suits = sizes.tokens >= tuning.attention.least_matrix_tokens
        && [keys, values].iter().all(|o| o.dtype == DType::F16)
        && head_dim.is_multiple_of(8 * cores.lanes_per_row() as usize)
        && value_dim.is_multiple_of(cores.size as usize)
        && value_dim.is_multiple_of(4 * rows_each(traits, cores))
        && (params.page_size as usize).is_multiple_of(shares.positions);
    suits.then(|| made(cores, traits, operands, sinks, sizes, params, shares))
}

/// Rows of a fragment that a subgroup's lanes hold together: so many lanes share a position's values.
fn rows_each(traits: &Traits, cores: MatrixCores) -> usize {
    (traits.subgroup_size / cores.lanes_per_row()) as usize
}

/// How a workgroup's subgroups share tokens and the positions that they see.
struct KeyShares {
    /// Query heads of a workgroup.
    heads: usize,
    /// Fragments of tokens of one head.
    units: usize,
    /// Subgroups that take turns with a fragment's positions.
    parts: usize,
    /// Positions that a subgroup takes at a time.
    positions: usize,
}

impl KeyShares {
    /// As many to a fragment as keep the device busy, and as have room for what they leave each other.
    fn new(tuning: &Tuning, traits: &Traits, cores: MatrixCores, sizes: &AttentionSizes) -> KeyShares {
        let attention = &tuning.attention;
        let fragments = sizes.tokens.div_ceil(cores.size as usize) * sizes.heads;
        let enough = attention.enough_matrix_subgroups.on(traits);
        let each = 4 * cores.size as usize * (sizes.value_dim + 2 * cores.lanes_per_row() as usize);
        let fits = |subgroups: usize, parts: usize| {
            (subgroups - subgroups / parts) * each + SPARED <= traits.shared_bytes as usize
        };
        let room = |parts: usize| {
            let subgroups = [SUBGROUPS, SUBGROUPS / 2].into_iter().find(|&s| fits(s, parts));
            subgroups.filter(|subgroups| *subgroups >= parts)
        };
        let mut shares = (SUBGROUPS, 1);
        while 2 * shares.1 <= attention.most_matrix_parts as usize && fragments * shares.1 < enough {
            let Some(subgroups) = room(2 * shares.1) else { break };
            shares = (subgroups, 2 * shares.1);
        }
        let (subgroups, parts) = shares;
        let heads = sizes.grouped_heads((subgroups / parts) as u32);
        let wide = sizes.head_dim.max(sizes.value_dim) > 128;
        KeyShares {
            heads,
            units: subgroups / parts / heads * heads,
            parts,
            positions: attention.matrix_fragments / (1 + usize::from(wide)) * cores.size as usize,
        }
    }
}

fn made(
    cores: MatrixCores,
    traits: &Traits,
    operands: AttentionOperands<'_>,
    sinks: Option<&OperandSpec>,
    sizes: &AttentionSizes,
    params: &AttentionParams,
    shares: KeyShares,
) -> Result<Call, Unsupported> {
    let KeyShares {
        heads,
        units,
        parts,
        positions,
    } = shares;
    let [q, .., out] = operands;
    let mut push = addresses(operands, output(sinks), sinks)?;
    let ratio = sizes.heads / sizes.kv_heads;
    let subgroups = units * parts;
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
    let tiles = sizes.tokens.div_ceil(cores.size as usize).div_ceil(units / heads);
    let groups = [sizes.heads / heads, tiles, 1];
    if groups.iter().any(|&g| g > 65_535) {
        let what = format!("{} tokens and {} heads are too many", sizes.tokens, sizes.heads);
        return Err(Unsupported::Size { op: OP, what });
    }
    let (run, words) = if sizes.value_dim.is_multiple_of(8 * rows_each(traits, cores)) {
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
        .define("SUBGROUPS", format!("{subgroups}u"))
        .define("KEY_PARTS", parts);
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
