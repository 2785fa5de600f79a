//! Assembles GLSL source: the head that all kernels share, and typed access to operands.
//!
//! A kernel's source is the head, one accessor per operand, and its body. The accessor for an operand `x` declares the
//! buffer reference type `x_ref`, and `load_x(x_ref p, uint i)` and `store_x(x_ref p, uint i, T value)` in the compute
//! type (`float`, `int` or `uint`). On request, `stored_x(x_ref p, uint i)` and `x_of(uint bits)` load a float in two
//! steps.
//!
//! If the device lacks 16- or 8-bit storage, such elements are accessed through 32-bit words. A store then clears and
//! sets its part of the word atomically, since another invocation may write the rest at the same time.

use crate::{DType, Traits};

/// How a kernel accesses an operand.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum AccessorKind {
    /// Loads.
    Read,
    /// Loads of floats, also in two steps.
    ReadStored,
    /// As `ReadStored`, with the second step long after the first.
    ReadAhead,
    /// Stores and loads.
    Write,
}

/// Returns version, extensions and helpers, which all kernels share.
pub fn head(traits: &Traits) -> String {
    let mut text = String::from(include_str!("head.glsl"));
    if traits.subgroup_arithmetic {
        text.push_str("#extension GL_KHR_shader_subgroup_basic : require\n");
        text.push_str("#extension GL_KHR_shader_subgroup_arithmetic : require\n#define SUBGROUP_ARITHMETIC 1\n");
        if traits.full_subgroups {
            text.push_str(&format!("#define FULL_SUBGROUPS {}u\n", traits.subgroup_size));
        }
    }
    if traits.integer_dot {
        text.push_str("#extension GL_EXT_integer_dot_product : require\n#define INTEGER_DOT 1\n");
    }
    if traits.exact_halves {
        text.push_str("#define EXACT_HALVES 1\n");
    }
    if traits.subgroup_uniform_flow {
        text.push_str("#extension GL_EXT_subgroup_uniform_control_flow : require\n");
        text.push_str("#define UNIFORM_FLOW [[subgroup_uniform_control_flow]]\n");
    } else {
        text.push_str("#define UNIFORM_FLOW\n");
    }
    if traits.storage16 {
        text.push_str("#extension GL_EXT_shader_16bit_storage : require\n");
    }
    if traits.storage8 {
        text.push_str("#extension GL_EXT_shader_8bit_storage : require\n");
    }
    text.push_str(include_str!("common.glsl"));
    text
}

/// Returns the head with more lines, such as extensions, after the version.
pub(crate) fn head_with(traits: &Traits, lines: &str) -> String {
    let head = head(traits);
    let (version, rest) = head.split_once('\n').expect("the first line is the version");
    format!("{version}\n{lines}{rest}")
}

/// Returns the GLSL compute type of `dtype`.
pub fn compute_type(dtype: DType) -> &'static str {
    match dtype.compute() {
        DType::F32 => "float",
        DType::I32 => "int",
        _ => "uint",
    }
}

/// Returns expressions that convert a stored unit `RAW` to the compute type, and a `VALUE` back.
pub(crate) fn conversions(dtype: DType) -> (&'static str, &'static str) {
    match dtype {
        DType::F32 | DType::I32 | DType::U32 => ("RAW", "VALUE"),
        DType::F16 => ("f16_to_f32(RAW)", "f32_to_f16(VALUE)"),
        DType::BF16 => ("bf16_to_f32(RAW)", "f32_to_bf16(VALUE)"),
        DType::U8 => ("RAW", "(VALUE) & 0xffu"),
        DType::Bool => ("RAW", "uint((VALUE) != 0u)"),
    }
}

/// Declares the reference type `{name}_ref` with its load (and store) functions. An address must be aligned to the
/// element only.
pub fn accessor(traits: &Traits, name: &str, dtype: DType, access: AccessorKind) -> String {
    let native = match dtype.size() {
        4 => Some(compute_type(dtype)),
        // NVIDIA's compiler zero-extends an unsigned number at once, which waits for the load.
        2 if traits.storage16 && access == AccessorKind::ReadAhead => Some("int16_t"),
        2 if traits.storage16 => Some("uint16_t"),
        1 if traits.storage8 => Some("uint8_t"),
        _ => None,
    };
    let (declaration, [place, raw], store) = match native {
        Some(unit) => direct(name, dtype, unit, access),
        None => packed(name, dtype, access),
    };
    let compute = compute_type(dtype);
    let (decode, _) = conversions(dtype);
    let load = decode.replace("RAW", &raw);
    let mut text = format!("{declaration}{compute} load_{name}({name}_ref p, uint i) {{ {place}return {load}; }}\n");
    if matches!(access, AccessorKind::ReadStored | AccessorKind::ReadAhead) {
        let (bits, value) = match dtype {
            DType::F32 => (format!("floatBitsToUint({raw})"), "uintBitsToFloat(bits)".to_owned()),
            _ => (raw, decode.replace("RAW", "bits")),
        };
        text.push_str(&format!(
            "uint stored_{name}({name}_ref p, uint i) {{ {place}return {bits}; }}\n\
             float {name}_of(uint bits) {{ return {value}; }}\n"
        ));
    }
    if access == AccessorKind::Write {
        text.push_str(&format!(
            "void store_{name}({name}_ref p, uint i, {compute} value) {{ {store} }}\n"
        ));
    }
    text
}

/// Returns declaration, load (address computation and value) and store of elements that the device can load directly.
fn direct(name: &str, dtype: DType, unit: &str, access: AccessorKind) -> (String, [String; 2], String) {
    let qualifier = if access == AccessorKind::Write { "" } else { "readonly " };
    let align = dtype.size();
    let declaration = format!(
        "layout(buffer_reference, scalar, buffer_reference_align = {align}) {qualifier}buffer {name}_ref {{ {unit} at[]; }};\n"
    );
    if dtype.size() == 4 {
        return (declaration, ["".into(), "p.at[i]".into()], "p.at[i] = value;".into());
    }
    let (_, encode) = conversions(dtype);
    let store = encode.replace("VALUE", "value");
    // Conversions ignore the upper 16 bits.
    let raw = match access {
        AccessorKind::ReadAhead => "uint(int(p.at[i]))",
        _ => "uint(p.at[i])",
    };
    (
        declaration,
        ["".into(), raw.into()],
        format!("p.at[i] = {unit}({store});"),
    )
}

/// As [`direct`], for elements that are parts of 32-bit words.
fn packed(name: &str, dtype: DType, access: AccessorKind) -> (String, [String; 2], String) {
    let qualifier = if access == AccessorKind::Write { "" } else { "readonly " };
    let (size, per_word, bits) = (dtype.size(), 4 / dtype.size(), 8 * dtype.size());
    let mask = (1u64 << bits) - 1;
    let declaration = format!(
        "layout(buffer_reference, scalar, buffer_reference_align = {size}) {qualifier}buffer {name}_ref {{ uint at[]; }};\n\
         layout(buffer_reference, scalar, buffer_reference_align = 4) {qualifier}buffer {name}_words {{ uint at[]; }};\n"
    );
    let place = format!(
        "uvec2 address = uvec2(p); \
         uint unit = i + (address.x & 3u) / {size}u; \
         uint shift = {bits}u * (unit % {per_word}u); \
         {name}_words words = {name}_words(uvec2(address.x & ~3u, address.y)); "
    );
    let (_, encode) = conversions(dtype);
    let raw = format!("((words.at[unit / {per_word}u] >> shift) & {mask}u)");
    let store = format!(
        "{place}atomicAnd(words.at[unit / {per_word}u], ~({mask}u << shift)); \
         atomicOr(words.at[unit / {per_word}u], ({}) << shift);",
        encode.replace("VALUE", "value")
    );
    (declaration, [place, raw], store)
}
