//! `'…'.format(…)`.

use super::budget::{BoundedText, enter_level};
use super::calls::CallArguments;
use super::error::{RenderError, Try};
use super::evaluate::{attribute, item};
use super::layout::FormatSpec;
use super::print;
use super::value::{TemplateText, Value};

pub(super) fn format(text: &str, arguments: &CallArguments) -> Try<Value> {
    let mut out = BoundedText::new();
    Formatter { arguments, next: 0 }.fill(text, &mut out)?;
    Value::built(out)
}

struct Formatter<'a> {
    arguments: &'a CallArguments,
    /// Index of the next positional value.
    next: usize,
}

impl Formatter<'_> {
    fn fill(&mut self, text: &str, out: &mut BoundedText) -> Try<()> {
        let _level = enter_level()?;
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            out.push(&rest[..at])?;
            let bracket = &rest[at..at + 1];
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix(bracket) {
                out.push(bracket)?;
                rest = after;
                continue;
            }
            if bracket == "}" {
                return Err(RenderError::invalid("single '}' encountered in format string"));
            }
            let end = field_end(rest).ok_or_else(|| RenderError::invalid("expected '}' before end of string"))?;
            self.field(&rest[..end], out)?;
            rest = &rest[end + 1..];
        }
        out.push(rest)
    }

    /// `name!conversion:format`
    fn field(&mut self, field: &str, out: &mut BoundedText) -> Try<()> {
        let name_end = field.find(['!', ':']).unwrap_or(field.len());
        // A `:` or `!` in square brackets is part of the name.
        let name_end = match field.find(']') {
            Some(bracket) if field[..bracket].contains('[') => {
                let behind = &field[bracket..];
                bracket + behind.find(['!', ':']).unwrap_or(behind.len())
            }
            _ => name_end,
        };
        let (name, rest) = field.split_at(name_end);
        let mut value = self.value(name)?;
        let mut rest = rest;
        if let Some(conversion) = rest.strip_prefix('!') {
            let kind = conversion.chars().next().unwrap_or_default();
            value = match kind {
                's' => Value::Text(print::display(&value)?),
                'r' | 'a' => {
                    let mut written = BoundedText::new();
                    print::repr(&value, &mut written)?;
                    Value::built(written)?
                }
                _ => return Err(RenderError::invalid("a conversion is one of !s, !r and !a")),
            };
            rest = &conversion[kind.len_utf8()..];
        }
        let mut format = BoundedText::new();
        if let Some(given) = rest.strip_prefix(':') {
            self.fill(given, &mut format)?;
        } else if !rest.is_empty() {
            return Err(RenderError::invalid("expected ':' after conversion specifier"));
        }
        parse(format.as_str(), matches!(value, Value::Text(_)))?.value(&value, out)
    }

    /// The value of `name.attribute[key]`.
    fn value(&mut self, name: &str) -> Try<Value> {
        let first_end = name.find(['.', '[']).unwrap_or(name.len());
        let (first, mut rest) = name.split_at(first_end);
        let missing = || RenderError::invalid(format!("no value for {first:?}"));
        let index = match first {
            "" => {
                self.next += 1;
                Some(self.next - 1)
            }
            first => first.parse::<usize>().ok(),
        };
        let mut value = match index {
            Some(index) => self.arguments.positional.get(index),
            None => self
                .arguments
                .named
                .iter()
                .find(|(name, _)| &**name == first)
                .map(|(_, value)| value),
        }
        .ok_or_else(missing)?
        .clone();
        while !rest.is_empty() {
            if let Some(after) = rest.strip_prefix('.') {
                let end = after.find(['.', '[']).unwrap_or(after.len());
                value = attribute(&value, &TemplateText::new(&after[..end])?)?;
                rest = &after[end..];
            } else {
                let inner = rest.strip_prefix('[').and_then(|after| after.split_once(']'));
                let (key, after) = inner.ok_or_else(|| RenderError::invalid("expected ']' before end of string"))?;
                let key = match key.parse::<i128>() {
                    Ok(index) => Value::Int(index),
                    Err(_) => Value::text(key)?,
                };
                value = item(&value, &key)?;
                rest = after;
            }
        }
        Ok(value)
    }
}

/// Finds the closing bracket that matches the one opened before `text`.
fn field_end(text: &str) -> Option<usize> {
    let mut open = 1;
    for (at, c) in text.char_indices() {
        open += i32::from(c == '{') - i32::from(c == '}');
        if open == 0 {
            return Some(at);
        }
    }
    None
}

/// `[[fill]align][sign][#][0][width][grouping][.precision][type]`
fn parse(format: &str, of_text: bool) -> Try<FormatSpec> {
    let mut parsed = FormatSpec::default();
    let mut chars = format.chars().peekable();
    let is_align = |c: Option<char>| c.is_some_and(|c| "<>^=".contains(c));
    if is_align(format.chars().nth(1)) {
        parsed.fill = chars.next().unwrap_or(' ');
        parsed.align = chars.next();
    } else if is_align(format.chars().next()) {
        parsed.align = chars.next();
    }
    if let Some(sign) = chars.next_if(|c| "+- ".contains(*c)) {
        parsed.sign = sign;
    }
    parsed.alternate = chars.next_if_eq(&'#').is_some();
    if chars.next_if_eq(&'0').is_some() && parsed.align.is_none() {
        (parsed.fill, parsed.align) = ('0', Some(if of_text { '<' } else { '=' }));
    }
    let mut number = || {
        let mut number = None;
        while let Some(digit) = chars.peek().and_then(|c| c.to_digit(10)) {
            chars.next();
            number = Some(
                number
                    .unwrap_or(0usize)
                    .saturating_mul(10)
                    .saturating_add(digit as usize),
            );
        }
        number
    };
    parsed.width = number().unwrap_or(0);
    parsed.grouping = chars.next_if(|c| matches!(c, ',' | '_'));
    if chars.next_if_eq(&'.').is_some() {
        let mut precision = 0usize;
        while let Some(digit) = chars.peek().and_then(|c| c.to_digit(10)) {
            chars.next();
            precision = precision.saturating_mul(10).saturating_add(digit as usize);
        }
        parsed.precision = Some(precision);
    }
    parsed.kind = chars.next();
    match chars.next() {
        None => Ok(parsed),
        Some(_) => Err(RenderError::invalid(format!("invalid format specifier {format:?}"))),
    }
}
