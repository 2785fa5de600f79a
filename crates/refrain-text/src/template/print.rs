//! Prints values as Python does: `str`, `repr`, and `json.dumps` for the `tojson` filter.

use std::fmt::Write;

use super::budget::{BoundedText, enter_level, spend};
use super::calls::{CallArguments, Callable, flag};
use super::compare;
use super::error::{RenderError, Try};
use super::value::{TemplateText, Value};

/// Writes a value as Python's `str` does.
pub(super) fn write(value: &Value, out: &mut BoundedText) -> Try<()> {
    match value {
        Value::Undefined => Ok(()),
        Value::Text(text) => out.push(text),
        other => repr(other, out),
    }
}

/// Returns a value as Python's `str` does.
pub(super) fn display(value: &Value) -> Try<TemplateText> {
    if let Value::Text(text) = value {
        return Ok(text.clone());
    }
    let mut out = BoundedText::new();
    write(value, &mut out)?;
    TemplateText::new(out.into_string())
}

/// Writes a value as Python's `repr` does.
pub(super) fn repr(value: &Value, out: &mut BoundedText) -> Try<()> {
    let _level = enter_level()?;
    spend(1)?;
    match value {
        Value::Undefined => out.push("Undefined"),
        Value::None => out.push("None"),
        Value::Bool(true) => out.push("True"),
        Value::Bool(false) => out.push("False"),
        Value::Int(number) => out.push(&number.to_string()),
        Value::Float(number) => out.push(&float(*number)),
        Value::Number(digits) => out.push(digits),
        Value::Text(text) => repr_text(text, out),
        Value::List(items) => {
            out.push("[")?;
            repr_items(items, out)?;
            out.push("]")
        }
        Value::Tuple(items) => {
            out.push("(")?;
            repr_items(items, out)?;
            out.push(if items.len() == 1 { ",)" } else { ")" })
        }
        Value::Dict(dict) => repr_entries(dict.entries(), out),
        Value::Namespace(namespace) => {
            out.push("<Namespace ")?;
            repr_entries(namespace.0.borrow().entries(), out)?;
            out.push(">")
        }
        Value::Loop(state) => out.push(&format!("<LoopContext {}>", state.display())),
        Value::Callable(callable) => match &**callable {
            Callable::GlobalFunction(_) => out.push("<function>"),
            Callable::Method(_, name) => out.push(&format!("<method {:?}>", &**name)),
            Callable::Macro(source, _) => out.push(&format!("<Macro {:?}>", &*source.name)),
            Callable::Cycler(_) => out.push("<Cycler>"),
            Callable::Joiner(_) => out.push("<Joiner>"),
        },
    }
}

fn repr_items(items: &[Value], out: &mut BoundedText) -> Try<()> {
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push(", ")?;
        }
        repr(item, out)?;
    }
    Ok(())
}

fn repr_entries(entries: &[(Value, Value)], out: &mut BoundedText) -> Try<()> {
    out.push("{")?;
    for (index, (key, value)) in entries.iter().enumerate() {
        if index > 0 {
            out.push(", ")?;
        }
        repr(key, out)?;
        out.push(": ")?;
        repr(value, out)?;
    }
    out.push("}")
}

/// Prints a float as Python does: the shortest digits that round-trip, with an exponent below 1e-4 and from 1e16
/// on.
pub(super) fn float(number: f64) -> String {
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
            if plain.contains('.') { plain } else { plain + ".0" }
        }
    }
}

/// Writes a string as Python's `repr` quotes it.
fn repr_text(text: &str, out: &mut BoundedText) -> Try<()> {
    let quote = if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    };
    spend(text.len())?;
    out.push_char(quote)?;
    for c in text.chars() {
        match c {
            '\\' => out.push("\\\\")?,
            '\n' => out.push("\\n")?,
            '\r' => out.push("\\r")?,
            '\t' => out.push("\\t")?,
            c if c == quote => {
                out.push_char('\\')?;
                out.push_char(c)?;
            }
            c if is_printable(c) => out.push_char(c)?,
            c => out.push(&match c as u32 {
                code @ ..=0xff => format!("\\x{code:02x}"),
                code @ ..=0xffff => format!("\\u{code:04x}"),
                code => format!("\\U{code:08x}"),
            })?,
        }
    }
    out.push_char(quote)
}

/// Python's `str.isprintable`: no control or format character, no separator but the space, no unassigned code
/// point.
pub(super) fn is_printable(c: char) -> bool {
    if c.is_ascii() {
        return matches!(c, ' '..='~');
    }
    // Rust's debug output escapes the same characters; only as the first character it also escapes marks.
    let text = String::from_iter(['a', c]);
    text.escape_debug().nth(1) != Some('\\')
}

/// Layout of `json.dumps`.
struct JsonStyle {
    ascii: bool,
    /// Indentation of one level; `None` writes everything on one line.
    indent: Option<TemplateText>,
    between_items: TemplateText,
    after_key: TemplateText,
    sort_keys: bool,
}

/// `tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False)`.
pub(super) fn to_json(value: &Value, arguments: CallArguments) -> Try<Value> {
    let names = ["ensure_ascii", "indent", "separators", "sort_keys"];
    let given = arguments.bind("tojson", names)?;
    let [ascii, indent, separators, sort_keys] = given.map(|value| value.filter(|value| !matches!(value, Value::None)));
    let indent = match indent {
        None => None,
        Some(Value::Text(text)) => Some(text),
        Some(width) => {
            let width = super::calls::size(Some(width), "the indent of tojson")?;
            let mut out = BoundedText::new();
            out.push_repeated(" ", width.unwrap_or_default())?;
            Some(TemplateText::new(out.into_string())?)
        }
    };
    let (mut between_items, mut after_key) = (if indent.is_none() { ", " } else { "," }, ": ");
    let pair = separators.map(|pair| pair.iterate()).transpose()?;
    if let Some(pair) = &pair {
        let [Value::Text(items), Value::Text(key)] = &pair[..] else {
            return Err(RenderError::invalid("separators of tojson must be a pair of strings"));
        };
        (between_items, after_key) = (items, key);
    }
    let style = JsonStyle {
        ascii: flag(ascii),
        indent,
        between_items: TemplateText::new(between_items)?,
        after_key: TemplateText::new(after_key)?,
        sort_keys: flag(sort_keys),
    };
    let mut out = BoundedText::new();
    dump(value, &style, 0, &mut out)?;
    Value::built(out)
}

fn dump(value: &Value, style: &JsonStyle, depth: usize, out: &mut BoundedText) -> Try<()> {
    let _level = enter_level()?;
    spend(1)?;
    match value {
        Value::None => out.push("null"),
        Value::Bool(flag) => out.push(if *flag { "true" } else { "false" }),
        Value::Int(number) => out.push(&number.to_string()),
        Value::Float(number) => out.push(&json_float(*number)),
        Value::Number(digits) => out.push(digits),
        Value::Text(text) => quote(text, style.ascii, out),
        Value::List(items) | Value::Tuple(items) => bracket(["[", "]"], items, style, depth, out, |item, out| {
            dump(item, style, depth + 1, out)
        }),
        Value::Dict(dict) => {
            let mut entries = Vec::with_capacity(dict.entries().len());
            for (key, item) in dict.entries() {
                entries.push((key.clone(), (json_key(key)?, item.clone())));
            }
            let entries = if style.sort_keys {
                compare::sort(entries)?
            } else {
                entries.into_iter().map(|(_, entry)| entry).collect()
            };
            bracket(["{", "}"], &entries, style, depth, out, |(key, item), out| {
                quote(key, style.ascii, out)?;
                out.push(&style.after_key)?;
                dump(item, style, depth + 1, out)
            })
        }
        Value::Undefined => Err(unserialisable("is undefined")),
        other => Err(unserialisable(&format!("is a {}", other.kind()))),
    }
}

fn unserialisable(what: &str) -> RenderError {
    RenderError::invalid(format!("the value given to tojson {what}"))
}

/// Writes items between brackets in this style.
fn bracket<T>(
    [open, close]: [&str; 2],
    items: &[T],
    style: &JsonStyle,
    depth: usize,
    out: &mut BoundedText,
    mut write: impl FnMut(&T, &mut BoundedText) -> Try<()>,
) -> Try<()> {
    let new_line = |out: &mut BoundedText, depth: usize| match &style.indent {
        Some(indent) => {
            out.push("\n")?;
            out.push_repeated(indent, depth)
        }
        None => Ok(()),
    };
    out.push(open)?;
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push(&style.between_items)?;
        }
        new_line(out, depth + 1)?;
        write(item, out)?;
    }
    if !items.is_empty() {
        new_line(out, depth)?;
    }
    out.push(close)
}

fn json_float(number: f64) -> String {
    match number {
        number if number.is_nan() => "NaN".to_owned(),
        f64::INFINITY => "Infinity".to_owned(),
        f64::NEG_INFINITY => "-Infinity".to_owned(),
        number => float(number),
    }
}

/// Returns a JSON key. Python writes the keys `True`, `None` and numbers as strings.
fn json_key(key: &Value) -> Try<TemplateText> {
    match key {
        Value::Text(text) => Ok(text.clone()),
        Value::None => TemplateText::new("null"),
        Value::Bool(flag) => TemplateText::new(if *flag { "true" } else { "false" }),
        Value::Int(number) => TemplateText::new(number.to_string()),
        Value::Float(number) => TemplateText::new(json_float(*number)),
        _ => Err(unserialisable("has a key that is not a string")),
    }
}

fn quote(text: &str, ascii: bool, out: &mut BoundedText) -> Try<()> {
    out.push("\"")?;
    let plain = |c: char| !matches!(c, '"' | '\\') && c >= ' ' && (!ascii || matches!(c, ' '..='~'));
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let length = rest.find(|c| !plain(c)).unwrap_or(rest.len());
        if length > 0 {
            out.push(&rest[..length])?;
            rest = &rest[length..];
            continue;
        }
        match c {
            '"' => out.push("\\\"")?,
            '\\' => out.push("\\\\")?,
            '\n' => out.push("\\n")?,
            '\r' => out.push("\\r")?,
            '\t' => out.push("\\t")?,
            '\u{8}' => out.push("\\b")?,
            '\u{c}' => out.push("\\f")?,
            c => {
                let mut escaped = String::new();
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let _ = write!(escaped, "\\u{unit:04x}");
                }
                out.push(&escaped)?;
            }
        }
        rest = &rest[c.len_utf8()..];
    }
    out.push("\"")
}
