//! Decode attention of one token per sequence, fused with the norms and RoPE of queries and keys and with the write of
//! key and value into the KV cache.
//!
//! `keys` `[slots, KVH, Dk]` and `values` `[slots, KVH, Dv]` in one float dtype or block format, updated in place; `q`
//! `[T, H, Dk]`, `k` `[T, KVH, Dk]` and `v` `[T, KVH, Dv]` floats; `positions` `[T]` i32, `sequences` `[T]` u32, `pages`
//! `[S, P]` u32. Each token is the only one of its sequence. The result is that of [`crate::rms_norm`] over the heads of
//! q and of k, [`crate::rope`] of both, [`crate::write_rows`] of k and v into the slots of [`crate::slots`], or
//! [`super::store`] for block formats, and [`crate::attention`], in this order. Norms and RoPE are optional. Pages that do not exist are not written.
//!
//! Operands by number: keys 0, values 1, q 2, k 3, v 4, positions 5, sequences 6, pages 7; then, where present, RoPE's
//! frequencies, the weights of q's and of k's norm, the sinks, a gate; then out. Where several workgroups split a
//! token's positions (split-KV), a workspace and counters follow (u32, zero before and after): the last workgroup to
//! finish combines the splits. On devices without [`Traits::tickets`] a second call combines them, without counters.

mod access;
mod variant;

use std::fmt;

use super::{AttentionParams, AttentionSizes, HeadPreparation, OP};
use crate::kit::arguments::PushArguments;
use crate::kit::text::{SourceBuilder, address, require_float, require_shape};
use crate::kit::tickets;
use crate::tuning::{self, Tuning};
use crate::{Call, DType, OperandSpec, Push, Traits, Unsupported};
use variant::DecodeVariant;

/// Number of the first optional operand.
const OPTIONAL: usize = 8;

/// Parameters of decode attention besides its operands.
#[derive(Clone, Copy, PartialEq, Hash, Debug)]
pub struct DecodeParams {
    /// Parameters of the attention itself.
    pub attention: AttentionParams,
    /// Norms and RoPE of queries and keys.
    pub heads: HeadPreparation,
    /// Whether there is an attention sink for each query head.
    pub sinks: bool,
    /// Whether the output is multiplied by the sigmoid of a gate.
    pub gated: bool,
}

impl fmt::Display for DecodeParams {
    /// Writes the steps before attention, each after " of", then the steps after it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.heads.fmt(f)?;
        if self.sinks {
            f.write_str(" with sinks")?;
        }
        if self.gated {
            f.write_str(" gated")?;
        }
        Ok(())
    }
}

/// The calls, and the further operands they need.
#[derive(Clone, Debug)]
pub struct DecodeAttentionPlan {
    /// One call, or two of which the second depends on the first.
    pub calls: Vec<Call>,
    /// Memory whose contents do not matter: the operand after the others.
    pub workspace: Option<OperandSpec>,
    /// Number of u32 counters, the operand after the workspace.
    pub tickets: usize,
}

impl DecodeParams {
    /// Returns the operand number of the output.
    pub fn output(&self) -> usize {
        OPTIONAL + self.heads.operands() + usize::from(self.sinks) + usize::from(self.gated)
    }

    /// Returns the operand number of the sinks, if there are any.
    pub fn sinks(&self) -> Option<usize> {
        self.sinks.then(|| self.output() - 1 - usize::from(self.gated))
    }

    /// Returns the operand number of the gate, if there is one.
    pub fn gate(&self) -> Option<usize> {
        self.gated.then(|| self.output() - 1)
    }

    /// Returns the operand numbers of the frequencies and of the norms' weights, where present.
    pub fn optional(&self) -> [Option<usize>; 3] {
        self.heads.numbers(OPTIONAL)
    }
}

/// Returns the calls that compute decode attention.
///
/// # Errors
/// [`Unsupported::NeedsContiguous`] when heads are not adjacent; [`Unsupported::Size`] when shapes contradict
/// each other or exceed the limits; [`Unsupported::DType`] for operands of other types.
pub fn call(
    traits: &Traits,
    operands: &[&OperandSpec],
    params: &DecodeParams,
) -> Result<DecodeAttentionPlan, Unsupported> {
    call_tuned(tuning::choose(traits), traits, operands, params)
}

/// [`call`] with a given row of the tuning table.
///
/// # Errors
/// As [`call`].
pub fn call_tuned(
    tuning: &Tuning,
    traits: &Traits,
    operands: &[&OperandSpec],
    params: &DecodeParams,
) -> Result<DecodeAttentionPlan, Unsupported> {
    let sizes = checked(operands, params)?;
    let variant = DecodeVariant::of(tuning, traits, operands, &sizes, params)?;
    let groups = [sizes.heads / variant.heads, sizes.tokens, variant.splits];
    if groups.iter().any(|&g| g > 65_535) {
        let what = format!(
            "{} tokens and {} heads exceed the limit of 65535",
            sizes.tokens, sizes.heads
        );
        return Err(Unsupported::Size { op: OP, what });
    }
    let is_split = variant.splits > 1;
    let has_tickets = is_split && traits.tickets;
    let arguments = arguments(traits, operands, params, &sizes, [is_split, has_tickets])?;
    let generated = generated(operands, params, &arguments, &variant);
    let passes = if is_split && !has_tickets {
        &["SPLIT_PASS", "COMBINE_PASS"][..]
    } else {
        &[""]
    };
    let arrives_last = if has_tickets { tickets::TEXT } else { "" };
    let text = |pass: &str| kernel(traits, operands, params, (&generated, &variant), pass).body(arrives_last);
    let call = |pass: &&str| Call {
        kernel: (text(pass).body(include_str!("splits.glsl"))).kernel(variant.constants(&sizes, params)),
        groups: groups.map(|g| g.max(1) as u32),
        push: arguments.push(),
    };
    let workspace = [sizes.tokens, sizes.heads, variant.splits, sizes.value_dim + 2];
    Ok(DecodeAttentionPlan {
        calls: passes.iter().map(call).collect(),
        workspace: is_split.then(|| OperandSpec::contiguous(DType::F32, &workspace)),
        tickets: if has_tickets { groups[0] * sizes.tokens } else { 0 },
    })
}

/// Returns the text of a call without the combination of splits. `pass` is the flag of one of two passes, or empty.
fn kernel<'t>(
    traits: &'t Traits,
    operands: &[&OperandSpec],
    params: &DecodeParams,
    (generated, variant): (&str, &DecodeVariant),
    pass: &str,
) -> SourceBuilder<'t> {
    let name = format!("{OP}.decode");
    let text = if variant.by_subgroups {
        SourceBuilder::with_shuffles(traits, &name).define("BY_SUBGROUPS", 1)
    } else {
        SourceBuilder::new(traits, &name)
    };
    let mut text = text
        .define("LANE_VALUE", "float")
        .unrolled(variant.unrolled)
        .flag(pass, !pass.is_empty())
        .input("q", operands[2].dtype)
        .input("k", operands[3].dtype)
        .input("v", operands[4].dtype)
        .input("keys", operands[0].dtype)
        .input("positions", DType::I32)
        .input("sequences", DType::U32)
        .input("pages", DType::U32)
        .output("y", operands[params.output()].dtype);
    for (name, number) in HeadPreparation::NAMES.into_iter().zip(params.optional()) {
        if let Some(number) = number {
            text = text.input(name, operands[number].dtype);
        }
    }
    if let Some(format) = params.attention.blocks[0] {
        text = text.define("BLOCKS", format.name);
    }
    let fixes_queries = variant.by_subgroups && params.attention.blocks[0].is_some() && traits.integer_dot;
    text = text.flag("FIXED_QUERIES", fixes_queries);
    if let Some(number) = params.sinks() {
        text = text.define("SINKS", 1).input("sinks", operands[number].dtype);
    }
    if let Some(number) = params.gate() {
        text = text.define("GATED", 1).input("gate", operands[number].dtype);
    }
    text.body(include_str!("../kit/lanes.glsl"))
        .body(include_str!("../kit/sincos.glsl"))
        .body(generated)
        .body(include_str!("decode/prepare.glsl"))
        .body(match params.attention.blocks[0] {
            Some(_) => include_str!("decode/store_blocks.glsl"),
            None => "",
        })
        .body(if variant.by_subgroups {
            include_str!("decode/subgroups.glsl")
        } else {
            include_str!("decode/tiles.glsl")
        })
        .body(match fixes_queries {
            true => include_str!("decode/fixed_queries.glsl"),
            false => "",
        })
        .body(include_str!("decode.comp"))
}

/// Returns the error of [`call`], without building calls.
///
/// # Errors
/// Those of [`call`].
pub fn check(traits: &Traits, operands: &[&OperandSpec], params: &DecodeParams) -> Result<(), Unsupported> {
    let sizes = checked(operands, params)?;
    let variant = DecodeVariant::of(tuning::choose(traits), traits, operands, &sizes, params)?;
    let is_split = variant.splits > 1;
    arguments(traits, operands, params, &sizes, [is_split, is_split && traits.tickets]).map(|_| ())
}

/// Checks the operands and returns their extents.
fn checked(operands: &[&OperandSpec], params: &DecodeParams) -> Result<AttentionSizes, Unsupported> {
    let size = |what: String| Unsupported::Size { op: OP, what };
    if operands.len() != params.output() + 1 {
        let (found, expected) = (operands.len(), params.output() + 1);
        return Err(size(format!("{found} operands given, expected {expected}")));
    }
    let out = operands[params.output()];
    let as_attention = [
        operands[2],
        operands[0],
        operands[1],
        operands[5],
        operands[6],
        operands[7],
        out,
    ];
    let sizes = AttentionSizes::of(as_attention, &params.attention).map_err(|error| match error {
        Unsupported::NeedsContiguous { op, operand } => Unsupported::NeedsContiguous {
            op,
            operand: [2, 0, 1, 5, 6, 7, params.output()][operand],
        },
        other => other,
    })?;
    let AttentionSizes {
        tokens,
        heads,
        head_dim,
        value_dim,
        ..
    } = sizes;
    let [key_format, value_format] = params.attention.blocks;
    if operands[0].dtype != operands[1].dtype || key_format != value_format {
        return Err(size("keys and values must have the same format".to_string()));
    }
    check_heads(operands, params, &sizes)?;
    if let Some(number) = params.sinks() {
        sizes.check_sinks(operands[number], number)?;
    }
    if let Some(number) = params.gate() {
        check_gate(operands[number], number, [tokens, heads, value_dim])?;
    }
    params.heads.check(operands, OPTIONAL, head_dim)?;
    Ok(sizes)
}

/// Checks that queries, keys, values and the output have the shapes of `sizes` and contiguous heads.
fn check_heads(operands: &[&OperandSpec], params: &DecodeParams, sizes: &AttentionSizes) -> Result<(), Unsupported> {
    for (number, heads, dim) in [
        (2, sizes.heads, sizes.head_dim),
        (3, sizes.kv_heads, sizes.head_dim),
        (4, sizes.kv_heads, sizes.value_dim),
        (params.output(), sizes.heads, sizes.value_dim),
    ] {
        let operand = operands[number];
        require_float(OP, operand)?;
        require_shape(OP, "an operand", operand, &[sizes.tokens, heads, dim])?;
        let strides = &operand.layout.strides;
        // Only queries' heads may have gaps: gates may be interleaved with them.
        let has_gaps = heads > 1 && strides[1] != dim && number != 2;
        if strides[2] != 1 || has_gaps {
            return Err(Unsupported::NeedsContiguous {
                op: OP,
                operand: number,
            });
        }
    }
    Ok(())
}

/// Checks that operand `number` is a gate of that shape with contiguous heads.
fn check_gate(gate: &OperandSpec, number: usize, shape: [usize; 3]) -> Result<(), Unsupported> {
    require_float(OP, gate)?;
    require_shape(OP, "the gate", gate, &shape)?;
    match gate.layout.strides[2] {
        1 => Ok(()),
        _ => Err(Unsupported::NeedsContiguous {
            op: OP,
            operand: number,
        }),
    }
}

fn arguments(
    traits: &Traits,
    operands: &[&OperandSpec],
    params: &DecodeParams,
    sizes: &AttentionSizes,
    [is_split, has_tickets]: [bool; 2],
) -> Result<PushArguments, Unsupported> {
    let mut arguments = PushArguments::new(traits);
    let mut add = |declaration: &str, number: usize| -> Result<(), Unsupported> {
        arguments.address(declaration, address(OP, number, operands[number])?);
        Ok(())
    };
    let names = ["keys_ref keys", "keys_ref values", "q_ref q", "k_ref k", "v_ref v"];
    let indices = ["positions_ref positions", "sequences_ref sequences", "pages_ref pages"];
    for (number, name) in names.into_iter().chain(indices).enumerate() {
        add(name, number)?;
    }
    for (name, number) in HeadPreparation::NAMES.into_iter().zip(params.optional()) {
        if let Some(number) = number {
            add(&format!("{name}_ref {name}"), number)?;
        }
    }
    if let Some(number) = params.sinks() {
        add("sinks_ref sinks", number)?;
    }
    if let Some(number) = params.gate() {
        add("gate_ref gate", number)?;
    }
    let out = params.output();
    add("y_ref y", out)?;
    for (name, operand, is_present) in [
        ("pairs_ref workspace", out + 1, is_split),
        ("counters_ref tickets", out + 2, has_tickets),
    ] {
        if is_present {
            arguments.address(name, Push::Address { operand, bytes: 0 });
        }
    }
    arguments.number("SLOTS", sizes.slots);
    arguments.number("SEQUENCES", sizes.sequences);
    arguments.number("TABLE", sizes.table);
    for (name, number) in [("Q", 2), ("K", 3), ("V", 4), ("Y", out)] {
        let between = if sizes.tokens == 1 {
            0
        } else {
            operands[number].layout.strides[0]
        };
        arguments.stride(&format!("{name}_STRIDE"), between);
    }
    // The shader assumes adjacent query heads, as they mostly are, unless Q_BETWEEN is given.
    if let [_, between, _] = operands[2].layout.strides[..]
        && between != sizes.head_dim
    {
        arguments.number("Q_BETWEEN", between);
    }
    if let Some(number) = params.gate() {
        let [token, head, _] = operands[number].layout.strides[..] else {
            unreachable!("checked")
        };
        arguments.stride("GATE_STRIDE", if sizes.tokens == 1 { 0 } else { token });
        arguments.stride("GATE_BETWEEN", head);
    }
    arguments.check(OP)?;
    Ok(arguments)
}

/// Returns the generated GLSL: the arguments, and definitions for the optional parts and the cache's format.
fn generated(
    operands: &[&OperandSpec],
    params: &DecodeParams,
    arguments: &PushArguments,
    variant: &DecodeVariant,
) -> String {
    let mut text = access::text(params.attention.blocks[0], operands[0].dtype, variant.unit);
    let [_, q_norm_weight, k_norm_weight] = params.optional();
    for (name, norm, norm_weight) in [
        ("Q", params.heads.q_norm, q_norm_weight),
        ("K", params.heads.k_norm, k_norm_weight),
    ] {
        if norm.is_some() {
            let lower = name.to_lowercase();
            let value = norm_weight.map_or("1.0".to_string(), |_| {
                format!("load_{lower}_norm_weight(pc.{lower}_norm_weight, d)")
            });
            text.push_str(&format!(
                "#define {name}_NORM 1\n#define {name}_NORM_WEIGHT(d) {value}\n"
            ));
        }
    }
    if let Some(rope) = params.heads.rope.filter(|rope| rope.dims > 0) {
        text.push_str(&format!(
            "#define ROTATES 1\n#define INTERLEAVED {}\n",
            u32::from(rope.interleaved)
        ));
    }
    if variant.splits > 1 {
        text.push_str("#define SPLITS 1\n");
        text.push_str(tickets::COUNTERS);
    }
    if operands[0].layout.shape != operands[1].layout.shape {
        text.push_str("#define VALUES_DIFFER 1\n");
    }
    text.push_str(&arguments.declaration());
    text
}
