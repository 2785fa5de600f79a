//! Building of the kernel call of an expression.

use super::expression::{Expression, ExpressionStep};
use super::source;
use crate::kit::text::{self, SourceBuilder};
use crate::kit::walk::Walk;
use crate::{Call, DType, OperandSpec, Push, Traits, Unsupported, Values};

const OP: &str = "elementwise";

/// Maximum number of inputs of an expression: their addresses are push constants.
pub const MAX_INPUTS: usize = 12;

/// Maximum number of constants in push constants, beside [`MAX_INPUTS`] + 2 addresses and the count; further ones go to
/// a buffer.
const MAX_PUSHED_CONSTANTS: usize = 3;

/// From this many elements on, each invocation computes [`ELEMENTS_EACH`].
const MIN_LARGE_COUNT: usize = 1 << 18;

/// Elements per invocation for large outputs. All their loads are issued before the first use.
const ELEMENTS_EACH: usize = 4;

/// Fours of elements per invocation, if operands are accessed by fours.
const FOURS_EACH: usize = 2;

/// Returns the kernel that computes `expression` for every element of the output.
///
/// `operands` are the inputs, broadcast to the output's shape, then the output, in any layout whose
/// elements do not overlap.
///
/// # Errors
/// When the expression is not valid, operands do not match it or each other, or there are more than
/// [`MAX_INPUTS`] inputs, 2³¹ elements, or 8 dimensions that cannot be merged.
pub fn call(traits: &Traits, expression: &Expression, operands: &[&OperandSpec]) -> Result<Call, Unsupported> {
    let dtypes = check(expression, operands)?;
    let layouts: Vec<_> = operands.iter().map(|o| &o.layout).collect();
    let walk = Walk::new(OP, &layouts)?;
    let constants = constant_bits(expression);
    let in_record = !walk.is_linear() || constants.len() > MAX_PUSHED_CONSTANTS;

    let count = operands[operands.len() - 1].layout.count();
    let workgroup = traits.workgroup(256);
    let by_fours = count >= MIN_LARGE_COUNT && has_fours(&walk, operands);
    let (unit, items) = match (by_fours, count >= MIN_LARGE_COUNT) {
        (true, _) => (4, FOURS_EACH),
        (false, true) => (1, ELEMENTS_EACH),
        (false, false) => (1, 1),
    };
    let groups = text::grid(OP, (count / unit).div_ceil(workgroup as usize * items))?;

    let mut push: Vec<Push> = operands
        .iter()
        .enumerate()
        .map(|(number, operand)| operand.address(number))
        .collect();
    if in_record {
        let mut words = constants.clone();
        if !walk.is_linear() {
            words.extend(walk.words());
        }
        push.push(Push::Record(words));
    }
    push.push(Push::U32(count as u32));
    if !in_record {
        push.extend(constants.iter().map(|&bits| Push::U32(bits)));
    }
    let constant = match (in_record, constants.len()) {
        (true, _) => "push.record.at[n]",
        (false, 0) => "0u",
        (false, _) => "push.constants[n]",
    };
    let locate = if walk.is_linear() {
        "[[unroll]] for (uint k = 0u; k < WALKED; k++) at[k] = element;".to_string()
    } else {
        format!("walk(push.record, {}u, RANK, element, at);", constants.len())
    };
    let arguments = arguments(expression, in_record, constants.len());
    let body = body(expression, &dtypes, &arguments, constant, &locate, by_fours);
    let mut text = SourceBuilder::new(traits, OP);
    for (number, &dtype) in expression.inputs.iter().enumerate() {
        let name = format!("x{number}");
        text = text.input(&name, dtype);
        if by_fours {
            text = text.runs(&name, dtype, 4, true);
        }
    }
    let result = operands[operands.len() - 1].dtype;
    text = text.output("y", result);
    if by_fours {
        text = text.store_vec4("y", result, true);
    }
    let kernel = text
        .body(&body)
        .kernel(vec![(0, workgroup), (3, items as u32), (5, walk.rank())]);
    Ok(Call { kernel, groups, push })
}

/// Whether four neighbouring elements of the output are neighbours in each operand, aligned, and floats. Where to find
/// elements costs more than to access them, so it is found once for four. Where all operands are dense nothing has to be
/// found.
fn has_fours(walk: &Walk, operands: &[&OperandSpec]) -> bool {
    let is_aligned = |number: usize, operand: &OperandSpec| {
        operand.dtype.is_float()
            && walk.inner_stride(number) == 1
            && text::is_wide(operand, &walk.outer_strides(number))
    };
    !walk.is_linear()
        && operands.len() > 1
        && walk.inner_extent().is_multiple_of(4)
        && operands
            .iter()
            .enumerate()
            .all(|(number, operand)| is_aligned(number, operand))
}

fn check(expression: &Expression, operands: &[&OperandSpec]) -> Result<Vec<DType>, Unsupported> {
    let refused = |what: String| Unsupported::Size { op: OP, what };
    let dtypes = expression.dtypes().map_err(|e| refused(e.to_string()))?;
    if expression.inputs.len() > MAX_INPUTS {
        return Err(refused(format!(
            "{} inputs; at most {MAX_INPUTS} are supported",
            expression.inputs.len()
        )));
    }
    let result = *dtypes.last().expect("a valid expression has steps");
    let expected: Vec<DType> = expression.inputs.iter().copied().chain([result]).collect();
    let found: Vec<DType> = operands.iter().map(|o| o.dtype).collect();
    if expected != found {
        return Err(refused(format!(
            "operands of {found:?} given to an expression of {expected:?}"
        )));
    }
    Ok(dtypes)
}

/// Returns the values of the constant steps, in order, as bits of their compute type.
pub(crate) fn constant_bits(expression: &Expression) -> Vec<u32> {
    let constants = expression.steps.iter().filter_map(|step| match *step {
        ExpressionStep::Constant { value, dtype } => Some(value.to_values(dtype)),
        _ => None,
    });
    constants
        .map(|value| match value {
            Values::F32(v) => v[0].to_bits(),
            Values::I32(v) => v[0] as u32,
            Values::U32(v) => v[0],
        })
        .collect()
}

/// Returns the GLSL of the push constants' members.
fn arguments(expression: &Expression, in_record: bool, constants: usize) -> String {
    let mut members: String = (0..expression.inputs.len())
        .map(|n| format!("x{n}_ref x{n}; "))
        .collect();
    members.push_str("y_ref y; ");
    if in_record {
        members.push_str("words_ref record; ");
    }
    members.push_str("uint count; ");
    if !in_record && constants > 0 {
        members.push_str(&format!("uint constants[{constants}]; "));
    }
    members
}

/// Returns the GLSL after the accessors. `constant` reads constant `n`; `locate` sets `at` to the operands' indices of
/// `element`.
fn body(
    expression: &Expression,
    dtypes: &[DType],
    arguments: &str,
    constant: &str,
    locate: &str,
    by_fours: bool,
) -> String {
    let evaluate = source::evaluate(expression, dtypes);
    let fours = if by_fours {
        source::fours(expression)
    } else {
        String::new()
    };
    let parts = [
        format!("#define WALKED {}u\n", expression.inputs.len() + 1),
        if by_fours {
            "#define BY_FOURS\n".into()
        } else {
            String::new()
        },
        libraries(&evaluate),
        include_str!("../kit/walk.glsl").into(),
        "layout(constant_id = 5) const uint RANK = 1;\n".into(),
        format!("layout(push_constant, scalar) uniform Arguments {{ {arguments}}} push;\n"),
        format!("uint constant_bits(uint n) {{ return {constant}; }}\n"),
        format!("void locate(uint element, out uint at[WALKED]) {{ {locate} }}\n"),
        source::inputs(expression),
        fours,
        evaluate,
        include_str!("elementwise.comp").into(),
    ];
    parts.concat()
}

/// Returns the function libraries that the generated GLSL calls. Most expressions need none, and each costs as much
/// compile time as a kernel.
pub(crate) fn libraries(evaluate: &str) -> String {
    let libraries = [
        (
            include_str!("../kit/transcendental.glsl"),
            &["exp_of", "log_of", "tanh_of", "erf_of", "sigmoid_of", "pow_of"][..],
        ),
        (include_str!("../kit/sincos.glsl"), &["sincos"]),
        (
            include_str!("../kit/integers.glsl"),
            &["divide", "remainder_of", "float_to_int", "float_to_uint"],
        ),
    ];
    libraries
        .iter()
        .filter(|(_, functions)| functions.iter().any(|f| evaluate.contains(&format!("{f}("))))
        .map(|(text, _)| *text)
        .collect()
}
