//! Calls that are expressions: Python's, and Gemma's.

use super::call::{CallBody, CallHead, Outcome, is_name};
use super::json::quoted;
use super::literal::{LiteralReader, Spelling};
use super::marks::{Found, at_front};

/// The longest call that is waited for, in bytes.
const MAX_CALL: usize = 1 << 20;

/// A call as in Python, perhaps the first of a list.
pub(super) fn python_head(text: &str, is_final: bool) -> Outcome<CallHead> {
    let mut reader = LiteralReader::new(text.strip_prefix('[').unwrap_or(text), Spelling::Python);
    reader.skip_blanks();
    let incomplete = |rest: &str| {
        if is_final || rest.len() > MAX_CALL {
            Outcome::Other
        } else {
            Outcome::Incomplete
        }
    };
    let Some(name) = reader.name() else {
        return if reader.rest.is_empty() {
            incomplete(text)
        } else {
            Outcome::Other
        };
    };
    if reader.rest.is_empty() {
        return incomplete(text);
    }
    if !is_name(name) || !reader.take("(") {
        return Outcome::Other;
    }
    let mut members = vec![];
    loop {
        reader.skip_blanks();
        if reader.take(")") {
            let head = CallHead {
                name: name.to_owned(),
                id: None,
                body: CallBody::Whole(format!("{{{}}}", members.join(","))),
            };
            return Outcome::Read(head, text.len() - reader.rest.len());
        }
        let Some(key) = reader.name() else {
            return if reader.rest.is_empty() {
                incomplete(text)
            } else {
                Outcome::Other
            };
        };
        reader.skip_blanks();
        if !reader.take("=") {
            return if reader.rest.is_empty() {
                incomplete(text)
            } else {
                Outcome::Other
            };
        }
        // A number may go on, and so may a string that ends here.
        let Some(value) = reader.value().filter(|_| !reader.rest.is_empty()) else {
            return incomplete(text);
        };
        members.push(format!("{}:{value}", quoted(key)));
        reader.skip_blanks();
        if !reader.take(",") && !reader.rest.is_empty() && !reader.rest.starts_with(')') {
            return Outcome::Other;
        }
    }
}

/// `call:NAME{…}`, as Gemma writes it, up to the closing mark.
pub(super) fn braces_head(text: &str, close: &str, is_final: bool) -> Outcome<CallHead> {
    match at_front(text, "call:") {
        Found::Yes => {}
        Found::Perhaps => return Outcome::Incomplete,
        Found::No => return Outcome::Other,
    }
    let mut reader = LiteralReader::new(&text["call:".len()..], Spelling::Gemma);
    let Some(name) = reader.name().filter(|name| is_name(name)) else {
        return if reader.rest.is_empty() {
            Outcome::Incomplete
        } else {
            Outcome::Other
        };
    };
    if !reader.rest.starts_with('{') {
        return if reader.rest.is_empty() {
            Outcome::Incomplete
        } else {
            Outcome::Other
        };
    }
    let start = reader.rest;
    match reader.value() {
        Some(value) => {
            let head = CallHead {
                name: name.to_owned(),
                id: None,
                body: CallBody::Whole(value),
            };
            Outcome::Read(head, text.len() - reader.rest.len())
        }
        None if is_final || start.contains(close) => Outcome::Other,
        None => Outcome::Incomplete,
    }
}
