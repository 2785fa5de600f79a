//! Arithmetic and slices with Python's semantics.

use super::budget::{BoundedText, spend, spend_on_bytes};
use super::error::{RenderError, Try};
use super::syntax::{Operator, Sign};
use super::value::{Items, ItemsBuilder, Value};

/// `+value` and `-value`.
pub(super) fn signed(value: &Value, sign: Sign) -> Try<Value> {
    match (value, value.as_int()) {
        (Value::Undefined, _) => Err(RenderError::undefined("")),
        (Value::Float(number), _) => Ok(Value::Float(if sign == Sign::Minus { -number } else { *number })),
        (_, Some(number)) if sign == Sign::Minus => number.checked_neg().map(Value::Int).ok_or_else(too_large),
        (_, Some(number)) => Ok(Value::Int(number)),
        _ => Err(RenderError::invalid(format!(
            "bad operand type for unary operator: '{}'",
            value.kind()
        ))),
    }
}

pub(super) fn binary(left: &Value, operator: Operator, right: &Value) -> Try<Value> {
    if let (Operator::Remainder, Value::Text(format)) = (operator, left) {
        return super::percent::format(format, right);
    }
    if let (Value::Undefined, _) | (_, Value::Undefined) = (left, right) {
        return Err(RenderError::undefined(""));
    }
    if let (Some(left), Some(right)) = (left.as_int(), right.as_int()) {
        return integers(left, operator, right);
    }
    if let (Some(left), Some(right)) = (left.as_float(), right.as_float()) {
        return floats(left, operator, right);
    }
    match (operator, left, right) {
        (Operator::Add, Value::Text(left), Value::Text(right)) => {
            let mut out = BoundedText::new();
            out.push(left)?;
            out.push(right)?;
            Value::built(out)
        }
        (Operator::Add, Value::List(left), Value::List(right)) => Ok(joined(left, right)?.list()),
        (Operator::Add, Value::Tuple(left), Value::Tuple(right)) => Ok(joined(left, right)?.tuple()),
        (Operator::Multiply, value, times) | (Operator::Multiply, times, value)
            if times.as_int().is_some() && !matches!(value, Value::Dict(_)) =>
        {
            repeated(value, times.as_int().unwrap_or_default())
        }
        _ => Err(unsupported(left, operator, right)),
    }
}

fn unsupported(left: &Value, operator: Operator, right: &Value) -> RenderError {
    let sign = match operator {
        Operator::Add => "+",
        Operator::Subtract => "-",
        Operator::Multiply => "*",
        Operator::Divide => "/",
        Operator::FloorDivide => "//",
        Operator::Remainder => "%",
        Operator::Power => "**",
    };
    RenderError::invalid(format!(
        "unsupported operand types for {sign}: '{}' and '{}'",
        left.kind(),
        right.kind()
    ))
}

fn too_large() -> RenderError {
    RenderError::invalid("the integer is too large")
}

fn by_zero() -> RenderError {
    RenderError::invalid("division by zero")
}

fn integers(left: i128, operator: Operator, right: i128) -> Try<Value> {
    let divides = matches!(operator, Operator::Divide | Operator::FloorDivide | Operator::Remainder);
    if divides && right == 0 {
        return Err(by_zero());
    }
    let exact = match operator {
        Operator::Add => left.checked_add(right),
        Operator::Subtract => left.checked_sub(right),
        Operator::Multiply => left.checked_mul(right),
        Operator::Divide => return Ok(Value::Float(left as f64 / right as f64)),
        Operator::FloorDivide => floor_division(left, right).map(|(quotient, _)| quotient),
        Operator::Remainder => floor_division(left, right).map(|(_, remainder)| remainder),
        Operator::Power if right < 0 => return floats(left as f64, operator, right as f64),
        Operator::Power => u32::try_from(right).ok().and_then(|right| left.checked_pow(right)),
    };
    exact.map(Value::Int).ok_or_else(too_large)
}

/// Quotient, rounded down, and remainder.
fn floor_division(left: i128, right: i128) -> Option<(i128, i128)> {
    let (quotient, remainder) = (left.checked_div(right)?, left.checked_rem(right)?);
    Some(if remainder != 0 && (remainder < 0) != (right < 0) {
        (quotient - 1, remainder + right)
    } else {
        (quotient, remainder)
    })
}

fn floats(left: f64, operator: Operator, right: f64) -> Try<Value> {
    let divides = matches!(operator, Operator::Divide | Operator::FloorDivide | Operator::Remainder);
    if right == 0.0 && divides || left == 0.0 && right < 0.0 && operator == Operator::Power {
        return Err(by_zero());
    }
    Ok(Value::Float(match operator {
        Operator::Add => left + right,
        Operator::Subtract => left - right,
        Operator::Multiply => left * right,
        Operator::Divide => left / right,
        Operator::FloorDivide => float_division(left, right).0,
        Operator::Remainder => float_division(left, right).1,
        Operator::Power => {
            let power = left.powf(right);
            if power.is_nan() && !left.is_nan() && !right.is_nan() {
                return Err(RenderError::invalid("the power is a complex number"));
            }
            power
        }
    }))
}

/// Quotient, rounded down, and remainder, which has the sign of the divisor.
fn float_division(left: f64, right: f64) -> (f64, f64) {
    let mut remainder = left % right;
    let mut quotient = (left - remainder) / right;
    if remainder == 0.0 {
        remainder = 0f64.copysign(right);
    } else if (remainder < 0.0) != (right < 0.0) {
        remainder += right;
        quotient -= 1.0;
    }
    if quotient == 0.0 {
        return (0f64.copysign(left / right), remainder);
    }
    let floor = quotient.floor();
    (if quotient - floor > 0.5 { floor + 1.0 } else { floor }, remainder)
}

fn joined(left: &Items, right: &Items) -> Try<ItemsBuilder> {
    ItemsBuilder::of(left.iter().chain(right.iter()).cloned().map(Ok))
}

fn repeated(value: &Value, times: i128) -> Try<Value> {
    let times = usize::try_from(times.max(0)).unwrap_or(usize::MAX);
    let items = match value {
        Value::Text(text) => {
            let mut out = BoundedText::new();
            out.push_repeated(text, times)?;
            return Value::built(out);
        }
        Value::List(items) | Value::Tuple(items) => items,
        other => {
            return Err(RenderError::invalid(format!(
                "unsupported operand types for *: '{}' and 'int'",
                other.kind()
            )));
        }
    };
    let mut gathered = ItemsBuilder::new();
    if !items.is_empty() {
        for _ in 0..times {
            for item in items.iter() {
                gathered.push(item.clone())?;
            }
        }
    }
    Ok(match value {
        Value::Tuple(_) => gathered.tuple(),
        _ => gathered.list(),
    })
}

/// `value[start:stop:step]`.
pub(super) fn slice(value: &Value, bounds: [Option<Value>; 3]) -> Try<Value> {
    let mut bounds_as_integers = [None; 3];
    for (slot, bound) in bounds_as_integers.iter_mut().zip(&bounds) {
        *slot = match bound {
            None | Some(Value::None) => None,
            Some(bound) => match bound.as_int() {
                Some(number) => Some(number),
                None => return Err(RenderError::invalid("slice bounds must be integers or none")),
            },
        };
    }
    let length = match value {
        Value::List(_) | Value::Tuple(_) | Value::Text(_) => value.length()?,
        _ => return Ok(Value::Undefined),
    };
    let (start, count, step) = slice_indices(bounds_as_integers, length)?;
    spend(count)?;
    let taken = (0..count as i128).map(|round| (start + round * step) as usize);
    match value {
        Value::List(items) => Ok(ItemsBuilder::of(taken.map(|at| Ok(items[at].clone())))?.list()),
        Value::Tuple(items) => Ok(ItemsBuilder::of(taken.map(|at| Ok(items[at].clone())))?.tuple()),
        Value::Text(text) => {
            spend_on_bytes(text.len())?;
            let (first, step_by) = (start.max(0) as usize, step.unsigned_abs() as usize);
            let sliced: String = if step > 0 {
                text.chars().skip(first).step_by(step_by).take(count).collect()
            } else {
                let behind = length.saturating_sub(first + 1);
                text.chars().rev().skip(behind).step_by(step_by).take(count).collect()
            };
            Value::text(sliced)
        }
        _ => Ok(Value::Undefined),
    }
}

/// Returns the first index of a slice, the number of its items, and the step.
fn slice_indices([start, stop, step]: [Option<i128>; 3], length: usize) -> Try<(i128, usize, i128)> {
    let length = length as i128;
    // Steps beyond the length are equivalent.
    let step = step.unwrap_or(1).clamp(-length - 1, length + 1);
    if step == 0 {
        return Err(RenderError::invalid("slice step cannot be zero"));
    }
    let (lowest, highest) = if step > 0 { (0, length) } else { (-1, length - 1) };
    let bound = |bound: Option<i128>, default: i128| match bound {
        None => default,
        Some(bound) if bound < 0 => bound.saturating_add(length).clamp(lowest, highest),
        Some(bound) => bound.clamp(lowest, highest),
    };
    let (start, stop) = if step > 0 {
        (bound(start, lowest), bound(stop, highest))
    } else {
        (bound(start, highest), bound(stop, lowest))
    };
    let span = if step > 0 { stop - start } else { start - stop };
    let count = if span <= 0 { 0 } else { (span - 1) / step.abs() + 1 };
    Ok((start, count as usize, step))
}
