//! Attention of single tokens, with what stands before it: norms and rotation of queries and keys, and
//! the write of key and value into the paged state, in one dispatch.
//!
//! `keys` `[slots, KVH, Dk]` and `values` `[slots, KVH, Dv]` floats of one dtype, updated in place; `q` `[T, H, Dk]`,
//! `k` `[T, KVH, Dk]` and `v` `[T, KVH, Dv]` floats; `positions` `[T]` i32, `sequences` `[T]` u32, `pages` `[S, P]` u32. Each token
//! is the only one of its sequence. It computes what these do one after another: [`crate::rms_norm`] over
//! the heads of q and of k, [`crate::rope`] of both, [`crate::write_rows`] of k and v into the slots that
//! [`crate::slots`] finds, and [`crate::attention`]. Norms and rotation may be missing. Pages that do not
//! exist are not written.
//!
//! Operands by number: keys 0, values 1, q 2, k 3, v 4, positions 5, sequences 6, pages 7; the rotation's
//! frequencies, the weights of q's and of k's norm, the sinks, a gate, as far as there are any; out; then, where several
//! workgroups share a token's positions, a workspace and counters (u32, zero before and after): whichever
//! workgroup arrives last joins what the others left. On devices without [`Traits::tickets`] a second call
//! does, and there are no counters.

mod variant;

use std::fmt;

use super::{AttentionParams, AttentionSizes, HeadPreparation, OP};
use crate::kit::arguments::PushArguments;
use crate::kit::text::{Text, address, require_float, require_shape, unpack};
use crate::kit::{glsl, tickets};
use crate::tuning::{self, Tuning};
use crate::{Call, DType, OperandSpec, Push, Traits, Unsupported};
use variant::DecodeVariant;

/// The number of the first operand that may be missing.
const OPTIONAL: usize = 8;

/// What is asked for beside the operands.
#[derive(Clone, Copy, PartialEq, Hash, Debug)]
pub struct DecodeParams {
    /// Attention itself.
    pub attention: AttentionParams,
    /// What is done to queries and keys before.
    pub heads: HeadPreparation,
    /// Whether there is a sink for each query head.
    pub sinks: bool,
    /// Whether the result is multiplied by the sigmoid of a gate.
    pub gated: bool,
}

impl fmt::Display for DecodeParams {
    /// What stands before attention, each behind " of", and behind it.
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

/// The calls, and what they need beside their operands.
#[derive(Clone, Debug)]
pub struct DecodeAttentionPlan {
    /// One, or two of which the second depends on the first.
    pub calls: Vec<Call>,
    /// Memory whose contents do not matter: the operand behind the others.
    pub workspace: Option<OperandSpec>,
    /// Counters, behind the workspace.
    pub tickets: usize,
}

impl DecodeParams {
    /// The number of the result.
    pub fn output(&self) -> usize {
        OPTIONAL + self.heads.operands() + usize::from(self.sinks) + usize::from(self.gated)
    }

    /// The number of the sinks, if there are any.
    pub fn sinks(&self) -> Option<usize> {
        self.sinks.then(|| self.output() - 1 - usize::from(self.gated))
    }

    /// The number of the gate, if there is one.
    pub fn gate(&self) -> Option<usize> {
        self.gated.then(|| self.output() - 1)
    }

    /// Numbers of the frequencies and of the norms' weights, where there are any.
    pub fn optional(&self) -> [Option<usize>; 3] {
        self.heads.numbers(OPTIONAL)
    }
}

/// The calls that compute attention of single tokens.
///
/// # Errors
/// [`Unsupported::NeedsContiguous`] when heads lie apart; [`Unsupported::Size`] when shapes contradict
/// each other or reach too far; [`Unsupported::DType`] for operands of other types.
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
    let groups = [sizes.heads / variant.heads, sizes.tokens, variant.parts];
    if groups.iter().any(|&g| g > 65_535) {
        let what = format!("{} tokens and {} heads; the most is 65535", sizes.tokens, sizes.heads);
        return Err(Unsupported::Size { op: OP, what });
    }
    let several = variant.parts > 1;
    let has_tickets = several && traits.tickets;
    let arguments = arguments(traits, operands, params, &sizes, [several, has_tickets])?;
    let generated = generated(operands, params, &arguments, &variant);
    let forms = if several && !has_tickets {
        &["SHARES", "JOINS"][..]
    } else {
        &[""]
    };
    let last = if has_tickets { tickets::TEXT } else { "" };
    let text = |form: &str| kernel(tuning, traits, operands, params, &generated, form).body(last);
    let call = |form: &&str| Call {
        kernel: (text(form).body(include_str!("parts.glsl"))).kernel(variant.constants(&sizes, params)),
        groups: groups.map(|g| g.max(1) as u32),
        push: arguments.push(),
    };
    let workspace = [sizes.tokens, sizes.heads, variant.parts, sizes.value_dim + 2];
    Ok(DecodeAttentionPlan {
        calls: forms.iter().map(call).collect(),
        workspace: several.then(|| OperandSpec::contiguous(DType::F32, &workspace)),
        tickets: if has_tickets { groups[0] * sizes.tokens } else { 0 },
    })
}

/// The text of one of the calls but for what joins parts: `form` is what tells two of them apart.
fn kernel<'t>(
    tuning: &Tuning,
    traits: &'t Traits,
    operands: &[&OperandSpec],
    params: &DecodeParams,
    generated: &str,
    form: &str,
) -> Text<'t> {
    let mut text = Text::new(traits, &format!("{OP}.decode"))
        .define("LANE_VALUE", "float")
        .unrolled(tuning.decode.unrolled)
        .flag(form, !form.is_empty())
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
        .body(include_str!("decode.comp"))
}

/// Fails as [`call`] would, without building calls.
///
/// # Errors
/// Those of [`call`].
pub fn check(traits: &Traits, operands: &[&OperandSpec], params: &DecodeParams) -> Result<(), Unsupported> {
    let sizes = checked(operands, params)?;
    let variant = DecodeVariant::of(tuning::choose(traits), traits, operands, &sizes, params)?;
    let several = variant.parts > 1;
    arguments(traits, operands, params, &sizes, [several, several && traits.tickets]).map(|_| ())
}

/// The extents, if all operands fit them.
fn checked(operands: &[&OperandSpec], params: &DecodeParams) -> Result<AttentionSizes, Unsupported> {
    let size = |what: String| Unsupported::Size { op: OP, what };
    if operands.len() != params.output() + 1 {
        let (found, wanted) = (operands.len(), params.output() + 1);
        return Err(size(format!("{found} operands given for {wanted}")));
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
    if operands[0].dtype != operands[1].dtype {
        return Err(size("keys and values are stored differently".to_string()));
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

/// Fails unless queries, keys, values and the result are heads of `sizes`, each of which is whole.
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
        // Queries alone may lie apart, with their gates between them.
        let apart = heads > 1 && strides[1] != dim && number != 2;
        if strides[2] != 1 || apart {
            return Err(Unsupported::NeedsContiguous {
                op: OP,
                operand: number,
            });
        }
    }
    Ok(())
}

/// Fails unless operand `number` is a gate of that shape, whose heads are whole.
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
    [several, tickets]: [bool; 2],
) -> Result<PushArguments, Unsupported> {
    let mut arguments = PushArguments::new(traits);
    let mut add = |declaration: &str, number: usize| -> Result<(), Unsupported> {
        arguments.address(declaration, address(OP, number, operands[number])?);
        Ok(())
    };
    let names = ["keys_ref keys", "keys_ref values", "q_ref q", "k_ref k", "v_ref v"];
    let places = ["positions_ref positions", "sequences_ref sequences", "pages_ref pages"];
    for (number, name) in names.into_iter().chain(places).enumerate() {
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
    for (name, operand, there) in [
        ("pairs_ref workspace", out + 1, several),
        ("counters_ref tickets", out + 2, tickets),
    ] {
        if there {
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
    // Where heads lie side by side, as they mostly do, the text says so.
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

/// The arguments, and what depends on which parts there are and how keys are stored.
fn generated(
    operands: &[&OperandSpec],
    params: &DecodeParams,
    arguments: &PushArguments,
    variant: &DecodeVariant,
) -> String {
    let keys = operands[0].dtype;
    let (words, pair) = match (keys, variant.unit) {
        (DType::F32, 2) => ("uvec2", "uintBitsToFloat(unit)".to_string()),
        (DType::F32, _) => (
            "uvec4",
            "uintBitsToFloat(uvec2(unit[2u * i], unit[2u * i + 1u]))".into(),
        ),
        (_, 2) => ("uint", unpack(keys, "unit")),
        _ => ("uvec4", unpack(keys, "unit[i]")),
    };
    let align = keys.size() * variant.unit;
    let stored = |at: &str| glsl::conversions(keys).1.replace("VALUE", &format!("vectors[{at}]"));
    let (word_values, word, stands_for) = match keys {
        DType::F32 => (
            1,
            "floatBitsToUint(vectors[at])".into(),
            "vec2(uintBitsToFloat(word))".into(),
        ),
        _ => (
            2,
            format!("{} | {} << 16", stored("at"), stored("(at) + 1u")),
            unpack(keys, "word"),
        ),
    };
    let mut text = format!(
        "#define UNIT {}u\n#define UNIT_TYPE {words}\n\
         layout(buffer_reference, scalar, buffer_reference_align = {align}) readonly buffer key_units_ref {{ {words} at[]; }};\n\
         layout(buffer_reference, scalar, buffer_reference_align = 8) coherent buffer pairs_ref {{ vec2 at[]; }};\n\
         vec2 unit_pair({words} unit, uint i) {{ return {pair}; }}\n\
         layout(buffer_reference, scalar, buffer_reference_align = 4) writeonly buffer stored_words_ref {{ uint at[]; }};\n\
         #define WORD_VALUES {word_values}u\n\
         #define WORD_AT(at) ({word})\n\
         #define VALUES_OF(word) ({stands_for})\n",
        variant.unit,
    );
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
    if variant.parts > 1 {
        text.push_str("#define PARTS 1\n");
        text.push_str(tickets::COUNTERS);
    }
    if operands[0].layout.shape != operands[1].layout.shape {
        text.push_str("#define VALUES_DIFFER 1\n");
    }
    text.push_str(&arguments.declaration());
    text
}
