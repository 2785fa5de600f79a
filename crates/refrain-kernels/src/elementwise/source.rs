//! The GLSL of an expression.

use super::expression::{BinaryOp, Expression, ExpressionStep, UnaryOp};
use crate::DType;
use crate::kit::glsl;

/// Returns the struct `Inputs`, the input elements of one output element, and
/// `Inputs load_inputs(uint at[WALKED])`, which loads them from `at[0]`, `at[1]` ….
pub(super) fn inputs(expression: &Expression) -> String {
    let mut members = String::new();
    let mut loads = String::new();
    for (n, &dtype) in expression.inputs.iter().enumerate() {
        members.push_str(&format!("{} x{n}; ", glsl::compute_type(dtype)));
        loads.push_str(&format!("inputs.x{n} = load_x{n}(push.x{n}, at[{n}]); "));
    }
    if members.is_empty() {
        // GLSL has no empty structures.
        members.push_str("uint none; ");
        loads.push_str("inputs.none = 0u; ");
    }
    format!(
        "struct Inputs {{ {members}}};\n\
         Inputs load_inputs(uint at[WALKED]) {{ Inputs inputs; {loads}return inputs; }}\n"
    )
}

/// Returns the struct `Fours`, the input elements of four neighbouring output elements, `Fours load_fours(uint
/// at[WALKED])`, and `Inputs inputs_of(Fours fours, uint j)`, those of one of them. All inputs must be floats.
pub(super) fn fours(expression: &Expression) -> String {
    let (mut members, mut loads, mut ones) = (String::new(), String::new(), String::new());
    for n in 0..expression.inputs.len() {
        members.push_str(&format!("vec4 x{n}; "));
        loads.push_str(&format!("load4_x{n}(push.x{n}, at[{n}], fours.x{n}); "));
        ones.push_str(&format!("inputs.x{n} = fours.x{n}[j]; "));
    }
    format!(
        "struct Fours {{ {members}}};\n\
         Fours load_fours(uint at[WALKED]) {{ Fours fours; {loads}return fours; }}\n\
         Inputs inputs_of(Fours fours, uint j) {{ Inputs inputs; {ones}return inputs; }}\n"
    )
}

/// Returns the function `{compute} evaluate(uint element, Inputs inputs)`: the result for one output element. It reads
/// constants from `constant_bits(n)`.
///
/// Every step is `precise`: contracting two steps to a fused multiply-add would make the result depend on which
/// expressions were fused.
pub(crate) fn evaluate(expression: &Expression, dtypes: &[DType]) -> String {
    let result = *dtypes.last().expect("a valid expression has steps");
    let mut text = format!(
        "{} evaluate(uint element, Inputs inputs) {{\n",
        glsl::compute_type(result)
    );
    let mut constants = 0;
    for (number, (step, &dtype)) in expression.steps.iter().zip(dtypes).enumerate() {
        let value = match *step {
            ExpressionStep::Input(input) => format!("inputs.x{input}"),
            ExpressionStep::Constant { dtype, .. } => {
                constants += 1;
                constant(dtype, constants - 1)
            }
            ExpressionStep::Index => "element".into(),
            ExpressionStep::Unary(op, a) => rounded(unary(op, dtypes[a], &format!("s{a}")), dtype),
            ExpressionStep::Binary(op, a, b) => {
                let value = binary(op, dtypes[a], &format!("s{a}"), &format!("s{b}"));
                rounded(value, dtype)
            }
            ExpressionStep::Select(c, a, b) => format!("s{c} != 0u ? s{a} : s{b}"),
            ExpressionStep::Cast(a, to) => rounded(cast(dtypes[a], to, &format!("s{a}")), to),
        };
        let compute = glsl::compute_type(dtype);
        text.push_str(&format!("    precise {compute} s{number} = {value};\n"));
    }
    text.push_str(&format!("    return s{};\n}}\n", dtypes.len() - 1));
    text
}

fn constant(dtype: DType, number: usize) -> String {
    match dtype.compute() {
        DType::F32 => format!("uintBitsToFloat(constant_bits({number}u))"),
        DType::I32 => format!("int(constant_bits({number}u))"),
        _ => format!("constant_bits({number}u)"),
    }
}

/// Returns the GLSL of the value rounded to `dtype`.
pub(crate) fn rounded(value: String, dtype: DType) -> String {
    match dtype {
        DType::F16 => format!("f16_to_f32(f32_to_f16({value}))"),
        DType::BF16 => format!("bf16_to_f32(f32_to_bf16({value}))"),
        DType::U8 => format!("({value}) & 0xffu"),
        DType::F32 | DType::I32 | DType::U32 | DType::Bool => value,
    }
}

fn cast(from: DType, to: DType, x: &str) -> String {
    match (from.compute(), to) {
        (_, DType::Bool) => format!("uint({x} != {})", zero(from)),
        (DType::F32, DType::I32) => format!("float_to_int({x})"),
        (DType::F32, DType::U32) => format!("float_to_uint({x}, 4294967296.0, 0xffffffffu)"),
        (DType::F32, DType::U8) => format!("float_to_uint({x}, 255.0, 255u)"),
        _ => format!("{}({x})", glsl::compute_type(to)),
    }
}

fn zero(dtype: DType) -> &'static str {
    match dtype.compute() {
        DType::F32 => "0.0",
        DType::I32 => "0",
        _ => "0u",
    }
}

fn unary(op: UnaryOp, dtype: DType, x: &str) -> String {
    let unsigned = dtype.compute() == DType::U32;
    match op {
        UnaryOp::Neg => format!("-{x}"),
        UnaryOp::Abs if unsigned => x.into(),
        UnaryOp::Abs => format!("abs({x})"),
        UnaryOp::Sign if unsigned => format!("min({x}, 1u)"),
        UnaryOp::Sign if dtype.is_float() => format!("is_nan({x}) ? {x} : sign({x})"),
        UnaryOp::Sign => format!("sign({x})"),
        UnaryOp::Exp => format!("exp_of({x})"),
        UnaryOp::Log => format!("log_of({x})"),
        UnaryOp::Sqrt => format!("sqrt({x})"),
        UnaryOp::Rsqrt => format!("1.0 / sqrt({x})"),
        UnaryOp::Sin => format!("sincos({x}).x"),
        UnaryOp::Cos => format!("sincos({x}).y"),
        UnaryOp::Tanh => format!("tanh_of({x})"),
        UnaryOp::Erf => format!("erf_of({x})"),
        UnaryOp::Sigmoid => format!("sigmoid_of({x})"),
        UnaryOp::Floor => format!("floor({x})"),
        UnaryOp::Ceil => format!("ceil({x})"),
        UnaryOp::Round => format!("roundEven({x})"),
        UnaryOp::Not => format!("uint({x} == {})", zero(dtype)),
    }
}

fn binary(op: BinaryOp, dtype: DType, a: &str, b: &str) -> String {
    let float = dtype.is_float();
    match op {
        BinaryOp::Add => format!("{a} + {b}"),
        BinaryOp::Sub => format!("{a} - {b}"),
        BinaryOp::Mul => format!("{a} * {b}"),
        BinaryOp::Div if float => format!("{a} / {b}"),
        BinaryOp::Div => format!("divide({a}, {b})"),
        BinaryOp::Rem => format!("remainder_of({a}, {b})"),
        BinaryOp::Pow => format!("pow_of({a}, {b})"),
        BinaryOp::Max if float => format!("{a} > {b} || is_nan({a}) ? {a} : {b}"),
        BinaryOp::Min if float => format!("{a} < {b} || is_nan({a}) ? {a} : {b}"),
        BinaryOp::Max => format!("max({a}, {b})"),
        BinaryOp::Min => format!("min({a}, {b})"),
        BinaryOp::Eq => format!("uint({a} == {b})"),
        BinaryOp::Ne => format!("uint({a} != {b})"),
        BinaryOp::Lt => format!("uint({a} < {b})"),
        BinaryOp::Le => format!("uint({a} <= {b})"),
        BinaryOp::Gt => format!("uint({a} > {b})"),
        BinaryOp::Ge => format!("uint({a} >= {b})"),
        BinaryOp::And => format!("{a} & {b}"),
        BinaryOp::Or => format!("{a} | {b}"),
        BinaryOp::Xor => format!("{a} ^ {b}"),
        BinaryOp::Shl => format!("{a} << uint({b} & 31{})", suffix(dtype)),
        BinaryOp::Shr => format!("{a} >> uint({b} & 31{})", suffix(dtype)),
    }
}

fn suffix(dtype: DType) -> &'static str {
    if dtype.compute() == DType::U32 { "u" } else { "" }
}
