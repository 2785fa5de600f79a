//! Keeps the line being typed, for when it cannot be read to its end.

use std::cell::RefCell;

use rustyline::completion::Completer;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::Validator;
use rustyline::{Context, Helper};

/// Records the line after each key, because the editor drops it when reading fails.
#[derive(Debug, Default)]
pub(in crate::commands::chat) struct LineTracker(RefCell<String>);

impl LineTracker {
    /// Takes the last recorded line.
    pub fn take(&self) -> String {
        self.0.take()
    }
}

impl Hinter for LineTracker {
    type Hint = String;

    fn hint(&self, line: &str, _: usize, _: &Context<'_>) -> Option<String> {
        line.clone_into(&mut self.0.borrow_mut());
        None
    }
}

impl Completer for LineTracker {
    type Candidate = String;
}

impl Highlighter for LineTracker {}
impl Validator for LineTracker {}
impl Helper for LineTracker {}
