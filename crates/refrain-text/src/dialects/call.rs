//! Reads one tool call in a text that arrives piece by piece.
//!
//! A call is recognised from its opening mark to where its arguments begin ([`CallHead::read`]); until then nothing is
//! consumed, so that what turns out to be no call stays text. From there on [`CallBody`] hands arguments out as they
//! are written.

use super::elements::elements_head;
use super::expressions::{braces_head, python_head};
use super::json::{Compactor, ValueScanner, quoted};
use super::marks::{Found, at_front};
use super::named::{argument, named_head};
use super::objects::object_head;
use super::values::{Functions, untyped};
use super::{ArgumentTags, CallForm, Notation, ValueType};

/// The longest name that is read as a function's, in bytes. A longer one is no call.
pub(super) const MAX_NAME: usize = 256;
/// The longest name of a function that clients may offer, in bytes. Some notations write more around it.
pub const MAX_FUNCTION_NAME: usize = 200;

/// Whether a name is read back in every notation. It has letters, digits, `_`, `-` and dots.
pub fn is_function_name(name: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
    (1..=MAX_FUNCTION_NAME).contains(&name.len()) && name.chars().all(is_part)
}

/// What the front of a text is.
#[derive(Debug)]
pub(super) enum Outcome<T> {
    /// What was looked for, of this many bytes.
    Read(T, usize),
    /// The text ends too early to tell.
    Incomplete,
    /// Something else.
    Other,
}

impl<T> Outcome<T> {
    /// The same where `skipped` bytes stand before what was looked at.
    pub fn behind(self, skipped: usize) -> Outcome<T> {
        match self {
            Outcome::Read(value, length) => Outcome::Read(value, skipped + length),
            other => other,
        }
    }
}

/// Whether more of a text comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextEnd {
    /// More comes.
    Open,
    /// The model ended the text: what it did not write is not there.
    Complete,
    /// A limit or a stop string ended the text, perhaps within a mark.
    Cut,
}

/// The beginning of a call.
#[derive(Debug)]
pub(super) struct CallHead {
    pub name: String,
    pub id: Option<String>,
    pub body: CallBody,
}

/// What follows a call's head.
#[derive(Debug, Clone)]
pub(super) enum CallBody {
    /// A JSON value, the arguments; behind it the rest of an object, if `in_object`.
    Json {
        scanner: ValueScanner,
        compactor: Compactor,
        in_object: bool,
    },
    /// Behind a value: the rest of the object that it is in.
    ObjectRest(ValueScanner),
    /// Arguments between marks, of which some were read.
    Tagged { count: usize },
    /// Arguments that are complete.
    Whole(String),
    /// Nothing but the mark that ends the call.
    End,
}

impl CallHead {
    /// Reads the head of a call from `text`, which begins behind the call's opening mark.
    pub fn read(text: &str, notation: &Notation, functions: &Functions) -> Outcome<CallHead> {
        let body = text.trim_start();
        let blanks = text.len() - body.len();
        let outcome = match &notation.form {
            CallForm::Objects(_) => object_head(body, false),
            CallForm::KeyedObjects => object_head(body, true),
            // Mistral's older models write objects behind the same mark.
            CallForm::Named(_) | CallForm::Tagged(..) if body.starts_with(['{', '[']) => object_head(body, false),
            CallForm::Named(named) => named_head(body, named, &[notation.call.close], CallBody::json()),
            CallForm::Tagged(named, tags) => {
                let section_end = notation.section.map_or("", |marks| marks.close);
                let ends = [tags.key, notation.call.close, section_end];
                named_head(body, named, &ends, CallBody::Tagged { count: 0 })
            }
            CallForm::Python => python_head(body),
            CallForm::Braces => braces_head(body, notation.call.close),
            CallForm::Elements(named, tags) => elements_head(body, named, tags, notation.call.close, functions),
        };
        outcome.behind(blanks)
    }
}

impl CallBody {
    fn json() -> CallBody {
        CallBody::Json {
            scanner: ValueScanner::default(),
            compactor: Compactor::default(),
            in_object: false,
        }
    }

    /// Takes what is certain from the front of `held` and appends it to `arguments`, as JSON. Returns whether the call
    /// ended. Where the text ends earlier, the arguments are what the model wrote of them.
    pub fn advance(
        &mut self,
        held: &mut String,
        arguments: &mut String,
        notation: &Notation,
        functions: &Functions,
        name: &str,
        end: TextEnd,
    ) -> bool {
        let is_final = end != TextEnd::Open;
        loop {
            match self {
                CallBody::Json {
                    scanner,
                    compactor,
                    in_object,
                } => {
                    let (length, is_whole) = scanner.scan(held);
                    let value: String = held.drain(..length).collect();
                    compactor.push(&value, arguments);
                    if !is_whole && !is_final {
                        return false;
                    }
                    *self = if *in_object && is_whole {
                        CallBody::ObjectRest(ValueScanner::inside())
                    } else {
                        CallBody::End
                    };
                }
                CallBody::ObjectRest(scanner) => {
                    let (length, is_whole) = scanner.scan(held);
                    held.drain(..length);
                    if !is_whole && !is_final {
                        return false;
                    }
                    *self = CallBody::End;
                }
                CallBody::Whole(whole) => {
                    arguments.push_str(whole);
                    *self = CallBody::End;
                }
                CallBody::Tagged { count } => {
                    let tags = tags_of(notation);
                    match argument(held, tags, notation, end == TextEnd::Complete) {
                        Outcome::Read((key, value, value_type), length) => {
                            held.drain(..length);
                            let value = match value_type {
                                ValueType::BySchema => functions.typed(name, &key, &value),
                                ValueType::Text => quoted(&value),
                                ValueType::Json => untyped(&value),
                            };
                            let separator = if *count == 0 { "{" } else { "," };
                            *count += 1;
                            arguments.push_str(&format!("{separator}{}:{value}", quoted(&key)));
                        }
                        Outcome::Incomplete if !is_final => return false,
                        other => {
                            let is_begun = matches!(other, Outcome::Incomplete);
                            match tagged_end(held, *count, is_begun, notation, end) {
                                Some(rest) => arguments.push_str(rest),
                                None => return false,
                            }
                            *self = CallBody::End;
                        }
                    }
                }
                CallBody::End => {
                    let rest = held.trim_start();
                    match at_front(rest, notation.call.close) {
                        Found::Yes => *held = rest[notation.call.close.len()..].to_owned(),
                        Found::Perhaps if !is_final => return false,
                        Found::Perhaps => held.clear(),
                        // Some models leave it out.
                        Found::No => {}
                    }
                    return true;
                }
            }
        }
    }
}

fn tags_of(notation: &Notation) -> &ArgumentTags {
    let CallForm::Tagged(_, tags) = &notation.form else {
        unreachable!("only tagged calls have tagged bodies")
    };
    tags
}

/// Returns what ends the JSON of `count` arguments between marks; nothing where they were cut off, and `None` where more
/// of the text is needed. `is_begun`: another argument may have begun.
fn tagged_end(
    held: &mut String,
    count: usize,
    is_begun: bool,
    notation: &Notation,
    end: TextEnd,
) -> Option<&'static str> {
    if is_begun && (end == TextEnd::Cut || !held.trim().is_empty()) {
        held.clear();
        return Some("");
    }
    match (ends_arguments(held, notation), end) {
        (Found::Perhaps, TextEnd::Open) => None,
        // The mark that ends the call may have begun.
        (Found::Perhaps, TextEnd::Cut) => Some(""),
        _ => Some(if count == 0 { "{}" } else { "}" }),
    }
}

/// Whether arguments end at the front of a text, by the mark of the call's end or the section's.
fn ends_arguments(held: &str, notation: &Notation) -> Found {
    let text = held.trim_start();
    let section_end = notation.section.map_or("", |marks| marks.close);
    let ends = [notation.call.close, section_end].map(|end| at_front(text, end));
    if ends.contains(&Found::Yes) {
        Found::Yes
    } else if ends.contains(&Found::Perhaps) {
        Found::Perhaps
    } else {
        Found::No
    }
}

/// Whether a text may be a function's name.
pub(super) fn is_name(name: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ':' | '/');
    !name.is_empty() && name.len() <= MAX_NAME && name.chars().all(is_part)
}

/// The mark that begins calls; empty where none does.
pub(super) fn opening(notation: &Notation) -> &'static str {
    match notation.section {
        Some(marks) => marks.open,
        None => notation.call.open,
    }
}

/// Whether a call without a mark of its own may stand at the front of a text, behind another.
pub(super) fn may_begin(text: &str, notation: &Notation) -> bool {
    if notation.section.is_none() && !notation.call.close.is_empty() {
        return false;
    }
    match notation.form {
        CallForm::Objects(_) | CallForm::KeyedObjects => text.starts_with('{'),
        CallForm::Python => text.starts_with(|c: char| c.is_alphabetic() || c == '_'),
        _ => text.starts_with('{'),
    }
}
