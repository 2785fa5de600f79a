//! The line that is being typed, for when it cannot be read to its end.

use std::cell::RefCell;

use rustyline::completion::Completer;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::Validator;
use rustyline::{Context, Helper};

/// Sees the line after each key, and keeps it: where reading fails, the editor does not give it out.
#[derive(Debug, Default)]
pub(in crate::commands::chat) struct Typed(RefCell<String>);

impl Typed {
    /// The line as it was last.
    pub fn take(&self) -> String {
        self.0.take()
    }
}

impl Hinter for Typed {
    type Hint = String;

    fn hint(&self, line: &str, _: usize, _: &Context<'_>) -> Option<String> {
        line.clone_into(&mut self.0.borrow_mut());
        None
    }
}

impl Completer for Typed {
    type Candidate = String;
}

impl Highlighter for Typed {}
impl Validator for Typed {}
impl Helper for Typed {}
