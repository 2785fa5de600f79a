//! Attention over a paged KV cache, on the flat token axis.
//!
//! `q` `[T, H, Dk]`, `keys` `[slots, KVH, Dk]`, `values` `[slots, KVH, Dv]` (f32, f16 or bf16 each, or keys and values in
//! a [`BlockFormat`]; Dk and Dv even, 2 to 256), `positions` `[T]` i32, `sequences` `[T]` u32, `pages` `[S, P]` u32 →
//! `out` `[T, H, Dv]`, any float type. Token
//! `t` attends over the positions `p` from `max(0, positions[t] − window + 1)` up to and including `positions[t]` of
//! sequence `s = sequences[t]`; position `p` is in slot `pages[s, p / page_size] · page_size + p % page_size`, and
//! query head `h` reads KV head `h / (H / KVH)`. `out = Σ_p softmax_p(scale · q·k_p) · v_p`, accumulated in f32. With
//! attention sinks `[H]`, the softmax of head `h` includes a score `sinks[h]` whose value is zero (Xiao et al. 2023,
//! arXiv:2309.17453).
//!
//! A token of negative position is padding; its output is zero. Nothing outside the operands is ever read: a sequence
//! number is clamped to the last one, a page to the last that holds a slot, a slot to the last slot, and positions from
//! `P · page_size` on do not exist. A softmax over no position gives zeros.
//!
//! Entry points: [`calls`] for any tokens, [`decode()`] for one token per sequence fused with its preparation, and
//! [`prepare`] for the preparation of many tokens, [`heads`] for that of their queries or keys alone.

mod blocks;
mod decode;
pub mod heads;
mod matrix;
pub mod prepare;
mod reference;
mod sizes;
pub mod store;
mod variant;

pub use blocks::{BlockFormat, BlockRows};
pub use decode::{
    DecodeAttentionPlan, DecodeParams, call as decode, call_tuned as decode_tuned, check as check_decode,
};
pub use prepare::HeadPreparation;
pub(crate) use reference::slots;
pub use reference::{AttentionInputs, reference};

use std::hash::{Hash, Hasher};

use crate::kit::text::{SourceBuilder, address};
use crate::tuning::{self, Tuning};
use crate::{Call, DType, KernelSource, OperandSpec, Push, Traits, Unsupported};
use sizes::AttentionSizes;
use variant::AttentionVariant;

const OP: &str = "attention";

/// Parameters of [`calls`] besides its operands.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct AttentionParams {
    /// Factor of the scores, usually `1/√Dk`.
    pub scale: f32,
    /// Slots per page.
    pub page_size: u32,
    /// Sliding window in positions, the token's own included; `None` for all positions.
    pub window: Option<u32>,
    /// The caller guarantees that each token is the only one of its sequence in the call, and that its own key and
    /// value were written last.
    pub decode: bool,
    /// Block formats of keys and of values; `None` for floats.
    pub blocks: [Option<BlockFormat>; 2],
}

impl Hash for AttentionParams {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.scale.to_bits(), self.page_size, self.window).hash(state);
        (self.decode, self.blocks).hash(state);
    }
}

impl AttentionParams {
    /// Returns attention over all positions with scale 1/√`head_dim`, for any number of tokens per sequence.
    pub fn new(head_dim: usize, page_size: u32) -> AttentionParams {
        AttentionParams {
            scale: 1.0 / (head_dim as f32).sqrt(),
            page_size,
            window: None,
            decode: false,
            blocks: [None; 2],
        }
    }
}

/// Operands by number: q 0, keys 1, values 2, positions 3, sequences 4, pages 5. The sinks, if any, are number 6; out
/// is the last.
type AttentionOperands<'a> = [&'a OperandSpec; 7];

/// Returns the calls that compute attention, each depending on the one before, and the workspace they need, if any: a
/// further operand whose contents do not matter.
///
/// With too few tokens to keep the device busy, several workgroups split a token's positions (split-KV,
/// flash-decoding), and a second call combines their partial results from the workspace.
///
/// # Errors
/// [`Unsupported::NeedsContiguous`] when a head's values are not contiguous; [`Unsupported::Size`] when shapes
/// contradict each other or exceed the limits; [`Unsupported::DType`] for operands of other types.
pub fn calls(
    traits: &Traits,
    operands: AttentionOperands<'_>,
    sinks: Option<&OperandSpec>,
    params: &AttentionParams,
) -> Result<(Vec<Call>, Option<OperandSpec>), Unsupported> {
    calls_tuned(tuning::choose(traits), traits, operands, sinks, params)
}

/// [`calls`] with a given row of the tuning table.
///
/// # Errors
/// As [`calls`].
pub fn calls_tuned(
    tuning: &Tuning,
    traits: &Traits,
    operands: AttentionOperands<'_>,
    sinks: Option<&OperandSpec>,
    params: &AttentionParams,
) -> Result<(Vec<Call>, Option<OperandSpec>), Unsupported> {
    let sizes = AttentionSizes::of(operands, params)?;
    if let Some(sinks) = sinks {
        sizes.check_sinks(sinks, SINKS)?;
    }
    if let Some(call) = matrix::call(tuning, traits, operands, sinks, &sizes, params) {
        return Ok((vec![call?], None));
    }
    let variant = AttentionVariant::of(tuning, traits, &sizes, params)?;
    if variant.splits == 1 {
        return Ok((vec![attend(variant, traits, operands, sinks, &sizes, params)?], None));
    }
    // Of each split: its output, not yet divided by the sum of weights; the largest score; the sum of weights.
    let shape = [sizes.tokens, sizes.heads, variant.splits, sizes.value_dim + 2];
    let workspace = OperandSpec::contiguous(DType::F32, &shape);
    let mut split = operands;
    split[6] = &workspace;
    let calls = vec![
        attend(variant, traits, split, sinks, &sizes, params)?,
        combine(traits, &workspace, operands[6], sinks, &sizes)?,
    ];
    Ok((calls, Some(workspace)))
}

fn attend(
    variant: AttentionVariant,
    traits: &Traits,
    operands: AttentionOperands<'_>,
    sinks: Option<&OperandSpec>,
    sizes: &AttentionSizes,
    params: &AttentionParams,
) -> Result<Call, Unsupported> {
    let [q, .., out] = operands;
    let partial = variant.splits > 1;
    let output = if partial {
        workspace_number(sinks)
    } else {
        output_number(sinks)
    };
    // The combining call applies the sinks.
    let sinks = sinks.filter(|_| !partial);
    let mut push = addresses(operands, output, sinks)?;
    let numbers = [
        sizes.heads / sizes.kv_heads,
        sizes.kv_heads,
        sizes.head_dim,
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
    if sizes.values_differ() {
        push.push(Push::U32(sizes.value_dim as u32));
    }
    Ok(Call {
        kernel: kernel(variant, traits, operands, sinks, sizes, params),
        groups: groups(sizes, sizes.heads / variant.heads, variant.splits)?,
        push,
    })
}

/// Operand number of the sinks, if there are any.
const SINKS: usize = 6;

/// Returns the operand number of the output.
fn output_number(sinks: Option<&OperandSpec>) -> usize {
    SINKS + usize::from(sinks.is_some())
}

/// Returns the operand number of the workspace, after the operands.
fn workspace_number(sinks: Option<&OperandSpec>) -> usize {
    output_number(sinks) + 1
}

/// Returns the operands' addresses, the last of them being number `output`, then the sinks' address.
fn addresses(
    operands: AttentionOperands<'_>,
    output: usize,
    sinks: Option<&OperandSpec>,
) -> Result<Vec<Push>, Unsupported> {
    let numbered = operands.into_iter().zip((0..SINKS).chain([output]));
    let sinks = sinks.map(|sinks| (sinks, SINKS));
    let all = numbered.chain(sinks);
    all.map(|(operand, number)| address(OP, number, operand)).collect()
}

/// Returns a grid of a workgroup for each of `heads`, tokens and `splits`.
fn groups(sizes: &AttentionSizes, heads: usize, splits: usize) -> Result<[u32; 3], Unsupported> {
    let groups = [heads, sizes.tokens, splits];
    if groups.iter().any(|&g| g > 65_535) {
        let what = format!(
            "{} tokens and {} heads exceed the limit of 65535",
            sizes.tokens, sizes.heads
        );
        return Err(Unsupported::Size { op: OP, what });
    }
    Ok(groups.map(|g| g.max(1) as u32))
}

/// Returns the call that combines the splits in the workspace.
fn combine(
    traits: &Traits,
    partial: &OperandSpec,
    out: &OperandSpec,
    sinks: Option<&OperandSpec>,
    sizes: &AttentionSizes,
) -> Result<Call, Unsupported> {
    let numbers = [
        partial.layout.shape[2],
        sizes.value_dim,
        out.layout.strides[0],
        out.layout.strides[1],
    ];
    let mut push = vec![
        address(OP, workspace_number(sinks), partial)?,
        address(OP, output_number(sinks), out)?,
    ];
    if let Some(sinks) = sinks {
        push.push(address(OP, SINKS, sinks)?);
    }
    push.extend(numbers.map(|v| Push::U32(v as u32)));
    Ok(Call {
        kernel: with_sinks(SourceBuilder::new(traits, "attention.combine"), sinks)
            .input("x", DType::F32)
            .output("y", out.dtype)
            .body(include_str!("combine.comp"))
            .kernel(vec![(0, traits.workgroup(sizes.value_dim.next_power_of_two() as u32))]),
        groups: groups(sizes, sizes.heads, 1)?,
        push,
    })
}

/// Adds the sinks to a kernel's text, if there are any.
fn with_sinks<'t>(text: SourceBuilder<'t>, sinks: Option<&OperandSpec>) -> SourceBuilder<'t> {
    match sinks {
        Some(sinks) => text.define("SINKS", 1).input("sinks", sinks.dtype),
        None => text,
    }
}

fn kernel(
    variant: AttentionVariant,
    traits: &Traits,
    [q, keys, values, .., out]: AttentionOperands<'_>,
    sinks: Option<&OperandSpec>,
    sizes: &AttentionSizes,
    params: &AttentionParams,
) -> KernelSource {
    with_sinks(SourceBuilder::new(traits, OP), sinks)
        .define("LANE_VALUE", "vec4")
        .define("UNROLL_PAIRS", u32::from(variant.unrolled))
        .define("PARTIAL", u32::from(variant.splits > 1))
        .flag("VALUES_DIFFER", sizes.values_differ())
        .input("q", q.dtype)
        .pairs_or_blocks("keys", keys.dtype, params.blocks[0])
        .pairs_or_blocks("values", values.dtype, params.blocks[1])
        .input("positions", DType::I32)
        .input("sequences", DType::U32)
        .input("pages", DType::U32)
        .output("y", out.dtype)
        .body(include_str!("../kit/lanes.glsl"))
        .body(include_str!("attention.comp"))
        .kernel(variant.constants(params.page_size))
}
