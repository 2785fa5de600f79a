//! Assembling shader text: the head that every kernel shares, and typed access to operands.
//!
//! A kernel's text is `head` + one accessor per operand + its body. The accessor for an operand
//! named `x` declares the buffer reference type `x_ref`, and `load_x(x_ref p, uint i)` /
//! `store_x(x_ref p, uint i, T value)` in the compute type (`float`, `int` or `uint`). 16- and 8-bit
//! elements go through 32-bit words where the device lacks such storage: a store then clears and
//! sets its part of the word atomically, since a neighbour may be written at the same time.

use crate::{DType, Traits};

/// How a kernel touches an operand.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Only loads.
    Read,
    /// Stores (and loads).
    Write,
}

/// Version, extensions and helpers shared by all kernels.
pub fn head(traits: &Traits) -> String {
    let mut text = String::from(include_str!("shaders/head.glsl"));
    if traits.subgroup_arithmetic {
        text.push_str("#extension GL_KHR_shader_subgroup_basic : require\n");
        text.push_str("#extension GL_KHR_shader_subgroup_arithmetic : require\n#define SUBGROUP_ARITHMETIC 1\n");
    }
    if traits.storage16 {
        text.push_str("#extension GL_EXT_shader_16bit_storage : require\n");
    }
    if traits.storage8 {
        text.push_str("#extension GL_EXT_shader_8bit_storage : require\n");
    }
    text.push_str(include_str!("shaders/numbers.glsl"));
    text
}

/// The GLSL type in which elements of `dtype` are computed with.
pub fn compute_type(dtype: DType) -> &'static str {
    match dtype.compute() {
        DType::F32 => "float",
        DType::I32 => "int",
        _ => "uint",
    }
}

/// Expressions that turn a raw stored unit into the compute type and back.
fn conversions(dtype: DType) -> (&'static str, &'static str) {
    match dtype {
        DType::F32 | DType::I32 | DType::U32 => ("RAW", "VALUE"),
        DType::F16 => ("f16_to_f32(RAW)", "f32_to_f16(VALUE)"),
        DType::BF16 => ("bf16_to_f32(RAW)", "f32_to_bf16(VALUE)"),
        DType::U8 => ("RAW", "(VALUE) & 0xffu"),
        DType::Bool => ("RAW", "uint((VALUE) != 0u)"),
    }
}

/// Declares reference type `{name}_ref` and its load (and store) functions.
pub fn accessor(traits: &Traits, name: &str, dtype: DType, access: Access) -> String {
    let compute = compute_type(dtype);
    let (decode, encode) = conversions(dtype);
    let native = match dtype.size() {
        4 => Some(compute),
        2 if traits.storage16 => Some("uint16_t"),
        1 if traits.storage8 => Some("uint8_t"),
        _ => None,
    };
    let qualifier = if access == Access::Read {
        "readonly "
    } else {
        ""
    };
    let unit = native.unwrap_or("uint");
    let align = if native.is_some() { dtype.size() } else { 4 };
    let mut text = format!(
        "layout(buffer_reference, scalar, buffer_reference_align = {align}) {qualifier}buffer {name}_ref {{ {unit} at[]; }};\n"
    );
    let (load, store) = match native {
        Some(_) if dtype.size() == 4 => ("p.at[i]".to_string(), "p.at[i] = value;".to_string()),
        Some(unit) => (
            decode.replace("RAW", "uint(p.at[i])"),
            format!("p.at[i] = {unit}({});", encode.replace("VALUE", "value")),
        ),
        None => {
            let (per_word, bits) = (4 / dtype.size(), 8 * dtype.size());
            let mask = (1u64 << bits) - 1;
            let shift = format!("({bits}u * (i % {per_word}u))");
            (
                decode.replace(
                    "RAW",
                    &format!("((p.at[i / {per_word}u] >> {shift}) & {mask}u)"),
                ),
                format!(
                    "atomicAnd(p.at[i / {per_word}u], ~({mask}u << {shift})); atomicOr(p.at[i / {per_word}u], ({}) << {shift});",
                    encode.replace("VALUE", "value")
                ),
            )
        }
    };
    text.push_str(&format!(
        "{compute} load_{name}({name}_ref p, uint i) {{ return {load}; }}\n"
    ));
    if access == Access::Write {
        text.push_str(&format!(
            "void store_{name}({name}_ref p, uint i, {compute} value) {{ {store} }}\n"
        ));
    }
    text
}
