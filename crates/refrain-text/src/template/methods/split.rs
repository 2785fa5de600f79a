//! Splitting and searching of strings.

use crate::template::budget::spend;
use crate::template::calls::{CallArguments, integer, required, text as text_of};
use crate::template::error::{RenderError, Try};
use crate::template::literals::is_space;
use crate::template::value::{ItemsBuilder, TemplateText, Value};

/// `str.split` and `str.rsplit`.
pub(super) fn split(text: &str, from_end: bool, arguments: CallArguments) -> Try<Value> {
    let [separator, max] = arguments.bind("split", ["sep", "maxsplit"])?;
    let max = integer(max, "maxsplit")?.and_then(|max| usize::try_from(max).ok());
    let separator = match separator {
        None | Some(Value::None) => None,
        separator => Some(text_of(separator, "split")?),
    };
    let mut parts = ItemsBuilder::new();
    match separator.as_deref() {
        None => split_at_space(text, from_end, max.unwrap_or(usize::MAX), &mut parts)?,
        Some("") => return Err(RenderError::invalid("split needs a non-empty separator")),
        Some(separator) => {
            let at_most = max.unwrap_or(usize::MAX - 1).saturating_add(1);
            if from_end {
                push_all(text.rsplitn(at_most, separator), &mut parts)?
            } else {
                push_all(text.splitn(at_most, separator), &mut parts)?
            }
        }
    }
    if !from_end {
        return Ok(parts.list());
    }
    let parts = parts.items();
    Ok(ItemsBuilder::of(parts.iter().rev().cloned().map(Ok))?.list())
}

fn push_all<'t>(texts: impl Iterator<Item = &'t str>, parts: &mut ItemsBuilder) -> Try<()> {
    for text in texts {
        parts.push(Value::text(text)?)?;
    }
    Ok(())
}

/// Splits at runs of white space, at most `max` times. From the end, the last part comes first.
fn split_at_space(text: &str, from_end: bool, max: usize, parts: &mut ItemsBuilder) -> Try<()> {
    let mut rest = text.trim_matches(is_space);
    let mut count = 0;
    while !rest.is_empty() {
        let found = if from_end {
            rest.rfind(is_space)
                .and_then(|at| Some(at + rest[at..].chars().next()?.len_utf8()))
        } else {
            rest.find(is_space)
        };
        let Some(at) = found.filter(|_| count < max) else {
            return parts.push(Value::text(rest)?);
        };
        let (left, right) = rest.split_at(at);
        count += 1;
        if from_end {
            parts.push(Value::text(right)?)?;
            rest = left.trim_end_matches(is_space);
        } else {
            parts.push(Value::text(left)?)?;
            rest = right.trim_start_matches(is_space);
        }
    }
    Ok(())
}

pub(super) fn partition(text: &str, from_end: bool, arguments: CallArguments) -> Try<Value> {
    let [separator] = arguments.bind("partition", ["sep"])?;
    let separator = text_of(separator, "partition")?;
    if separator.is_empty() {
        return Err(RenderError::invalid("partition needs a non-empty separator"));
    }
    let found = if from_end {
        text.rsplit_once(&*separator)
    } else {
        text.split_once(&*separator)
    };
    let parts = match (found, from_end) {
        (Some((before, after)), _) => [before, &separator, after],
        (None, true) => ["", "", text],
        (None, false) => [text, "", ""],
    };
    Ok(ItemsBuilder::texts(parts)?.tuple())
}

/// `str.splitlines`, with Python's line ends.
pub(super) fn lines(text: &str, keep_ends: bool) -> Try<Value> {
    let mut lines = ItemsBuilder::new();
    push_all(split_lines(text, keep_ends), &mut lines)?;
    Ok(lines.list())
}

pub(in crate::template) fn is_line_end(c: char) -> bool {
    matches!(c, '\n'..='\r' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

pub(in crate::template) fn split_lines(text: &str, keep_ends: bool) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let Some(at) = rest.find(is_line_end) else {
            return Some(std::mem::take(&mut rest));
        };
        let (line, end) = rest.split_at(at);
        let length = if end.starts_with("\r\n") {
            2
        } else {
            end.chars().next().map_or(0, char::len_utf8)
        };
        let line_with_end = &rest[..at + length];
        rest = &end[length..];
        Some(if keep_ends { line_with_end } else { line })
    })
}

/// Methods that search for a substring between two indices.
pub(super) fn search(text: &TemplateText, name: &str, arguments: CallArguments) -> Try<Value> {
    let [part, start, end] = arguments.bind(name, ["sub", "start", "end"])?;
    let part = required(part, name)?;
    let length = text.chars().count() as i128;
    let bound = |value: Option<Value>, default: i128| -> Try<i128> {
        let index = integer(value, name)?.unwrap_or(default);
        Ok(if index < 0 {
            index.saturating_add(length).max(0)
        } else {
            index
        })
    };
    let (start, end) = (bound(start, 0)?, bound(end, length)?.min(length));
    let offset = |at: i128| match usize::try_from(at) {
        Ok(at) => text.char_indices().nth(at).map_or(text.len(), |(byte, _)| byte),
        Err(_) => text.len(),
    };
    let within = (start <= end).then(|| &text[offset(start)..offset(end)]);
    if let "startswith" | "endswith" = name {
        let parts = match &part {
            Value::Tuple(parts) => parts.to_vec(),
            single => vec![single.clone()],
        };
        for part in parts {
            spend(1)?;
            let part = text_of(Some(part), name)?;
            let found = within.is_some_and(|within| match name {
                "startswith" => within.starts_with(&*part),
                _ => within.ends_with(&*part),
            });
            if found {
                return Ok(Value::Bool(true));
            }
        }
        return Ok(Value::Bool(false));
    }
    let part = text_of(Some(part), name)?;
    if name == "count" {
        return Ok(Value::count(within.map_or(0, |within| within.matches(&*part).count())));
    }
    let found = within.and_then(|within| match name {
        "rfind" | "rindex" => within.rfind(&*part),
        _ => within.find(&*part),
    });
    match (found, within) {
        (Some(at), Some(within)) => Ok(Value::Int(start + within[..at].chars().count() as i128)),
        _ if name.ends_with("find") => Ok(Value::Int(-1)),
        _ => Err(RenderError::invalid("substring not found")),
    }
}
