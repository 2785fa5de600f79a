//! Arithmetic and slices, as in Python.

use super::budget::{BoundedText, spend, spend_on_bytes};
use super::failure::{Attempt, RenderError};
use super::syntax::{Operator, Sign};
use super::value::{Datum, Gathered, Items};

/// `+value` and `-value`.
pub(super) fn signed(value: &Datum, sign: Sign) -> Attempt<Datum> {
    match (value, value.as_int()) {
        (Datum::Undefined, _) => Err(RenderError::undefined("")),
        (Datum::Float(number), _) => Ok(Datum::Float(if sign == Sign::Minus { -number } else { *number })),
        (_, Some(number)) if sign == Sign::Minus => number.checked_neg().map(Datum::Int).ok_or_else(too_large),
        (_, Some(number)) => Ok(Datum::Int(number)),
        _ => Err(RenderError::invalid(format!(
            "bad operand type for unary operator: '{}'",
            value.kind()
        ))),
    }
}

pub(super) fn binary(left: &Datum, operator: Operator, right: &Datum) -> Attempt<Datum> {
    if let (Operator::Remainder, Datum::Text(format)) = (operator, left) {
        return super::percent::format(format, right);
    }
    if let (Datum::Undefined, _) | (_, Datum::Undefined) = (left, right) {
        return Err(RenderError::undefined(""));
    }
    if let (Some(left), Some(right)) = (left.as_int(), right.as_int()) {
        return integers(left, operator, right);
    }
    if let (Some(left), Some(right)) = (left.as_float(), right.as_float()) {
        return floats(left, operator, right);
    }
    match (operator, left, right) {
        (Operator::Add, Datum::Text(left), Datum::Text(right)) => {
            let mut out = BoundedText::new();
            out.push(left)?;
            out.push(right)?;
            Datum::built(out)
        }
        (Operator::Add, Datum::List(left), Datum::List(right)) => Ok(joined(left, right)?.list()),
        (Operator::Add, Datum::Tuple(left), Datum::Tuple(right)) => Ok(joined(left, right)?.tuple()),
        (Operator::Multiply, value, times) | (Operator::Multiply, times, value)
            if times.as_int().is_some() && !matches!(value, Datum::Dict(_)) =>
        {
            repeated(value, times.as_int().unwrap_or_default())
        }
        _ => Err(unsupported(left, operator, right)),
    }
}

fn unsupported(left: &Datum, operator: Operator, right: &Datum) -> RenderError {
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

fn integers(left: i128, operator: Operator, right: i128) -> Attempt<Datum> {
    let divides = matches!(operator, Operator::Divide | Operator::FloorDivide | Operator::Remainder);
    if divides && right == 0 {
        return Err(by_zero());
    }
    let exact = match operator {
        Operator::Add => left.checked_add(right),
        Operator::Subtract => left.checked_sub(right),
        Operator::Multiply => left.checked_mul(right),
        Operator::Divide => return Ok(Datum::Float(left as f64 / right as f64)),
        Operator::FloorDivide => floor_division(left, right).map(|(quotient, _)| quotient),
        Operator::Remainder => floor_division(left, right).map(|(_, remainder)| remainder),
        Operator::Power if right < 0 => return floats(left as f64, operator, right as f64),
        Operator::Power => u32::try_from(right).ok().and_then(|right| left.checked_pow(right)),
    };
    exact.map(Datum::Int).ok_or_else(too_large)
}

/// Quotient and remainder, where the quotient is rounded down.
fn floor_division(left: i128, right: i128) -> Option<(i128, i128)> {
    let (quotient, remainder) = (left.checked_div(right)?, left.checked_rem(right)?);
    Some(if remainder != 0 && (remainder < 0) != (right < 0) {
        (quotient - 1, remainder + right)
    } else {
        (quotient, remainder)
    })
}

fn floats(left: f64, operator: Operator, right: f64) -> Attempt<Datum> {
    let divides = matches!(operator, Operator::Divide | Operator::FloorDivide | Operator::Remainder);
    if right == 0.0 && divides || left == 0.0 && right < 0.0 && operator == Operator::Power {
        return Err(by_zero());
    }
    Ok(Datum::Float(match operator {
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

fn joined(left: &Items, right: &Items) -> Attempt<Gathered> {
    Gathered::of(left.iter().chain(right.iter()).cloned().map(Ok))
}

fn repeated(value: &Datum, times: i128) -> Attempt<Datum> {
    let times = usize::try_from(times.max(0)).unwrap_or(usize::MAX);
    let items = match value {
        Datum::Text(text) => {
            let mut out = BoundedText::new();
            out.push_repeated(text, times)?;
            return Datum::built(out);
        }
        Datum::List(items) | Datum::Tuple(items) => items,
        other => {
            return Err(RenderError::invalid(format!(
                "unsupported operand types for *: '{}' and 'int'",
                other.kind()
            )));
        }
    };
    let mut gathered = Gathered::new();
    if !items.is_empty() {
        for _ in 0..times {
            for item in items.iter() {
                gathered.push(item.clone())?;
            }
        }
    }
    Ok(match value {
        Datum::Tuple(_) => gathered.tuple(),
        _ => gathered.list(),
    })
}

/// `value[start:stop:step]`.
pub(super) fn slice(value: &Datum, bounds: [Option<Datum>; 3]) -> Attempt<Datum> {
    let mut whole = [None; 3];
    for (place, bound) in whole.iter_mut().zip(&bounds) {
        *place = match bound {
            None | Some(Datum::None) => None,
            Some(bound) => match bound.as_int() {
                Some(number) => Some(number),
                None => return Err(RenderError::invalid("the bounds of a slice must be integers or none")),
            },
        };
    }
    let length = match value {
        Datum::List(_) | Datum::Tuple(_) | Datum::Text(_) => value.length()?,
        _ => return Ok(Datum::Undefined),
    };
    let (start, count, step) = places(whole, length)?;
    spend(count)?;
    let taken = (0..count as i128).map(|round| (start + round * step) as usize);
    match value {
        Datum::List(items) => Ok(Gathered::of(taken.map(|at| Ok(items[at].clone())))?.list()),
        Datum::Tuple(items) => Ok(Gathered::of(taken.map(|at| Ok(items[at].clone())))?.tuple()),
        Datum::Text(text) => {
            spend_on_bytes(text.len())?;
            let (first, step_by) = (start.max(0) as usize, step.unsigned_abs() as usize);
            let sliced: String = if step > 0 {
                text.chars().skip(first).step_by(step_by).take(count).collect()
            } else {
                let behind = length.saturating_sub(first + 1);
                text.chars().rev().skip(behind).step_by(step_by).take(count).collect()
            };
            Datum::text(sliced)
        }
        _ => Ok(Datum::Undefined),
    }
}

/// Where a slice begins, how many places it takes, and the step between them.
fn places([start, stop, step]: [Option<i128>; 3], length: usize) -> Attempt<(i128, usize, i128)> {
    let length = length as i128;
    // Steps beyond the length are all the same.
    let step = step.unwrap_or(1).clamp(-length - 1, length + 1);
    if step == 0 {
        return Err(RenderError::invalid("the step of a slice cannot be zero"));
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
