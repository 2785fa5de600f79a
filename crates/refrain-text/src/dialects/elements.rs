//! Calls whose arguments are elements of their own names.

use super::call::{CallBody, CallHead, MAX_NAME, Outcome, is_name};
use super::json::quoted;
use super::marks::first;
use super::values::SchemaNode;
use super::{ElementTags, Functions, NamedCall};

/// The deepest nesting of elements that is read.
const MAX_DEPTH: usize = 32;

/// A call whose arguments are elements, up to its closing mark. The schemas of `functions` tell the types of texts.
pub(super) fn elements_head(
    text: &str,
    named: &NamedCall,
    tags: &ElementTags,
    close: &str,
    functions: &Functions,
) -> Outcome<CallHead> {
    let Some((at, end)) = first(text, named.name_ends.iter().copied()) else {
        return if text.len() > MAX_NAME {
            Outcome::Other
        } else {
            Outcome::Incomplete
        };
    };
    let name = &text[..at];
    if !is_name(name) {
        return Outcome::Other;
    }
    let rest = &text[at + end.len()..];
    let Some(length) = rest.find(close) else {
        return Outcome::Incomplete;
    };
    let mut body = rest[..length].trim();
    let Some(members) = elements(&mut body, tags, SchemaNode::of(functions, name), 0) else {
        return Outcome::Other;
    };
    let head = CallHead {
        name: name.to_owned(),
        id: None,
        body: CallBody::Whole(as_object(&members)),
    };
    Outcome::Read(head, text.len() - rest.len() + length)
}

fn as_object(members: &[(String, String)]) -> String {
    let members: Vec<String> = members
        .iter()
        .map(|(key, value)| format!("{}:{value}", quoted(key)))
        .collect();
    format!("{{{}}}", members.join(","))
}

/// Reads elements until something else comes. `schema` is that of the value that they are in.
fn elements(
    text: &mut &str,
    tags: &ElementTags,
    schema: SchemaNode<'_>,
    depth: usize,
) -> Option<Vec<(String, String)>> {
    let mut found = vec![];
    let open = format!("{}<", tags.prefix);
    let close = format!("{}</", tags.prefix);
    while text.starts_with(&open) && !text.starts_with(&close) {
        let (name, rest) = text[open.len()..].split_once('>')?;
        let end = format!("{close}{name}>");
        *text = rest;
        let schema = if name == tags.item && !schema.has_property(name) {
            schema.items()
        } else {
            schema.property(name)
        };
        let value = if rest.starts_with(&open) && !rest.starts_with(&close) && depth < MAX_DEPTH {
            let members = elements(text, tags, schema, depth + 1)?;
            if members.iter().all(|(key, _)| key == tags.item) {
                let items: Vec<&str> = members.iter().map(|(_, value)| value.as_str()).collect();
                format!("[{}]", items.join(","))
            } else {
                as_object(&members)
            }
        } else {
            let at = rest.find(&end)?;
            *text = &rest[at..];
            schema.typed(&rest[..at])
        };
        *text = text.strip_prefix(end.as_str())?;
        found.push((name.to_owned(), value));
    }
    Some(found)
}
