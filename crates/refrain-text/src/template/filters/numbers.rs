//! Filters that return numbers.

use super::sequences::Attributes;
use crate::template::budget::spend;
use crate::template::calls::{CallArguments, integer, text as text_of};
use crate::template::error::{RenderError, Try};
use crate::template::literals::is_space;
use crate::template::operators;
use crate::template::syntax::{Operator, Sign};
use crate::template::value::Value;

/// Largest precision of `round`: more digits than a float has.
const MAX_DIGITS: i128 = 400;

pub(super) fn apply(name: &str, value: &Value, arguments: CallArguments) -> Try<Value> {
    match name {
        "abs" => {
            arguments.none(name)?;
            let negative = value.as_float().is_some_and(|number| number.is_sign_negative());
            operators::signed(value, if negative { Sign::Minus } else { Sign::Plus })
        }
        "int" => {
            let [default, base] = arguments.bind(name, ["default", "base"])?;
            let base = integer(base, "the base of int")?.unwrap_or(10);
            let base = u32::try_from(base).ok().filter(|base| matches!(base, 0 | 2..=36));
            let base = base.ok_or_else(|| RenderError::invalid("the base of int must be from 2 to 36"))?;
            match value {
                Value::Undefined => Err(RenderError::undefined("")),
                value => Ok(to_integer(value, base).map_or(default.unwrap_or(Value::Int(0)), Value::Int)),
            }
        }
        "float" => {
            let [default] = arguments.bind(name, ["default"])?;
            match value {
                Value::Undefined => Err(RenderError::undefined("")),
                Value::Text(text) => Ok(parse_float(text).map_or(default.unwrap_or(Value::Float(0.0)), Value::Float)),
                value => Ok(value
                    .as_float()
                    .map_or(default.unwrap_or(Value::Float(0.0)), Value::Float)),
            }
        }
        "round" => round(value, arguments),
        _ => {
            let [attribute, start] = arguments.bind(name, ["attribute", "start"])?;
            let attributes = Attributes::new(attribute)?;
            let mut sum = start.unwrap_or(Value::Int(0));
            for item in value.iterate()?.iter() {
                spend(1)?;
                if sum.as_text().is_some() {
                    return Err(RenderError::invalid("sum cannot add strings: join them"));
                }
                sum = operators::binary(&sum, Operator::Add, &attributes.of(item)?)?;
            }
            Ok(sum)
        }
    }
}

/// Converts a value to an integer; fractions are truncated.
fn to_integer(value: &Value, base: u32) -> Option<i128> {
    let from_float = |number: f64| (number.is_finite() && number.abs() < 1e38).then_some(number as i128);
    match value {
        Value::Float(number) => from_float(*number),
        Value::Text(text) => parse_int(text, base).or_else(|| parse_float(text).and_then(from_float)),
        value => value.as_int(),
    }
}

/// Parses an integer as Python's `int` does; with base 0 the prefix gives the base.
fn parse_int(text: &str, base: u32) -> Option<i128> {
    let text = text.trim_matches(is_space);
    let (negative, digits) = match text.strip_prefix(['-', '+']) {
        Some(digits) => (text.starts_with('-'), digits),
        None => (false, text),
    };
    let prefixed = [("0x", 16), ("0o", 8), ("0b", 2)];
    let lower = digits.get(..2).map(str::to_ascii_lowercase);
    let found = prefixed
        .iter()
        .find(|(prefix, of)| lower.as_deref() == Some(prefix) && (base == *of || base == 0));
    let (digits, base) = match found {
        Some((_, of)) => (digits[2..].strip_prefix('_').unwrap_or(&digits[2..]), *of),
        None if base == 0 => (digits, 10),
        None => (digits, base),
    };
    let digits = without_separators(digits)?;
    let number = i128::from_str_radix(&digits, base).ok()?;
    Some(if negative { -number } else { number })
}

/// Removes single `_` between digits, and maps digits of other scripts to ASCII.
fn without_separators(digits: &str) -> Option<String> {
    if digits.starts_with(['_', '-', '+']) || digits.ends_with('_') || digits.contains("__") {
        return None;
    }
    Some(digits.chars().filter(|c| *c != '_').map(ascii_digit).collect())
}

fn ascii_digit(c: char) -> char {
    if c.is_ascii() || !crate::template::characters::is_decimal(c.encode_utf8(&mut [0; 4])) {
        return c;
    }
    // The ten digits of a script are contiguous, with at most five such runs in a row.
    let is_digit = |code: u32| {
        char::from_u32(code).is_some_and(|c| crate::template::characters::is_decimal(c.encode_utf8(&mut [0; 4])))
    };
    let below = (1..50).take_while(|step| is_digit(c as u32 - step)).count() as u32;
    char::from_digit(below % 10, 10).unwrap_or(c)
}

/// Parses a float as Python's `float` does.
fn parse_float(text: &str) -> Option<f64> {
    let text = text.trim_matches(is_space);
    let (sign, digits) = match text.strip_prefix(['-', '+']) {
        Some(digits) => (&text[..1], digits),
        None => ("", text),
    };
    let digits = without_separators(digits)?;
    format!("{sign}{digits}").parse().ok()
}

/// `round(value, precision=0, method='common')`
fn round(value: &Value, arguments: CallArguments) -> Try<Value> {
    let [precision, method] = arguments.bind("round", ["precision", "method"])?;
    let precision = integer(precision, "the precision of round")?.unwrap_or(0);
    let method = method.map(|method| text_of(Some(method), "round")).transpose()?;
    let method = method.as_deref().unwrap_or("common");
    let Some(number) = value.as_float() else {
        return match value {
            Value::Undefined => Err(RenderError::undefined("")),
            other => Err(RenderError::invalid(format!("'{}' cannot be rounded", other.kind()))),
        };
    };
    let digits = precision.clamp(-MAX_DIGITS, MAX_DIGITS) as i32;
    let scale = 10f64.powi(digits);
    match (method, value) {
        ("common", Value::Float(_)) if !number.is_finite() => Ok(value.clone()),
        ("common", Value::Float(_)) if digits >= 0 => {
            let rounded = format!("{number:.*}", digits as usize);
            Ok(Value::Float(rounded.parse().unwrap_or(number)))
        }
        ("common", Value::Float(_)) => Ok(Value::Float((number * scale).round_ties_even() / scale)),
        ("common", _) => Ok(Value::Int(rounded_integer(value.as_int().unwrap_or_default(), -digits))),
        ("ceil", _) => Ok(Value::Float((number * scale).ceil() / scale)),
        ("floor", _) => Ok(Value::Float((number * scale).floor() / scale)),
        _ => Err(RenderError::invalid(
            "the method of round must be common, ceil or floor",
        )),
    }
}

/// Rounds an integer to a multiple of a power of 10, ties to even.
fn rounded_integer(number: i128, zeros: i32) -> i128 {
    let Some(unit) = u32::try_from(zeros).ok().and_then(|zeros| 10i128.checked_pow(zeros)) else {
        return if zeros > 0 { 0 } else { number };
    };
    let (quotient, remainder) = (number.div_euclid(unit), number.rem_euclid(unit));
    let up = match (remainder * 2).cmp(&unit) {
        std::cmp::Ordering::Less => false,
        std::cmp::Ordering::Equal => quotient % 2 != 0,
        std::cmp::Ordering::Greater => true,
    };
    (quotient + i128::from(up)).saturating_mul(unit)
}
