//! Calls whose name stands before a mark, and arguments between marks.

use super::call::{CallBody, CallHead, MAX_NAME, Outcome, is_name};
use super::marks::{Found, at_front, begun, first};
use super::{ArgumentTags, CallId, NamedCall, Notation, ValueType};

/// The head of a call whose name stands before a mark. `arguments` are the marks that end a name without being part
/// of it.
pub(super) fn named_head(text: &str, named: &NamedCall, arguments: &[&str], body: CallBody) -> Outcome<CallHead> {
    let mut rest = text;
    let mut id = None;
    if let CallId::Before(end) = named.id {
        let Some((before, behind)) = rest.split_once(end) else {
            return if rest.len() > MAX_NAME {
                Outcome::Other
            } else {
                Outcome::Incomplete
            };
        };
        (id, rest) = (Some(before.to_owned()), behind);
    }
    let behind_name = match named.id {
        CallId::Behind(start, _) | CallId::Skipped(start) => start,
        _ => "",
    };
    let ends = || {
        named
            .name_ends
            .iter()
            .copied()
            .chain(arguments.iter().copied())
            .chain([behind_name])
    };
    let Some((at, end)) = first(rest, ends()) else {
        let name = &rest[..rest.len() - begun(rest, ends())];
        let may_be_name = name.len() <= MAX_NAME && (name.is_empty() || is_name(name.trim_end()));
        return if may_be_name {
            Outcome::Incomplete
        } else {
            Outcome::Other
        };
    };
    // A longer mark may be what is really there.
    if ends().any(|longer| longer.len() > end.len() && at_front(&rest[at..], longer) == Found::Perhaps) {
        return Outcome::Incomplete;
    }
    let name = rest[..at].trim();
    if !is_name(name) {
        return Outcome::Other;
    }
    let (name, id, rest) = match behind_name_end(name, &rest[at..], end, named, id) {
        Some(found) => found,
        None => return Outcome::Incomplete,
    };
    let consumed = |rest: &str| text.len() - rest.len();
    if !matches!(body, CallBody::Json { .. }) {
        return Outcome::Read(CallHead { name, id, body }, consumed(rest));
    }
    // Arguments are an object, or are not there.
    let value = rest.trim_start();
    let ends = arguments.iter().map(|end| at_front(value, end));
    match value.chars().next() {
        None => Outcome::Incomplete,
        Some('{') => Outcome::Read(CallHead { name, id, body }, consumed(value)),
        Some(_) if ends.clone().any(|end| end == Found::Perhaps) => Outcome::Incomplete,
        Some(_) if ends.clone().any(|end| end == Found::Yes) => {
            let body = CallBody::Whole("{}".to_owned());
            Outcome::Read(CallHead { name, id, body }, consumed(rest))
        }
        Some(_) => Outcome::Other,
    }
}

/// What stands behind a name's end: the name without an id in it, the id, and the rest of the text. `None` if the id
/// may go on.
fn behind_name_end<'t>(
    name: &str,
    rest: &'t str,
    end: &str,
    named: &NamedCall,
    id: Option<String>,
) -> Option<(String, Option<String>, &'t str)> {
    let plain = |id, rest| Some((name.to_owned(), id, rest));
    match named.id {
        CallId::Behind(start, id_end) if end == start => {
            let (written, behind) = rest[start.len()..].split_once(id_end)?;
            plain(Some(written.to_owned()), behind)
        }
        CallId::Skipped(start) if end == start => {
            let (_, behind) = rest[start.len()..].split_once(named.name_ends[0])?;
            plain(id, behind)
        }
        CallId::InName => {
            let short = name.strip_prefix("functions.").unwrap_or(name);
            let short = short.split_once(':').map_or(short, |(short, _)| short);
            let behind = rest.strip_prefix(end).unwrap_or(rest);
            Some((short.to_owned(), Some(name.to_owned()), behind))
        }
        _ if named.name_ends.contains(&end) => plain(id, &rest[end.len()..]),
        _ => plain(id, rest),
    }
}

/// The next argument between marks: key, value as it is written, and what the notation says of its type. `is_final`:
/// the model wrote no more.
pub(super) fn argument(
    held: &str,
    tags: &ArgumentTags,
    notation: &Notation,
    is_final: bool,
) -> Outcome<(String, String, ValueType)> {
    let text = held.trim_start();
    match at_front(text, tags.key) {
        Found::Yes => {}
        Found::Perhaps => return Outcome::Incomplete,
        Found::No => return Outcome::Other,
    }
    let rest = &text[tags.key.len()..];
    let ends = || tags.key_ends.iter().map(|(end, _)| *end);
    let Some((at, end)) = first(rest, ends()) else {
        return Outcome::Incomplete;
    };
    let value_type = tags
        .key_ends
        .iter()
        .find(|(known, _)| *known == end)
        .map(|(_, kind)| *kind);
    let key = rest[..at].trim().to_owned();
    let mut rest = &rest[at + end.len()..];
    if !tags.value.is_empty() {
        rest = rest.trim_start();
        match at_front(rest, tags.value) {
            Found::Yes => rest = &rest[tags.value.len()..],
            Found::Perhaps => return Outcome::Incomplete,
            Found::No => return Outcome::Other,
        }
    }
    // The value may contain the mark that ends it: the right one is followed by another argument or the call's end.
    let mut from = 0;
    let end = loop {
        let Some(at) = rest[from..].find(tags.value_end).map(|at| from + at) else {
            return Outcome::Incomplete;
        };
        let behind = rest[at + tags.value_end.len()..].trim_start();
        let section_end = notation.section.map_or("", |marks| marks.close);
        let nexts = [tags.key, notation.call.close, section_end];
        let found = nexts.map(|next| at_front(behind, next));
        if found.contains(&Found::Yes) || found.contains(&Found::Perhaps) && is_final {
            break at;
        }
        if found.contains(&Found::Perhaps) {
            return Outcome::Incomplete;
        }
        from = at + tags.value_end.len();
    };
    let behind = &rest[end + tags.value_end.len()..];
    let mut value = &rest[..end];
    if tags.on_lines {
        value = value.strip_prefix('\n').unwrap_or(value);
        value = value.strip_suffix('\n').unwrap_or(value);
    }
    let value_type = value_type.unwrap_or(ValueType::BySchema);
    Outcome::Read((key, value.to_owned(), value_type), held.len() - behind.len())
}
