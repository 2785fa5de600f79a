//! Values as Python writes them: `json.dumps` for the `tojson` filter, `str` for output.

use std::fmt::Write;

use minijinja::value::{Kwargs, Rest, Tuple, ValueKind, ValueOrKwargs, from_args};
use minijinja::{Error, ErrorKind, Value};

/// How `json.dumps` lays out its text.
struct Style {
    ascii: bool,
    /// What a level is indented by; `None` writes everything on one line.
    indent: Option<String>,
    between_items: String,
    after_key: String,
    sort_keys: bool,
}

/// Objects nested deeper than this are cycles or attacks.
const MAX_DEPTH: usize = 128;

/// `tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False)`.
pub(super) fn filter(value: &Value, args: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    let args = args.into_values();
    let (positional, options): (&[Value], Kwargs) = from_args(&args)?;
    let option = |position: usize, name: &str| -> Result<Option<Value>, Error> {
        let value = match positional.get(position) {
            Some(value) => Some(value.clone()),
            None => options.get::<Option<Value>>(name)?,
        };
        Ok(value.filter(|value| !value.is_none() && !value.is_undefined()))
    };
    let indent = match option(1, "indent")? {
        None => None,
        Some(text) if text.as_str().is_some() => text.as_str().map(str::to_owned),
        Some(width) => {
            let width = i64::try_from(width)?.clamp(0, 1000);
            Some(" ".repeat(width as usize))
        }
    };
    let (mut between_items, mut after_key) = match indent {
        None => (", ".to_owned(), ": ".to_owned()),
        Some(_) => (",".to_owned(), ": ".to_owned()),
    };
    if let Some(pair) = option(2, "separators")? {
        let pair: Vec<Value> = pair.try_iter()?.collect();
        let [items, key] = pair.as_slice() else {
            return Err(Error::new(
                ErrorKind::InvalidOperation,
                "separators of tojson must be a pair",
            ));
        };
        (between_items, after_key) = (items.to_string(), key.to_string());
    }
    let flag = |value: Option<Value>| value.is_some_and(|value| value.is_true());
    let style = Style {
        ascii: flag(option(0, "ensure_ascii")?),
        indent,
        between_items,
        after_key,
        sort_keys: flag(option(3, "sort_keys")?),
    };
    options.assert_all_used()?;
    let mut out = String::new();
    dump(value, &style, 0, &mut out)?;
    Ok(Value::from(out))
}

fn dump(value: &Value, style: &Style, depth: usize, out: &mut String) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(unserialisable("is nested too deeply"));
    }
    match value.kind() {
        ValueKind::None => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => out.push_str(&match float(value) {
            Some(number) if number.is_nan() => "NaN".to_owned(),
            Some(number) if number.is_infinite() => {
                format!("{}Infinity", if number < 0.0 { "-" } else { "" })
            }
            _ => number(value),
        }),
        ValueKind::String => quote(value.as_str().unwrap_or_default(), style.ascii, out),
        ValueKind::Seq | ValueKind::Iterable => {
            let items: Vec<Value> = value.try_iter()?.collect();
            bracket('[', ']', &items, style, depth, out, |item, out| {
                dump(item, style, depth + 1, out)
            })?;
        }
        ValueKind::Map => {
            let mut entries = Vec::new();
            for key in value.try_iter()? {
                let item = value.get_item(&key)?;
                entries.push((json_key(&key)?, item));
            }
            if style.sort_keys {
                entries.sort_by(|a, b| a.0.cmp(&b.0));
            }
            bracket('{', '}', &entries, style, depth, out, |(key, item), out| {
                quote(key, style.ascii, out);
                out.push_str(&style.after_key);
                dump(item, style, depth + 1, out)
            })?;
        }
        ValueKind::Undefined => return Err(unserialisable("is undefined")),
        other => return Err(unserialisable(&format!("is a {other}"))),
    }
    Ok(())
}

fn unserialisable(what: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("the value given to tojson {what}"))
}

/// Write items between brackets, laid out by the style.
fn bracket<T>(
    open: char,
    close: char,
    items: &[T],
    style: &Style,
    depth: usize,
    out: &mut String,
    mut write: impl FnMut(&T, &mut String) -> Result<(), Error>,
) -> Result<(), Error> {
    let new_line = |out: &mut String, depth: usize| {
        if let Some(indent) = &style.indent {
            out.push('\n');
            out.push_str(&indent.repeat(depth));
        }
    };
    out.push(open);
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push_str(&style.between_items);
        }
        new_line(out, depth + 1);
        write(item, out)?;
    }
    if !items.is_empty() {
        new_line(out, depth);
    }
    out.push(close);
    Ok(())
}

/// A key as JSON has it; Python writes the keys `True`, `None` and numbers as strings.
fn json_key(key: &Value) -> Result<String, Error> {
    Ok(match key.kind() {
        ValueKind::String => key.as_str().unwrap_or_default().to_owned(),
        ValueKind::None => "null".to_owned(),
        ValueKind::Bool => if key.is_true() { "true" } else { "false" }.to_owned(),
        ValueKind::Number => number(key),
        _ => return Err(unserialisable("has a key that is no string")),
    })
}

fn quote(text: &str, ascii: bool, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if (c < ' ') || (ascii && !(' '..='~').contains(&c)) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// The value as a float, if it is one (and not an integer).
fn float(value: &Value) -> Option<f64> {
    if value.kind() != ValueKind::Number || value.is_integer() {
        return None;
    }
    f64::try_from(value.clone()).ok()
}

/// A number as Python writes it: the shortest digits that give the same float, with an exponent
/// below 1e-4 and from 1e16 on.
fn number(value: &Value) -> String {
    let Some(number) = float(value) else {
        return value.to_string();
    };
    if number.is_nan() {
        return "nan".to_owned();
    }
    if number.is_infinite() {
        return if number < 0.0 { "-inf" } else { "inf" }.to_owned();
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    match exponent.parse::<i32>() {
        Ok(exponent) if number != 0.0 && !(-4..16).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.abs())
        }
        _ => {
            let plain = number.to_string();
            match plain.contains('.') {
                true => plain,
                false => plain + ".0",
            }
        }
    }
}

/// A value as Python's `str` gives it.
pub(super) fn display(value: &Value) -> String {
    match value.kind() {
        ValueKind::String => value.as_str().unwrap_or_default().to_owned(),
        ValueKind::Number | ValueKind::Seq | ValueKind::Map => {
            let mut out = String::new();
            represent(value, 0, &mut out);
            out
        }
        _ => value.to_string(),
    }
}

/// A value as Python's `repr` gives it.
fn represent(value: &Value, depth: usize, out: &mut String) {
    let sequence = |out: &mut String, close: char| {
        for (index, item) in value.try_iter().into_iter().flatten().enumerate() {
            if index > 0 {
                out.push_str(", ");
            }
            represent(&item, depth + 1, out);
        }
        out.push(close);
    };
    match value.kind() {
        _ if depth > MAX_DEPTH => out.push_str("..."),
        ValueKind::Number => out.push_str(&number(value)),
        ValueKind::String => represent_text(value.as_str().unwrap_or_default(), out),
        ValueKind::Seq => match value.downcast_object_ref::<Tuple>() {
            None => {
                out.push('[');
                sequence(out, ']');
            }
            Some(_) => {
                out.push('(');
                sequence(out, if value.len() == Some(1) { ',' } else { ')' });
                if value.len() == Some(1) {
                    out.push(')');
                }
            }
        },
        ValueKind::Map => {
            out.push('{');
            for (index, key) in value.try_iter().into_iter().flatten().enumerate() {
                if index > 0 {
                    out.push_str(", ");
                }
                represent(&key, depth + 1, out);
                out.push_str(": ");
                let item = value.get_item(&key).unwrap_or_default();
                represent(&item, depth + 1, out);
            }
            out.push('}');
        }
        _ => out.push_str(&value.to_string()),
    }
}

/// A string as Python's `repr` quotes it.
fn represent_text(text: &str, out: &mut String) {
    let quote = match text.contains('\'') && !text.contains('"') {
        true => '"',
        false => '\'',
    };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => {
                out.push('\\');
                out.push(c);
            }
            c if is_printable(c) => out.push(c),
            c => {
                let _ = match c as u32 {
                    code @ ..=0xff => write!(out, "\\x{code:02x}"),
                    code @ ..=0xffff => write!(out, "\\u{code:04x}"),
                    code => write!(out, "\\U{code:08x}"),
                };
            }
        }
    }
    out.push(quote);
}

/// Python's `str.isprintable`: no control or format character, no separator but the space, nothing unassigned.
fn is_printable(c: char) -> bool {
    // Debug output of text escapes the same, but of the first character also marks.
    let text = String::from_iter(['a', c]);
    let mut written = text.escape_debug().skip(1);
    written.next() != Some('\\') || matches!(written.next(), Some('\\' | '\'' | '"'))
}
