//! Methods of strings.

use super::split;
use crate::template::budget::{BoundedText, spend, spend_on_bytes};
use crate::template::calls::{CallArguments, flag, integer, required, size, text as text_of};
use crate::template::characters;
use crate::template::error::{RenderError, Try};
use crate::template::literals::is_space;
use crate::template::print;
use crate::template::value::{TemplateText, Value};

/// Default columns between tab stops.
const DEFAULT_TAB_WIDTH: usize = 8;

pub(super) fn call(text: &TemplateText, name: &str, arguments: CallArguments) -> Try<Value> {
    spend_on_bytes(text.len())?;
    match name {
        "strip" | "lstrip" | "rstrip" => {
            let [characters] = arguments.bind(name, ["chars"])?;
            let characters = characters.filter(|value| !matches!(value, Value::None));
            let characters = characters.map(|value| text_of(Some(value), name)).transpose()?;
            Value::text(strip(text, characters.as_deref(), name)?)
        }
        "removeprefix" | "removesuffix" => {
            let [part] = arguments.bind(name, ["part"])?;
            let part = text_of(part, name)?;
            let rest = match name {
                "removeprefix" => text.strip_prefix(&*part),
                _ => text.strip_suffix(&*part),
            };
            rest.map_or(Ok(Value::Text(text.clone())), Value::text)
        }
        "split" | "rsplit" => split::split(text, name == "rsplit", arguments),
        "partition" | "rpartition" => split::partition(text, name == "rpartition", arguments),
        "splitlines" => {
            let [keep] = arguments.bind(name, ["keepends"])?;
            split::lines(text, flag(keep))
        }
        "join" => {
            let [items] = arguments.bind(name, ["iterable"])?;
            let items = required(items, name)?.iterate()?;
            if let Some(other) = items.iter().find(|item| item.as_text().is_none()) {
                let what = format!("join takes strings, not '{}'", other.kind());
                return Err(RenderError::invalid(what));
            }
            join(&items, text)
        }
        "replace" => {
            let [old, new, count] = arguments.bind(name, ["old", "new", "count"])?;
            let count = integer(count, name)?.and_then(|count| usize::try_from(count).ok());
            replace(text, &text_of(old, name)?, &text_of(new, name)?, count)
        }
        "find" | "rfind" | "index" | "rindex" | "count" | "startswith" | "endswith" => {
            split::search(text, name, arguments)
        }
        "zfill" | "ljust" | "rjust" | "center" => {
            let [width, fill] = arguments.bind(name, ["width", "fillchar"])?;
            let width = size(Some(required(width, name)?), name)?.unwrap_or_default();
            justify(name, text, width, fill)
        }
        "expandtabs" => {
            let [width] = arguments.bind(name, ["tabsize"])?;
            expand_tabs(text, size(width, name)?.unwrap_or(DEFAULT_TAB_WIDTH))
        }
        "format" => crate::template::format::format(text, &arguments),
        _ => {
            arguments.none(name)?;
            without_arguments(text, name)
        }
    }
}

/// Methods without arguments.
fn without_arguments(text: &str, name: &str) -> Try<Value> {
    // Character classes and case mappings look up each character.
    spend(text.len())?;
    let is = match name {
        "isalpha" => characters::is_alpha(text),
        "isalnum" => characters::is_alphanumeric(text),
        "isascii" => text.is_ascii(),
        "isdecimal" => characters::is_decimal(text),
        "isdigit" => characters::is_digit(text),
        "isnumeric" => characters::is_numeric(text),
        "isidentifier" => characters::is_identifier(text),
        "islower" => characters::is_lower(text),
        "isupper" => characters::is_upper(text),
        "istitle" => characters::is_title(text),
        "isspace" => !text.is_empty() && text.chars().all(is_space),
        "isprintable" => text.chars().all(print::is_printable),
        "lower" => return Value::text(text.to_lowercase()),
        "upper" => return Value::text(text.to_uppercase()),
        "casefold" => return Value::text(characters::case_fold(text)),
        "swapcase" => return Value::text(characters::swap_case(text)),
        "title" => return Value::text(characters::title(text)),
        "capitalize" => return Value::text(characters::capitalise(text)),
        other => return Err(RenderError::invalid(format!("strings have no method {other:?}"))),
    };
    Ok(Value::Bool(is))
}

/// Strips white space or `characters`, at the ends that the method's name tells.
pub(in crate::template) fn strip<'t>(text: &'t str, characters: Option<&str>, name: &str) -> Try<&'t str> {
    let Some(characters) = characters else {
        let text = if name == "rstrip" {
            text
        } else {
            text.trim_start_matches(is_space)
        };
        return Ok(if name == "lstrip" {
            text
        } else {
            text.trim_end_matches(is_space)
        });
    };
    let stripped = |c: Option<char>| -> Try<Option<usize>> {
        spend_on_bytes(characters.len())?;
        Ok(c.filter(|c| characters.contains(*c)).map(char::len_utf8))
    };
    let mut text = text;
    while name != "rstrip"
        && let Some(length) = stripped(text.chars().next())?
    {
        text = &text[length..];
    }
    while name != "lstrip"
        && let Some(length) = stripped(text.chars().next_back())?
    {
        text = &text[..text.len() - length];
    }
    Ok(text)
}

/// Joins the items with `between` between them.
pub(in crate::template) fn join(items: &[Value], between: &str) -> Try<Value> {
    let mut out = BoundedText::new();
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push(between)?;
        }
        print::write(item, &mut out)?;
    }
    Value::built(out)
}

pub(in crate::template) fn replace(text: &str, old: &str, new: &str, count: Option<usize>) -> Try<Value> {
    spend_on_bytes(text.len())?;
    let mut out = BoundedText::new();
    let mut done = 0;
    for (at, found) in text.match_indices(old).take(count.unwrap_or(usize::MAX)) {
        out.push(&text[done..at])?;
        out.push(new)?;
        done = at + found.len();
    }
    out.push(&text[done..])?;
    Value::built(out)
}

/// `str.zfill`, `str.ljust`, `str.rjust` and `str.center`.
pub(in crate::template) fn justify(name: &str, text: &str, width: usize, fill: Option<Value>) -> Try<Value> {
    let fill = match fill {
        None => TemplateText::new(if name == "zfill" { "0" } else { " " })?,
        Some(fill) => text_of(Some(fill), name)?,
    };
    if fill.chars().count() != 1 {
        return Err(RenderError::invalid(
            "the fill character must be exactly one character long",
        ));
    }
    let missing = width.saturating_sub(text.chars().count());
    let left = match name {
        "ljust" => 0,
        "rjust" | "zfill" => missing,
        // Python puts the odd fill character to the left if the width is odd too.
        _ => missing / 2 + (missing & width & 1),
    };
    let (sign, digits) = match name {
        "zfill" => text.split_at(usize::from(text.starts_with(['-', '+']))),
        _ => ("", text),
    };
    let mut out = BoundedText::new();
    out.push(sign)?;
    out.push_repeated(&fill, left)?;
    out.push(digits)?;
    out.push_repeated(&fill, missing - left)?;
    Value::built(out)
}

fn expand_tabs(text: &str, width: usize) -> Try<Value> {
    let mut out = BoundedText::new();
    let mut column = 0;
    for c in text.chars() {
        match c {
            '\t' if width > 0 => {
                let spaces = width - column % width;
                out.push_repeated(" ", spaces)?;
                column += spaces;
            }
            '\t' => {}
            c => {
                out.push_char(c)?;
                column = if matches!(c, '\n' | '\r') { 0 } else { column + 1 };
            }
        }
    }
    Value::built(out)
}
