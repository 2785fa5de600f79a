//! Evaluation of expressions in plain Rust.

use rayon::prelude::*;

use super::expression::{BinaryOp, Expression, ExpressionStep, UnaryOp};
use crate::{DType, Values};

/// Minimum and maximum number of elements per chunk that goes through all steps: enough to be worth another thread, and
/// few enough to stay in the cache.
const CHUNK_BOUNDS: [usize; 2] = [1024, 4096];

/// Computes `count` elements. Input `k` holds `count` values of dtype `expression.inputs[k]`.
///
/// # Panics
/// Panics if the expression is invalid ([`Expression::dtypes`]) or inputs have another length or type.
pub fn reference(expression: &Expression, inputs: &[Values], count: usize) -> Values {
    let dtypes = expression.dtypes().expect("a valid expression");
    for (input, dtype) in inputs.iter().zip(&expression.inputs) {
        assert_eq!(input.len(), count, "inputs hold `count` elements");
        assert_eq!(input.dtype(), dtype.compute(), "elements of {dtype}");
    }
    let size = count
        .div_ceil(rayon::current_num_threads())
        .clamp(CHUNK_BOUNDS[0], CHUNK_BOUNDS[1]);
    let chunks: Vec<Values> = (0..count.div_ceil(size))
        .into_par_iter()
        .map(|chunk| {
            let range = chunk * size..count.min((chunk + 1) * size);
            evaluate(expression, &dtypes, inputs, range)
        })
        .collect();
    let dtype = *dtypes.last().expect("a valid expression has steps");
    concatenate(dtype, chunks)
}

fn concatenate(dtype: DType, chunks: Vec<Values>) -> Values {
    let mut all = Values::zeros(dtype, 0);
    for chunk in chunks {
        match (&mut all, chunk) {
            (Values::F32(all), Values::F32(chunk)) => all.extend(chunk),
            (Values::I32(all), Values::I32(chunk)) => all.extend(chunk),
            (Values::U32(all), Values::U32(chunk)) => all.extend(chunk),
            _ => unreachable!("all chunks have the result's type"),
        }
    }
    all
}

fn evaluate(expression: &Expression, dtypes: &[DType], inputs: &[Values], range: std::ops::Range<usize>) -> Values {
    let mut values: Vec<Values> = Vec::with_capacity(dtypes.len());
    for (step, &dtype) in expression.steps.iter().zip(dtypes) {
        let value = match *step {
            ExpressionStep::Input(input) => inputs[input].slice(range.clone()),
            ExpressionStep::Constant { value, dtype } => {
                let one = value.to_values(dtype);
                one.gather(range.clone().map(|_| Some(0)))
            }
            ExpressionStep::Index => Values::U32(range.clone().map(|i| i as u32).collect()),
            ExpressionStep::Unary(op, a) => unary(op, &values[a]).rounded(dtype),
            ExpressionStep::Binary(op, a, b) => binary(op, &values[a], &values[b]).rounded(dtype),
            ExpressionStep::Select(c, a, b) => select(&values[c], &values[a], &values[b]),
            ExpressionStep::Cast(a, to) => values[a].cast(to),
        };
        values.push(value);
    }
    values.pop().expect("a valid expression has steps")
}

fn select(condition: &Values, a: &Values, b: &Values) -> Values {
    fn pick<T: Copy>(condition: &[u32], a: &[T], b: &[T]) -> Vec<T> {
        let pairs = a.iter().zip(b);
        let chosen = condition.iter().zip(pairs);
        chosen.map(|(&c, (&a, &b))| if c != 0 { a } else { b }).collect()
    }
    match (condition, a, b) {
        (Values::U32(c), Values::F32(a), Values::F32(b)) => Values::F32(pick(c, a, b)),
        (Values::U32(c), Values::I32(a), Values::I32(b)) => Values::I32(pick(c, a, b)),
        (Values::U32(c), Values::U32(a), Values::U32(b)) => Values::U32(pick(c, a, b)),
        _ => unreachable!("dtypes were checked"),
    }
}

fn map<T: Copy, U>(values: &[T], function: impl Fn(T) -> U) -> Vec<U> {
    values.iter().map(|&x| function(x)).collect()
}

fn zip<T: Copy, U>(a: &[T], b: &[T], function: impl Fn(T, T) -> U) -> Vec<U> {
    a.iter().zip(b).map(|(&a, &b)| function(a, b)).collect()
}

fn unary(op: UnaryOp, x: &Values) -> Values {
    match x {
        Values::F32(x) => unary_f32(op, x),
        Values::I32(x) => match op {
            UnaryOp::Neg => Values::I32(map(x, i32::wrapping_neg)),
            UnaryOp::Abs => Values::I32(map(x, i32::wrapping_abs)),
            UnaryOp::Sign => Values::I32(map(x, i32::signum)),
            UnaryOp::Not => Values::U32(map(x, |x| u32::from(x == 0))),
            _ => unreachable!("dtypes were checked"),
        },
        Values::U32(x) => match op {
            UnaryOp::Neg => Values::U32(map(x, u32::wrapping_neg)),
            UnaryOp::Abs => Values::U32(x.clone()),
            UnaryOp::Sign => Values::U32(map(x, |x| x.min(1))),
            UnaryOp::Not => Values::U32(map(x, |x| u32::from(x == 0))),
            _ => unreachable!("dtypes were checked"),
        },
    }
}

fn unary_f32(op: UnaryOp, x: &[f32]) -> Values {
    Values::F32(match op {
        UnaryOp::Not => return Values::U32(map(x, |x| u32::from(x == 0.0))),
        UnaryOp::Neg => map(x, |x| -x),
        UnaryOp::Abs => map(x, f32::abs),
        UnaryOp::Sign => map(x, |x| if x == 0.0 { 0.0 } else { x.signum() }),
        UnaryOp::Exp => map(x, f32::exp),
        UnaryOp::Log => map(x, f32::ln),
        UnaryOp::Sqrt => map(x, f32::sqrt),
        UnaryOp::Rsqrt => map(x, |x| 1.0 / x.sqrt()),
        UnaryOp::Sin => map(x, f32::sin),
        UnaryOp::Cos => map(x, f32::cos),
        UnaryOp::Tanh => map(x, f32::tanh),
        UnaryOp::Erf => map(x, libm::erff),
        UnaryOp::Sigmoid => map(x, |x| 1.0 / (1.0 + (-x).exp())),
        UnaryOp::Floor => map(x, f32::floor),
        UnaryOp::Ceil => map(x, f32::ceil),
        UnaryOp::Round => map(x, f32::round_ties_even),
    })
}

fn binary(op: BinaryOp, a: &Values, b: &Values) -> Values {
    match (a, b) {
        (Values::F32(a), Values::F32(b)) => match arithmetic_f32(op, a, b) {
            Some(result) => Values::F32(result),
            None => Values::U32(compare(op, a, b)),
        },
        (Values::I32(a), Values::I32(b)) => match arithmetic_i32(op, a, b) {
            Some(result) => Values::I32(result),
            None => Values::U32(compare(op, a, b)),
        },
        (Values::U32(a), Values::U32(b)) => match arithmetic_u32(op, a, b) {
            Some(result) => Values::U32(result),
            None => Values::U32(compare(op, a, b)),
        },
        _ => unreachable!("dtypes were checked"),
    }
}

fn compare<T: Copy + PartialOrd>(op: BinaryOp, a: &[T], b: &[T]) -> Vec<u32> {
    let holds: fn(T, T) -> bool = match op {
        BinaryOp::Eq => |a, b| a == b,
        BinaryOp::Ne => |a, b| a != b,
        BinaryOp::Lt => |a, b| a < b,
        BinaryOp::Le => |a, b| a <= b,
        BinaryOp::Gt => |a, b| a > b,
        BinaryOp::Ge => |a, b| a >= b,
        _ => unreachable!("dtypes were checked"),
    };
    zip(a, b, |a, b| u32::from(holds(a, b)))
}

fn arithmetic_f32(op: BinaryOp, a: &[f32], b: &[f32]) -> Option<Vec<f32>> {
    Some(match op {
        BinaryOp::Add => zip(a, b, |a, b| a + b),
        BinaryOp::Sub => zip(a, b, |a, b| a - b),
        BinaryOp::Mul => zip(a, b, |a, b| a * b),
        BinaryOp::Div => zip(a, b, |a, b| a / b),
        BinaryOp::Rem => zip(a, b, |a, b| a % b),
        BinaryOp::Pow => zip(a, b, f32::powf),
        BinaryOp::Max => zip(a, b, |a, b| if a > b || a.is_nan() { a } else { b }),
        BinaryOp::Min => zip(a, b, |a, b| if a < b || a.is_nan() { a } else { b }),
        _ => return None,
    })
}

fn arithmetic_i32(op: BinaryOp, a: &[i32], b: &[i32]) -> Option<Vec<i32>> {
    Some(match op {
        BinaryOp::Add => zip(a, b, i32::wrapping_add),
        BinaryOp::Sub => zip(a, b, i32::wrapping_sub),
        BinaryOp::Mul => zip(a, b, i32::wrapping_mul),
        BinaryOp::Div => zip(a, b, |a, b| if b == 0 { 0 } else { a.wrapping_div(b) }),
        BinaryOp::Rem => zip(a, b, |a, b| if b == 0 { 0 } else { a.wrapping_rem(b) }),
        BinaryOp::Max => zip(a, b, i32::max),
        BinaryOp::Min => zip(a, b, i32::min),
        BinaryOp::And => zip(a, b, |a, b| a & b),
        BinaryOp::Or => zip(a, b, |a, b| a | b),
        BinaryOp::Xor => zip(a, b, |a, b| a ^ b),
        BinaryOp::Shl => zip(a, b, |a, b| a.wrapping_shl(b as u32)),
        BinaryOp::Shr => zip(a, b, |a, b| a.wrapping_shr(b as u32)),
        _ => return None,
    })
}

fn arithmetic_u32(op: BinaryOp, a: &[u32], b: &[u32]) -> Option<Vec<u32>> {
    Some(match op {
        BinaryOp::Add => zip(a, b, u32::wrapping_add),
        BinaryOp::Sub => zip(a, b, u32::wrapping_sub),
        BinaryOp::Mul => zip(a, b, u32::wrapping_mul),
        BinaryOp::Div => zip(a, b, |a, b| a.checked_div(b).unwrap_or(0)),
        BinaryOp::Rem => zip(a, b, |a, b| a.checked_rem(b).unwrap_or(0)),
        BinaryOp::Max => zip(a, b, u32::max),
        BinaryOp::Min => zip(a, b, u32::min),
        BinaryOp::And => zip(a, b, |a, b| a & b),
        BinaryOp::Or => zip(a, b, |a, b| a | b),
        BinaryOp::Xor => zip(a, b, |a, b| a ^ b),
        BinaryOp::Shl => zip(a, b, u32::wrapping_shl),
        BinaryOp::Shr => zip(a, b, u32::wrapping_shr),
        _ => return None,
    })
}
