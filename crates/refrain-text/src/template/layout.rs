//! Lays out numbers and strings in a width, for `%`, the `format` filter and `str.format`.

use super::budget::BoundedText;
use super::error::{RenderError, Try};
use super::print;
use super::value::Value;

/// Largest precision a template may ask for: more digits than a float has.
const MAX_PRECISION: usize = 2000;

/// A parsed format specification.
#[derive(Debug, Clone)]
pub(super) struct FormatSpec {
    pub fill: char,
    /// `<`, `>`, `^`, or `=` for padding after the sign.
    pub align: Option<char>,
    /// `-`, `+` or a space: the sign of non-negative numbers.
    pub sign: char,
    pub alternate: bool,
    pub width: usize,
    /// The separator between groups of digits.
    pub grouping: Option<char>,
    pub precision: Option<usize>,
    pub kind: Option<char>,
}

impl Default for FormatSpec {
    fn default() -> Self {
        FormatSpec {
            fill: ' ',
            align: None,
            sign: '-',
            alternate: false,
            width: 0,
            grouping: None,
            precision: None,
            kind: None,
        }
    }
}

impl FormatSpec {
    /// Writes a string, cut to the precision.
    pub fn text(&self, text: &str, out: &mut BoundedText) -> Try<()> {
        let cut = match self.precision.and_then(|precision| text.char_indices().nth(precision)) {
            Some((end, _)) => &text[..end],
            None => text,
        };
        self.pad("", cut, '<', out)
    }

    pub fn integer(&self, number: i128, out: &mut BoundedText) -> Try<()> {
        let (magnitude, group) = (number.unsigned_abs(), 3);
        let (prefix, digits, group) = match self.kind {
            Some('x') => ("0x", format!("{magnitude:x}"), 4),
            Some('X') => ("0X", format!("{magnitude:X}"), 4),
            Some('o') => ("0o", format!("{magnitude:o}"), 4),
            Some('b') => ("0b", format!("{magnitude:b}"), 4),
            _ => ("", magnitude.to_string(), group),
        };
        let digits = match self.precision {
            Some(precision) if precision > digits.len() => {
                checked(precision)?;
                "0".repeat(precision - digits.len()) + &digits
            }
            _ => digits,
        };
        let prefix = if self.alternate { prefix } else { "" };
        let sign = self.sign_of(number < 0);
        self.pad(
            &format!("{sign}{prefix}"),
            &grouped(&digits, self.grouping, group),
            '>',
            out,
        )
    }

    pub fn float(&self, number: f64, out: &mut BoundedText) -> Try<()> {
        let precision = self.precision.map(checked).transpose()?;
        let magnitude = number.abs();
        let body = match self.kind {
            _ if !number.is_finite() => print::float(magnitude),
            Some('e' | 'E') => scientific(magnitude, precision.unwrap_or(6)),
            Some('f' | 'F') => format!("{magnitude:.*}", precision.unwrap_or(6)),
            Some('%') => format!("{:.*}%", precision.unwrap_or(6), magnitude * 100.0),
            None if precision.is_none() => print::float(magnitude),
            None => match general(magnitude, precision.unwrap_or(6), self.alternate) {
                body if body.contains(['.', 'e']) => body,
                body => body + ".0",
            },
            _ => general(magnitude, precision.unwrap_or(6), self.alternate),
        };
        let body = match self.kind {
            Some('E' | 'F' | 'G') => body.to_uppercase(),
            _ => body,
        };
        let integer_digits = body.find(|c: char| !c.is_ascii_digit()).unwrap_or(body.len());
        let body = grouped(&body[..integer_digits], self.grouping, 3) + &body[integer_digits..];
        let sign = self.sign_of(number.is_sign_negative() && !number.is_nan());
        self.pad(sign, &body, '>', out)
    }

    /// Writes a value by its type, as Python's `format` does.
    pub fn value(&self, value: &Value, out: &mut BoundedText) -> Try<()> {
        let wrong = || RenderError::invalid(format!("'{}' does not support this format", value.kind()));
        let floating = matches!(self.kind, Some('e' | 'E' | 'f' | 'F' | 'g' | 'G' | 'n' | '%'));
        match (value, value.as_int(), self.kind) {
            (Value::Text(text), _, None | Some('s')) => self.text(text, out),
            (Value::Bool(_), _, None) if self.is_empty() => self.text(&print::display(value)?, out),
            (_, Some(_), _) if !floating && self.precision.is_some() => Err(wrong()),
            (_, Some(code), Some('c')) => self.text(&character(code)?.to_string(), out),
            (_, Some(number), None | Some('d' | 'x' | 'X' | 'o' | 'b' | 'n')) => self.integer(number, out),
            (_, Some(number), _) if floating => self.float(number as f64, out),
            (Value::Float(number), _, None) => self.float(*number, out),
            (Value::Float(number), _, _) if floating => self.float(*number, out),
            (Value::Text(_) | Value::Int(_) | Value::Float(_), ..) => Err(wrong()),
            _ if self.width > 0 || self.kind.is_some() || self.precision.is_some() => Err(wrong()),
            _ => print::write(value, out),
        }
    }

    /// Whether this is the empty specification.
    fn is_empty(&self) -> bool {
        self.width == 0 && self.sign == '-' && self.grouping.is_none() && self.precision.is_none() && !self.alternate
    }

    fn sign_of(&self, negative: bool) -> &'static str {
        match (negative, self.sign) {
            (true, _) => "-",
            (false, '+') => "+",
            (false, ' ') => " ",
            (false, _) => "",
        }
    }

    fn pad(&self, sign: &str, body: &str, default: char, out: &mut BoundedText) -> Try<()> {
        let missing = self.width.saturating_sub(sign.chars().count() + body.chars().count());
        let (before, inner, after) = match self.align.unwrap_or(default) {
            '<' => (0, 0, missing),
            '^' => (missing / 2, 0, missing - missing / 2),
            '=' => (0, missing, 0),
            _ => (missing, 0, 0),
        };
        let fill = self.fill.to_string();
        out.push_repeated(&fill, before)?;
        out.push(sign)?;
        out.push_repeated(&fill, inner)?;
        out.push(body)?;
        out.push_repeated(&fill, after)
    }
}

/// Returns the character of a code point.
pub(super) fn character(code: i128) -> Try<char> {
    let found = u32::try_from(code).ok().and_then(char::from_u32);
    found.ok_or_else(|| RenderError::invalid("%c takes a code point"))
}

fn checked(precision: usize) -> Try<usize> {
    if precision <= MAX_PRECISION {
        Ok(precision)
    } else {
        Err(RenderError::invalid(format!(
            "a precision of more than {MAX_PRECISION} digits"
        )))
    }
}

/// Inserts `separator` between groups of digits.
fn grouped(digits: &str, separator: Option<char>, group: usize) -> String {
    let Some(separator) = separator else {
        return digits.to_owned();
    };
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(group) {
            grouped.push(separator);
        }
        grouped.push(digit);
    }
    grouped
}

/// Scientific notation, with an exponent of at least two digits.
fn scientific(number: f64, precision: usize) -> String {
    let written = format!("{number:.precision$e}");
    let (digits, exponent) = written.split_once('e').unwrap_or((&written, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// General notation (`g`): an exponent only if the number is very small or has more digits than the precision.
fn general(number: f64, precision: usize, keep_zeros: bool) -> String {
    let precision = precision.max(1);
    let written = format!("{number:.*e}", precision - 1);
    let exponent: i32 = written
        .split_once('e')
        .and_then(|(_, e)| e.parse().ok())
        .unwrap_or_default();
    let (body, tail) = if exponent < -4 || exponent >= precision as i32 {
        let written = scientific(number, precision - 1);
        let (digits, exponent) = written.split_once('e').unwrap_or((&written, "+00"));
        (digits.to_owned(), format!("e{exponent}"))
    } else {
        let decimals = (precision as i32 - 1 - exponent).max(0) as usize;
        (format!("{number:.decimals$}"), String::new())
    };
    if body.contains('.') && !keep_zeros {
        body.trim_end_matches('0').trim_end_matches('.').to_owned() + &tail
    } else {
        body + &tail
    }
}
