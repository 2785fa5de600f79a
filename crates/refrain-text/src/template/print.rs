//! PercentValues as Python writes them: `str`, `repr`, and `json.dumps` for the `tojson` filter.

use std::fmt::Write;

use super::budget::{BoundedText, deeper, spend};
use super::calls::{CallArguments, Callable, flag};
use super::compare;
use super::failure::{Attempt, RenderError};
use super::value::{Datum, TemplateText};

/// Write a value as Python's `str` gives it.
pub(super) fn write(value: &Datum, out: &mut BoundedText) -> Attempt<()> {
    match value {
        Datum::Undefined => Ok(()),
        Datum::Text(text) => out.push(text),
        other => represent(other, out),
    }
}

/// A value as Python's `str` gives it.
pub(super) fn display(value: &Datum) -> Attempt<TemplateText> {
    if let Datum::Text(text) = value {
        return Ok(text.clone());
    }
    let mut out = BoundedText::new();
    write(value, &mut out)?;
    TemplateText::new(out.into_string())
}

/// Write a value as Python's `repr` gives it.
pub(super) fn represent(value: &Datum, out: &mut BoundedText) -> Attempt<()> {
    let _level = deeper()?;
    spend(1)?;
    match value {
        Datum::Undefined => out.push("Undefined"),
        Datum::None => out.push("None"),
        Datum::Bool(true) => out.push("True"),
        Datum::Bool(false) => out.push("False"),
        Datum::Int(number) => out.push(&number.to_string()),
        Datum::Float(number) => out.push(&float(*number)),
        Datum::Text(text) => represent_text(text, out),
        Datum::List(items) => {
            out.push("[")?;
            represent_items(items, out)?;
            out.push("]")
        }
        Datum::Tuple(items) => {
            out.push("(")?;
            represent_items(items, out)?;
            out.push(if items.len() == 1 { ",)" } else { ")" })
        }
        Datum::Dict(dict) => represent_entries(dict.entries(), out),
        Datum::Namespace(namespace) => {
            out.push("<Namespace ")?;
            represent_entries(namespace.0.borrow().entries(), out)?;
            out.push(">")
        }
        Datum::Loop(state) => out.push(&format!("<LoopContext {}>", state.place())),
        Datum::Callable(callable) => match &**callable {
            Callable::GlobalFunction(_) => out.push("<function>"),
            Callable::Method(_, name) => out.push(&format!("<method {:?}>", &**name)),
            Callable::Macro(source, _) => out.push(&format!("<Macro {:?}>", &*source.name)),
        },
    }
}

fn represent_items(items: &[Datum], out: &mut BoundedText) -> Attempt<()> {
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push(", ")?;
        }
        represent(item, out)?;
    }
    Ok(())
}

fn represent_entries(entries: &[(Datum, Datum)], out: &mut BoundedText) -> Attempt<()> {
    out.push("{")?;
    for (index, (key, value)) in entries.iter().enumerate() {
        if index > 0 {
            out.push(", ")?;
        }
        represent(key, out)?;
        out.push(": ")?;
        represent(value, out)?;
    }
    out.push("}")
}

/// A float as Python writes it: the shortest digits that give the same float, with an exponent below 1e-4 and from
/// 1e16 on.
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

/// A string as Python's `repr` quotes it.
fn represent_text(text: &str, out: &mut BoundedText) -> Attempt<()> {
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

/// Python's `str.isprintable`: no control or format character, no separator but the space, nothing unassigned.
pub(super) fn is_printable(c: char) -> bool {
    if c.is_ascii() {
        return matches!(c, ' '..='~');
    }
    // Debug output of text escapes the same, but of the first character also marks.
    let text = String::from_iter(['a', c]);
    text.escape_debug().nth(1) != Some('\\')
}

/// How `json.dumps` lays out its text.
struct JsonStyle {
    ascii: bool,
    /// What a level is indented by; `None` writes everything on one line.
    indent: Option<TemplateText>,
    between_items: TemplateText,
    after_key: TemplateText,
    sort_keys: bool,
}

/// `tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False)`.
pub(super) fn to_json(value: &Datum, arguments: CallArguments) -> Attempt<Datum> {
    let names = ["ensure_ascii", "indent", "separators", "sort_keys"];
    let given = arguments.bind("tojson", names)?;
    let [ascii, indent, separators, sort_keys] = given.map(|value| value.filter(|value| !matches!(value, Datum::None)));
    let indent = match indent {
        None => None,
        Some(Datum::Text(text)) => Some(text),
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
        let [Datum::Text(items), Datum::Text(key)] = &pair[..] else {
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
    Datum::built(out)
}

fn dump(value: &Datum, style: &JsonStyle, depth: usize, out: &mut BoundedText) -> Attempt<()> {
    let _level = deeper()?;
    spend(1)?;
    match value {
        Datum::None => out.push("null"),
        Datum::Bool(flag) => out.push(if *flag { "true" } else { "false" }),
        Datum::Int(number) => out.push(&number.to_string()),
        Datum::Float(number) => out.push(&json_float(*number)),
        Datum::Text(text) => quote(text, style.ascii, out),
        Datum::List(items) | Datum::Tuple(items) => bracket(["[", "]"], items, style, depth, out, |item, out| {
            dump(item, style, depth + 1, out)
        }),
        Datum::Dict(dict) => {
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
        Datum::Undefined => Err(unserialisable("is undefined")),
        other => Err(unserialisable(&format!("is a {}", other.kind()))),
    }
}

fn unserialisable(what: &str) -> RenderError {
    RenderError::invalid(format!("the value given to tojson {what}"))
}

/// Write items between brackets, laid out by the style.
fn bracket<T>(
    [open, close]: [&str; 2],
    items: &[T],
    style: &JsonStyle,
    depth: usize,
    out: &mut BoundedText,
    mut write: impl FnMut(&T, &mut BoundedText) -> Attempt<()>,
) -> Attempt<()> {
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

/// A key as JSON has it; Python writes the keys `True`, `None` and numbers as strings.
fn json_key(key: &Datum) -> Attempt<TemplateText> {
    match key {
        Datum::Text(text) => Ok(text.clone()),
        Datum::None => TemplateText::new("null"),
        Datum::Bool(flag) => TemplateText::new(if *flag { "true" } else { "false" }),
        Datum::Int(number) => TemplateText::new(number.to_string()),
        Datum::Float(number) => TemplateText::new(json_float(*number)),
        _ => Err(unserialisable("has a key that is no string")),
    }
}

fn quote(text: &str, ascii: bool, out: &mut BoundedText) -> Attempt<()> {
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
