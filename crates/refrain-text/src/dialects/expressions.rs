//! Calls that are expressions: Python's, and Gemma's.

use super::Functions;
use super::call::{CallBody, CallHead, Outcome, is_name};
use super::json::quoted;
use super::literal::{LiteralReader, Spelling};
use super::marks::{Found, at_front};

/// The longest call that is waited for, in bytes.
const MAX_CALL: usize = 1 << 20;
/// What Llama 3 writes behind the name of a tool that it knows.
pub(super) const METHOD: &str = ".call";

/// A call as in Python, perhaps the first of a list.
pub(super) fn python_head(text: &str) -> Outcome<CallHead> {
    let mut reader = LiteralReader::new(text.strip_prefix('[').unwrap_or(text), Spelling::Python);
    reader.skip_blanks();
    let incomplete = |rest: &str| {
        if rest.len() > MAX_CALL {
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

/// Whether a text that ends too early is the beginning of a call of one of `functions`, as far as it goes.
pub(super) fn may_be_python(text: &str, functions: &Functions) -> bool {
    let call = text.trim_start_matches(|c: char| c.is_whitespace() || c == '[');
    match call.split_once('(') {
        Some((name, _)) => functions.contains(name.trim_end_matches(METHOD)),
        None => functions.begins(call) || call.split_once('.').is_some_and(|(name, _)| functions.contains(name)),
    }
}

/// `call:NAME{…}`, as Gemma writes it, up to the closing mark.
pub(super) fn braces_head(text: &str, close: &str) -> Outcome<CallHead> {
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
        None if start.contains(close) => Outcome::Other,
        None => Outcome::Incomplete,
    }
}
