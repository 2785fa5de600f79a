//! Methods of Python's strings, lists and dictionaries that templates call.

use minijinja::value::{Kwargs, Tuple, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat;

/// Call `method` of a value: ours, where the library's differs from Python or is missing.
pub(super) fn call(state: &mut State, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    let own = match value.kind() {
        ValueKind::String => text_method(value.as_str().unwrap_or_default(), method, args)?,
        ValueKind::Seq => list_method(value, method, args)?,
        ValueKind::Map if method == "copy" => Some(value.clone()),
        _ => None,
    };
    match own {
        Some(result) => Ok(result),
        None => pycompat::unknown_method_callback(state, value, method, args),
    }
}

/// The `trim` filter: Python's `str.strip` of the value's text.
pub(super) fn trim(value: &Value, characters: Option<&str>) -> String {
    let text = super::json::display(value);
    strip(&text, characters, true, true).to_owned()
}

/// What Python takes as white space: Unicode's, and four separators of ASCII.
fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

fn strip<'a>(text: &'a str, characters: Option<&str>, start: bool, end: bool) -> &'a str {
    let matches = |c: char| match characters {
        Some(characters) => characters.contains(c),
        None => is_space(c),
    };
    let text = if start { text.trim_start_matches(matches) } else { text };
    if end { text.trim_end_matches(matches) } else { text }
}

fn text_method(text: &str, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    Ok(Some(match method {
        "strip" | "lstrip" | "rstrip" => {
            let (characters,): (Option<&str>,) = from_args(args)?;
            Value::from(strip(text, characters, method != "rstrip", method != "lstrip"))
        }
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Value::from(text.strip_prefix(prefix).unwrap_or(text))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Value::from(text.strip_suffix(suffix).unwrap_or(text))
        }
        "split" | "rsplit" => split(text, method == "rsplit", args)?,
        "partition" | "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            partition(text, method == "rpartition", separator)
        }
        "index" => {
            let (what,): (&str,) = from_args(args)?;
            match text.find(what) {
                Some(at) => Value::from(text[..at].chars().count()),
                None => return Err(failed("substring not found")),
            }
        }
        "swapcase" => Value::from(text.chars().map(swap_case).collect::<String>()),
        "isdecimal" => Value::from(!text.is_empty() && text.chars().all(char::is_numeric)),
        "splitlines" => {
            let (keep,): (Option<bool>,) = from_args(args)?;
            Value::from_iter(split_lines(text, keep.unwrap_or(false)))
        }
        "casefold" => Value::from(text.to_lowercase()),
        "zfill" => {
            let (width,): (usize,) = from_args(args)?;
            let (sign, digits) = match text.strip_prefix(['-', '+']) {
                Some(digits) => text.split_at(text.len() - digits.len()),
                None => ("", text),
            };
            let zeros = padding(text, width)?;
            Value::from(format!("{sign}{}{digits}", "0".repeat(zeros)))
        }
        "ljust" | "rjust" | "center" => {
            let (width, fill): (usize, Option<&str>) = from_args(args)?;
            Value::from(justify(method, text, width, fill)?)
        }
        "title" => Value::from(title(text)),
        _ => return Ok(None),
    }))
}

fn failed(reason: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, reason)
}

/// Characters that are missing to a width.
fn padding(text: &str, width: usize) -> Result<usize, Error> {
    if width > 1 << 16 {
        return Err(failed("absurd width"));
    }
    Ok(width.saturating_sub(text.chars().count()))
}

/// `str.ljust`, `str.rjust` and `str.center`.
pub(super) fn justify(method: &str, text: &str, width: usize, fill: Option<&str>) -> Result<String, Error> {
    let missing = padding(text, width)?;
    let left = match method {
        "ljust" => 0,
        "rjust" => missing,
        // Python puts the odd one to the left if the width is odd too.
        _ => missing / 2 + (missing & width & 1),
    };
    let fill = |count: usize| fill.unwrap_or(" ").repeat(count);
    Ok(format!("{}{text}{}", fill(left), fill(missing - left)))
}

/// `str.title`: a letter after anything but a letter becomes upper case, the others lower case.
fn title(text: &str) -> String {
    let mut titled = String::with_capacity(text.len());
    let mut in_word = false;
    for c in text.chars() {
        match in_word {
            true => titled.extend(c.to_lowercase()),
            false => titled.extend(c.to_uppercase()),
        }
        in_word = c.is_alphabetic();
    }
    titled
}

/// `str.split` and `str.rsplit`, with `sep` and `maxsplit` by position or name.
fn split(text: &str, from_end: bool, args: &[Value]) -> Result<Value, Error> {
    let (separator, most, options): (Option<Value>, Option<i64>, Kwargs) = from_args(args)?;
    let separator = match separator {
        Some(separator) => Some(separator),
        None => options.get::<Option<Value>>("sep")?,
    };
    let separator = separator.filter(|value| !value.is_none());
    let most = match most {
        Some(most) => Some(most),
        None => options.get::<Option<i64>>("maxsplit")?,
    };
    options.assert_all_used()?;
    let most = most.and_then(|most| usize::try_from(most).ok());
    let parts: Vec<&str> = match &separator {
        None => split_space(text, from_end, most.unwrap_or(usize::MAX)),
        Some(separator) => {
            let Some(separator) = separator.as_str().filter(|text| !text.is_empty()) else {
                return Err(failed("split needs a separator that is not empty"));
            };
            match (from_end, most) {
                (_, None) => text.split(separator).collect(),
                (false, Some(most)) => text.splitn(most.saturating_add(1), separator).collect(),
                (true, Some(most)) => {
                    let mut parts: Vec<&str> = text.rsplitn(most.saturating_add(1), separator).collect();
                    parts.reverse();
                    parts
                }
            }
        }
    };
    Ok(Value::from_iter(parts))
}

/// Split at runs of white space, at most `most` times.
fn split_space(text: &str, from_end: bool, most: usize) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text.trim_matches(is_space);
    while !rest.is_empty() {
        let found = match from_end {
            false => rest.find(is_space),
            true => rest.rfind(is_space),
        };
        let Some(at) = found.filter(|_| parts.len() < most) else {
            parts.push(rest);
            break;
        };
        let (left, right) = rest.split_at(at);
        if from_end {
            parts.push(right.trim_start_matches(is_space));
            rest = left.trim_end_matches(is_space);
        } else {
            parts.push(left);
            rest = right.trim_start_matches(is_space);
        }
    }
    if from_end {
        parts.reverse();
    }
    parts
}

fn partition(text: &str, from_end: bool, separator: &str) -> Value {
    let found = match from_end {
        true => text.rsplit_once(separator),
        false => text.split_once(separator),
    };
    let parts = match (found, from_end) {
        (Some((before, after)), _) => [before, separator, after],
        (None, true) => ["", "", text],
        (None, false) => [text, "", ""],
    };
    Value::from(Tuple::new(parts.map(Value::from).to_vec()))
}

fn swap_case(c: char) -> String {
    match c.is_uppercase() {
        true => c.to_lowercase().collect(),
        false => c.to_uppercase().collect(),
    }
}

/// Split at what Python takes for line ends.
pub(super) fn split_lines(text: &str, keep: bool) -> Vec<&str> {
    let ends = |c: char| matches!(c, '\n'..='\r' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}');
    let mut lines = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(ends) {
        let (line, end) = rest.split_at(at);
        let length = match end.starts_with("\r\n") {
            true => 2,
            false => end.chars().next().map_or(0, char::len_utf8),
        };
        lines.push(if keep { &rest[..at + length] } else { line });
        rest = &end[length..];
    }
    if !rest.is_empty() {
        lines.push(rest);
    }
    lines
}

fn list_method(list: &Value, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    match method {
        "copy" => Ok(Some(list.clone())),
        "index" => {
            let (what,): (&Value,) = from_args(args)?;
            match list.try_iter()?.position(|item| item == *what) {
                Some(index) => Ok(Some(Value::from(index))),
                None => Err(failed("value is not in the list")),
            }
        }
        _ => Ok(None),
    }
}
