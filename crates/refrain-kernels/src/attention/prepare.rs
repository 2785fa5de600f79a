//! Preparation of queries, keys and values of many tokens for attention, in one dispatch: norms and RoPE of queries and
//! keys, and the write of keys and values into the KV cache.
//!
//! `keys` `[slots, KVH, Dk]` and `values` `[slots, KVH, Dv]` floats of one dtype, updated in place; `q` `[T, H, Dk]`,
//! `k` `[T, KVH, Dk]` and `v` `[T, KVH, Dv]` floats of one dtype whose heads may have gaps; `slots` `[T]` i32 and
//! `positions` `[T]` i32 → `out` `[T, H, Dk]`, the queries. The result is that of [`crate::rms_norm`] over the heads of q and
//! of k, [`crate::rope`] of both, and [`crate::write_rows`] of k and v, in this order. Norms and RoPE are optional.
//!
//! Operands by number: keys 0, values 1, q 2, k 3, v 4, slots 5, positions 6; then, where present, RoPE's frequencies,
//! the weights of q's and of k's norm; then out.

use std::fmt;

use super::OP;
use crate::kit::arguments::PushArguments;
use crate::kit::text::{
    SourceBuilder, address, grid, is_wide, require_contiguous, require_dtype, require_float, require_shape,
};
use crate::rms_norm::Norm;
use crate::{Call, DType, OperandSpec, Traits, Unsupported, rope, tuning};

/// Maximum head dimension.
const MAX_HEAD_DIM: usize = 256;
/// Heads of a token per row of invocations, which variant sines and cosines. The fastest of 1 to 8 on an H200.
const HEADS_PER_ROW: usize = 2;
/// Invocations per workgroup.
const THREADS: u32 = 128;
/// Number of the first optional operand.
const OPTIONAL: usize = 7;

/// Norms and RoPE of each head of queries and keys before attention.
#[derive(Clone, Copy, PartialEq, Hash, Debug, Default)]
pub struct HeadPreparation {
    /// RoPE of queries and keys.
    pub rope: Option<rope::RopeParams>,
    /// The norm of each head of the queries.
    pub q_norm: Option<Norm>,
    /// The norm of each head of the keys.
    pub k_norm: Option<Norm>,
}

impl fmt::Display for HeadPreparation {
    /// Writes each step after " of".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.rope.is_some() {
            f.write_str(" of rope")?;
        }
        for (name, norm) in [("q", self.q_norm), ("k", self.k_norm)] {
            if let Some(norm) = norm {
                write!(f, " of {name} rms_norm eps {:e}", norm.eps)?;
            }
        }
        Ok(())
    }
}

impl HeadPreparation {
    /// Names of the optional operands in shaders.
    pub(super) const NAMES: [&'static str; 3] = ["frequencies", "q_norm_weight", "k_norm_weight"];

    fn is_present(&self) -> [bool; 3] {
        let weighted = |norm: Option<Norm>| norm.is_some_and(|n| n.weighted);
        [self.rope.is_some(), weighted(self.q_norm), weighted(self.k_norm)]
    }

    /// Returns the number of operands that are present.
    pub fn operands(&self) -> usize {
        self.is_present().into_iter().filter(|is_present| *is_present).count()
    }

    /// Returns the operand numbers of the frequencies and of the norms' weights, where present, from `next` on.
    pub fn numbers(&self, mut next: usize) -> [Option<usize>; 3] {
        self.is_present().map(|is_present| {
            next += usize::from(is_present);
            is_present.then_some(next - 1)
        })
    }

    /// Returns the number of pairs of a head that RoPE rotates.
    pub(super) fn rotated_pairs(&self) -> usize {
        self.rope.map_or(0, |rope| rope.dims / 2)
    }

    /// Checks that its operands, from number `first` on, match heads of `head_dim` values.
    pub(super) fn check(&self, operands: &[&OperandSpec], first: usize, head_dim: usize) -> Result<(), Unsupported> {
        let rotated = self.rope.map_or(0, |rope| rope.dims);
        if !rotated.is_multiple_of(2) || rotated > head_dim {
            let what = format!(
                "RoPE over {rotated} of {head_dim} values per head: must be even and at most the head dimension"
            );
            return Err(Unsupported::Size { op: OP, what });
        }
        let lengths = [rotated / 2, head_dim, head_dim];
        for (i, (number, length)) in self.numbers(first).into_iter().zip(lengths).enumerate() {
            let Some(number) = number else { continue };
            let operand = operands[number];
            if i == 0 {
                require_dtype(OP, operand, DType::F32)?;
            }
            require_float(OP, operand)?;
            require_shape(OP, "frequencies or a norm's weight", operand, &[length])?;
            require_contiguous(OP, operand, number)?;
        }
        Ok(())
    }
}

/// Extents of checked operands.
pub(super) struct PrepareSizes {
    pub tokens: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub value_dim: usize,
    pub slots: usize,
}

/// Returns the operand number of the output.
pub fn output(heads: &HeadPreparation) -> usize {
    OPTIONAL + heads.operands()
}

/// Returns the operand numbers of the frequencies and of the norms' weights, where present.
pub fn optional(heads: &HeadPreparation) -> [Option<usize>; 3] {
    heads.numbers(OPTIONAL)
}

/// Checks that heads of this size are supported.
pub(super) fn check_head_dim(dim: usize) -> Result<(), Unsupported> {
    if dim.is_multiple_of(2) && (2..=MAX_HEAD_DIM).contains(&dim) {
        return Ok(());
    }
    let what = format!("heads of {dim} values; head dimensions must be even and at most {MAX_HEAD_DIM}");
    Err(Unsupported::Size { op: OP, what })
}

/// Checks the operands and returns their extents.
fn checked(operands: &[&OperandSpec], heads: &HeadPreparation) -> Result<PrepareSizes, Unsupported> {
    let size = |what: String| Unsupported::Size { op: OP, what };
    let out = output(heads);
    if operands.len() != out + 1 {
        return Err(size(format!("{} operands given, expected {}", operands.len(), out + 1)));
    }
    let [keys, values, q, k, v, slots, positions] = operands[..OPTIONAL] else {
        unreachable!("at least {OPTIONAL} operands")
    };
    let shapes = [q, keys, values].map(|operand| &operand.layout.shape[..]);
    let [
        &[tokens, query_heads, head_dim],
        &[count, kv_heads, _],
        &[_, _, value_dim],
    ] = shapes
    else {
        return Err(size(format!(
            "q, keys and values have shapes {shapes:?}, expected 3 dimensions"
        )));
    };
    for (number, shape) in [
        (0, [count, kv_heads, head_dim]),
        (1, [count, kv_heads, value_dim]),
        (3, [tokens, kv_heads, head_dim]),
        (4, [tokens, kv_heads, value_dim]),
        (out, [tokens, query_heads, head_dim]),
    ] {
        require_shape(OP, "an operand", operands[number], &shape)?;
    }
    for (operand, dtype) in [(slots, DType::I32), (positions, DType::I32), (values, keys.dtype)] {
        require_dtype(OP, operand, dtype)?;
    }
    for operand in [k, v] {
        require_dtype(OP, operand, q.dtype)?;
    }
    for operand in [keys, q, operands[out]] {
        require_float(OP, operand)?;
    }
    require_shape(OP, "slots", slots, &[tokens])?;
    require_shape(OP, "positions", positions, &[tokens])?;
    [head_dim, value_dim].into_iter().try_for_each(check_head_dim)?;
    if [tokens, query_heads, kv_heads, count].contains(&0) {
        return Err(size("tokens, heads and slots must not be 0".to_string()));
    }
    for number in [0, 1, 5, 6, out] {
        require_contiguous(OP, operands[number], number)?;
    }
    for number in [2, 3, 4] {
        if operands[number].layout.strides[2] != 1 {
            return Err(Unsupported::NeedsContiguous {
                op: OP,
                operand: number,
            });
        }
    }
    heads.check(operands, OPTIONAL, head_dim)?;
    Ok(PrepareSizes {
        tokens,
        heads: query_heads,
        kv_heads,
        head_dim,
        value_dim,
        slots: count,
    })
}

/// Division of the work.
pub(super) struct PrepareVariant {
    /// Neighbouring values per load: 4, or 1 where heads are not multiples of 8 values.
    pub unit: usize,
    /// Invocations per row.
    lanes: u32,
    /// Whether several rows share a subgroup.
    shared_subgroups: bool,
    /// Rows per workgroup.
    rows: u32,
    /// Rows per token.
    token_rows: usize,
}

impl PrepareVariant {
    pub(super) fn of(traits: &Traits, sizes: &PrepareSizes, heads: &HeadPreparation) -> PrepareVariant {
        let in_fours = sizes.head_dim.is_multiple_of(8)
            && sizes.value_dim.is_multiple_of(8)
            && heads.rotated_pairs().is_multiple_of(4);
        let unit = if in_fours { 4 } else { 1 };
        let subgroup = tuning::lanes(traits);
        let items = sizes.head_dim.max(sizes.value_dim) / (2 * unit);
        let row_lanes = items.next_power_of_two() as u32;
        let may_share = traits.exchanges_lanes();
        let shared_subgroups = may_share && row_lanes < subgroup;
        let lanes = if shared_subgroups { row_lanes } else { subgroup };
        PrepareVariant {
            unit,
            lanes,
            shared_subgroups,
            rows: (traits.workgroup(THREADS) / lanes).max(1),
            token_rows: (sizes.heads + sizes.kv_heads).div_ceil(HEADS_PER_ROW),
        }
    }

    /// Returns the number of workgroups.
    pub(super) fn groups(&self, sizes: &PrepareSizes) -> usize {
        (sizes.tokens * self.token_rows).div_ceil(self.rows as usize)
    }
}

/// Returns the error of [`call`], without building the call.
///
/// # Errors
/// Those of [`call`].
pub fn check(traits: &Traits, operands: &[&OperandSpec], heads: &HeadPreparation) -> Result<(), Unsupported> {
    let sizes = checked(operands, heads)?;
    arguments(traits, operands, heads, &sizes)?;
    grid(OP, PrepareVariant::of(traits, &sizes, heads).groups(&sizes)).map(drop)
}

/// Returns the call.
///
/// # Errors
/// [`Unsupported::NeedsContiguous`] when a head's values are not contiguous, or an operand other than q, k and v has gaps;
/// [`Unsupported::Size`] when shapes contradict each other; [`Unsupported::DType`] for operands of other types.
pub fn call(traits: &Traits, operands: &[&OperandSpec], heads: &HeadPreparation) -> Result<Call, Unsupported> {
    let sizes = checked(operands, heads)?;
    let variant = PrepareVariant::of(traits, &sizes, heads);
    let arguments = arguments(traits, operands, heads, &sizes)?;
    let [q, k, v] = [2, 3, 4].map(|number| operands[number]);
    let fours = |operand: &OperandSpec| is_wide(operand, &operand.layout.strides[..2]);
    let out = operands[output(heads)];
    let mut text = source(traits, &variant, "attention.prepare")
        .flag("CACHES", true)
        .input("x", q.dtype)
        .output("y", out.dtype)
        .output("state", operands[0].dtype)
        .input("slots", DType::I32)
        .input("positions", DType::I32);
    if variant.unit == 4 {
        text = text
            .runs("x", q.dtype, 4, [q, k, v].into_iter().all(fours))
            .store_vec4("y", out.dtype, fours(out))
            .store_vec4("state", operands[0].dtype, fours(operands[0]) && fours(operands[1]));
    }
    finished(text, (&variant, &sizes), operands, (heads, optional(heads)), &arguments)
}

/// The beginning of the shader's text.
pub(super) fn source<'a>(traits: &'a Traits, variant: &PrepareVariant, name: &'static str) -> SourceBuilder<'a> {
    let text = if variant.shared_subgroups {
        SourceBuilder::with_shared_subgroups(traits, name)
    } else {
        SourceBuilder::new(traits, name)
    };
    text.define("LANE_VALUE", "float")
        .unrolled(tuning::choose(traits).decode.unrolled)
        .define("UNIT", variant.unit)
}

/// The call whose text begins with `text`. `numbers` are the operands of [`HeadPreparation::NAMES`].
pub(super) fn finished(
    mut text: SourceBuilder<'_>,
    (variant, sizes): (&PrepareVariant, &PrepareSizes),
    operands: &[&OperandSpec],
    (heads, numbers): (&HeadPreparation, [Option<usize>; 3]),
    arguments: &PushArguments,
) -> Result<Call, Unsupported> {
    for (name, number) in HeadPreparation::NAMES.into_iter().zip(numbers) {
        let Some(number) = number else { continue };
        let operand = operands[number];
        text = text.input(name, operand.dtype).flag(&name.to_uppercase(), true);
        if variant.unit == 4 {
            text = text.runs(name, operand.dtype, 4, is_wide(operand, &[]));
        }
    }
    let kernel = text
        .flag("Q_NORM", heads.q_norm.is_some())
        .flag("K_NORM", heads.k_norm.is_some())
        .flag("ROTATES", heads.rotated_pairs() > 0)
        .define(
            "INTERLEAVED",
            u32::from(heads.rope.is_some_and(|rope| rope.interleaved)),
        )
        .body(include_str!("../kit/lanes.glsl"))
        .body(include_str!("../kit/sincos.glsl"))
        .body(&arguments.declaration())
        .body(include_str!("prepare.comp"))
        .kernel(constants(variant, sizes, heads));
    Ok(Call {
        kernel,
        groups: grid(OP, variant.groups(sizes))?,
        push: arguments.push(),
    })
}

fn constants(variant: &PrepareVariant, sizes: &PrepareSizes, heads: &HeadPreparation) -> Vec<(u32, u32)> {
    let eps = |norm: Option<Norm>| norm.map_or(0.0, |n| n.eps).to_bits();
    vec![
        (0, variant.rows * variant.lanes),
        (3, variant.lanes),
        (4, variant.rows),
        (5, sizes.head_dim as u32),
        (6, sizes.value_dim as u32),
        (7, sizes.heads as u32),
        (8, sizes.kv_heads as u32),
        (9, heads.rotated_pairs() as u32),
        (10, HEADS_PER_ROW as u32),
        (11, heads.rope.map_or(1.0, |rope| rope.scale).to_bits()),
        (12, eps(heads.q_norm)),
        (13, eps(heads.k_norm)),
    ]
}

fn arguments(
    traits: &Traits,
    operands: &[&OperandSpec],
    heads: &HeadPreparation,
    sizes: &PrepareSizes,
) -> Result<PushArguments, Unsupported> {
    let mut arguments = PushArguments::new(traits);
    let always = [
        "state_ref keys",
        "state_ref values",
        "x_ref q",
        "x_ref k",
        "x_ref v",
        "slots_ref slots",
        "positions_ref positions",
    ];
    let always = always.map(str::to_string).into_iter().enumerate();
    let optional = HeadPreparation::NAMES.into_iter().zip(optional(heads));
    let optional = optional.filter_map(|(name, number)| Some((number?, format!("{name}_ref {name}"))));
    let out = (output(heads), "y_ref y".to_string());
    for (number, declaration) in always.chain(optional).chain([out]) {
        arguments.address(declaration, address(OP, number, operands[number])?);
    }
    arguments.number("TOKENS", sizes.tokens);
    arguments.number("SLOTS", sizes.slots);
    for (name, number) in [("Q", 2), ("K", 3), ("V", 4)] {
        let [token, head, _] = operands[number].layout.strides[..] else {
            unreachable!("checked")
        };
        arguments.number(&format!("{name}_TOKEN"), token);
        arguments.number(&format!("{name}_HEAD"), head);
    }
    arguments.check(OP)?;
    Ok(arguments)
}
