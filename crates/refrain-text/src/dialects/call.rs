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
use super::{CallForm, Notation, ValueType};

/// The longest name of a function, in bytes. A longer one is no call.
pub(super) const MAX_NAME: usize = 256;

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
    /// Reads the head of a call from `text`, which begins behind the call's opening mark. `is_final`: no more comes.
    pub fn read(text: &str, notation: &Notation, functions: &Functions, is_final: bool) -> Outcome<CallHead> {
        let body = text.trim_start();
        let blanks = text.len() - body.len();
        let outcome = match &notation.form {
            CallForm::Objects(_) => object_head(body, is_final, false),
            CallForm::KeyedObjects => object_head(body, is_final, true),
            // Mistral's older models write objects behind the same mark.
            CallForm::Named(_) | CallForm::Tagged(..) if body.starts_with(['{', '[']) => {
                object_head(body, is_final, false)
            }
            CallForm::Named(named) => named_head(body, named, &[notation.call.close], CallBody::json()),
            CallForm::Tagged(named, tags) => {
                let section_end = notation.section.map_or("", |marks| marks.close);
                let ends = [tags.key, notation.call.close, section_end];
                named_head(body, named, &ends, CallBody::Tagged { count: 0 })
            }
            CallForm::Python => python_head(body, is_final),
            CallForm::Braces => braces_head(body, notation.call.close, is_final),
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
    /// ended. `is_final`: no more comes.
    pub fn advance(
        &mut self,
        held: &mut String,
        arguments: &mut String,
        notation: &Notation,
        functions: &Functions,
        name: &str,
        is_final: bool,
    ) -> bool {
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
                    let CallForm::Tagged(_, tags) = &notation.form else {
                        unreachable!("only tagged calls have tagged bodies")
                    };
                    match argument(held, tags, notation, is_final) {
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
                        Outcome::Incomplete | Outcome::Other => {
                            arguments.push_str(if *count == 0 { "{}" } else { "}" });
                            *self = CallBody::End;
                        }
                    }
                }
                CallBody::End => {
                    let rest = held.trim_start();
                    match at_front(rest, notation.call.close) {
                        Found::Yes => *held = rest[notation.call.close.len()..].to_owned(),
                        Found::Perhaps if !is_final => return false,
                        // Some models leave it out.
                        Found::Perhaps | Found::No => {}
                    }
                    return true;
                }
            }
        }
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
