//! `'…' % values`.

use std::iter::Peekable;
use std::str::Chars;

use super::budget::BoundedText;
use super::error::{RenderError, Try};
use super::layout::{FormatSpec, character};
use super::print;
use super::value::{DictKey, TemplateText, Value};

/// The values of a format, taken in order or by name.
struct PercentValues<'v> {
    positional: &'v [Value],
    named: &'v Value,
}

pub(super) fn format(format: &str, values: &Value) -> Try<Value> {
    let mut given = PercentValues {
        positional: match values {
            Value::Tuple(items) => items,
            single => std::slice::from_ref(single),
        },
        named: values,
    };
    let mut out = BoundedText::new();
    let mut chars = format.chars().peekable();
    let mut by_name = false;
    while let Some(c) = chars.next() {
        match c {
            '%' => by_name |= given.convert(&mut chars, &mut out)?,
            c => out.push_char(c)?,
        }
    }
    if !given.positional.is_empty() && !by_name && !matches!(values, Value::Dict(_)) {
        return Err(RenderError::invalid(
            "not all arguments converted during string formatting",
        ));
    }
    Value::built(out)
}

impl PercentValues<'_> {
    fn take(&mut self) -> Try<Value> {
        match self.positional.split_first() {
            Some((first, rest)) => {
                self.positional = rest;
                Ok(first.clone())
            }
            None => Err(RenderError::invalid("not enough arguments for format string")),
        }
    }

    /// Writes one conversion, from behind its `%` on. Returns whether it named its value.
    fn convert(&mut self, chars: &mut Peekable<Chars<'_>>, out: &mut BoundedText) -> Try<bool> {
        let incomplete = || RenderError::invalid("incomplete format");
        let mut named = None;
        if chars.next_if_eq(&'(').is_some() {
            named = Some(self.named(chars)?);
        }
        let by_name = named.is_some();
        let mut format = FormatSpec {
            align: Some('>'),
            ..FormatSpec::default()
        };
        let mut zeros = false;
        while let Some(flag) = chars.next_if(|c| "#0- +".contains(*c)) {
            match flag {
                '#' => format.alternate = true,
                '0' => zeros = true,
                '-' => format.align = Some('<'),
                ' ' if format.sign == '+' => {}
                sign => format.sign = sign,
            }
        }
        if let Some(width) = self.size(chars)? {
            if width < 0 {
                format.align = Some('<');
            }
            format.width = usize::try_from(width.unsigned_abs()).unwrap_or(usize::MAX);
        }
        if chars.next_if_eq(&'.').is_some() {
            let precision = self.size(chars)?.unwrap_or(0);
            format.precision = Some(usize::try_from(precision.max(0)).unwrap_or(usize::MAX));
        }
        while chars.next_if(|c| "hlL".contains(*c)).is_some() {}
        let kind = chars.next().ok_or_else(incomplete)?;
        if kind == '%' {
            out.push("%")?;
            return Ok(by_name);
        }
        let value = match named {
            Some(value) => value,
            None => self.take()?,
        };
        if zeros && format.align != Some('<') && !matches!(kind, 's' | 'r' | 'a' | 'c') {
            (format.fill, format.align) = ('0', Some('='));
        }
        write(&value, kind, format, out)?;
        Ok(by_name)
    }

    /// Returns the value of a name in brackets.
    fn named(&self, chars: &mut Peekable<Chars<'_>>) -> Try<Value> {
        let Value::Dict(dict) = self.named else {
            return Err(RenderError::invalid("format requires a mapping"));
        };
        let mut name = String::new();
        let mut open = 1;
        for c in chars.by_ref() {
            open += i32::from(c == '(') - i32::from(c == ')');
            if open == 0 {
                let found = dict.get(&DictKey::Text(TemplateText::new(name.as_str())?));
                return found
                    .cloned()
                    .ok_or_else(|| RenderError::invalid(format!("no value for {name:?}")));
            }
            name.push(c);
        }
        Err(RenderError::invalid("incomplete format key"))
    }

    /// Parses a width or precision: digits, or `*` for one of the values.
    fn size(&mut self, chars: &mut Peekable<Chars<'_>>) -> Try<Option<i128>> {
        if chars.next_if_eq(&'*').is_some() {
            let size = self.take()?.as_int();
            return size.map(Some).ok_or_else(|| RenderError::invalid("* wants an integer"));
        }
        let mut size = None;
        while let Some(digit) = chars.peek().and_then(|c| c.to_digit(10)) {
            chars.next();
            size = Some(i128::from(digit) + 10i128.saturating_mul(size.unwrap_or(0)).min(i128::MAX - 10));
        }
        Ok(size)
    }
}

fn write(value: &Value, kind: char, mut format: FormatSpec, out: &mut BoundedText) -> Try<()> {
    let wrong = || {
        let what = format!("%{kind} format: a number is required, not '{}'", value.kind());
        Err(RenderError::invalid(what))
    };
    format.kind = Some(match kind {
        'i' | 'u' => 'd',
        kind => kind,
    });
    match kind {
        's' => format.text(&print::display(value)?, out),
        'r' | 'a' => {
            let mut written = BoundedText::new();
            print::repr(value, &mut written)?;
            format.text(written.as_str(), out)
        }
        'c' => match value {
            Value::Text(text) if text.chars().count() == 1 => format.text(text, out),
            other => match other.as_int() {
                Some(code) => format.text(&character(code)?.to_string(), out),
                None => wrong(),
            },
        },
        'd' | 'i' | 'u' | 'x' | 'X' | 'o' => match (value.as_int(), value) {
            (Some(number), _) => format.integer(number, out),
            (None, Value::Float(number)) if number.is_finite() && matches!(kind, 'd' | 'i' | 'u') => {
                format.integer(*number as i128, out)
            }
            _ => wrong(),
        },
        'e' | 'E' | 'f' | 'F' | 'g' | 'G' => match value.as_float() {
            Some(number) => format.float(number, out),
            None => wrong(),
        },
        other => Err(RenderError::invalid(format!("unsupported format character {other:?}"))),
    }
}
