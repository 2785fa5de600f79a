//! Where calls begin in a text with marks.

use super::{MarkedReader, State};
use crate::dialects::call::{CallHead, Outcome, TextEnd, opening};
use crate::dialects::expressions::{METHOD, may_be_python, python_head};
use crate::dialects::marks::{Found, at_front};
use crate::dialects::notations::{ALTERNATIVES, ASSUMED};
use crate::dialects::objects::may_be_object;
use crate::dialects::reader::AnswerPiece;
use crate::dialects::{CallForm, Notation};

impl MarkedReader {
    /// Takes a call at the front of the held text, which begins with the mark of a call or a section. What turns out to
    /// be no call is text, and what is cut off before it turns out is dropped. Returns whether there is more to do.
    pub(super) fn marked_call(&mut self, notation: &'static Notation, end: TextEnd) -> bool {
        let open = opening(notation);
        match self.marked_head(notation) {
            Outcome::Read(head, consumed) => {
                self.begin(head, consumed);
                true
            }
            Outcome::Incomplete if end == TextEnd::Open => false,
            Outcome::Incomplete if end == TextEnd::Cut => self.drop_held(),
            Outcome::Other if *notation == ASSUMED => self.assumed_call(open, end),
            Outcome::Incomplete | Outcome::Other => self.no_call(open),
        }
    }

    /// Looks for a call in the notations that share a mark with the assumed one. The function must be offered.
    fn assumed_call(&mut self, open: &str, end: TextEnd) -> bool {
        for notation in ALTERNATIVES {
            match self.marked_head(notation) {
                Outcome::Read(head, consumed) if self.functions.contains(&head.name) => {
                    self.dialect.calls = Some(notation);
                    self.begin(head, consumed);
                    return true;
                }
                Outcome::Incomplete if end == TextEnd::Open => return false,
                Outcome::Incomplete if end == TextEnd::Cut => return self.drop_held(),
                _ => {}
            }
        }
        self.no_call(open)
    }

    /// Reads the head of a call, behind the mark that the held text begins with.
    fn marked_head(&self, notation: &'static Notation) -> Outcome<CallHead> {
        let open = opening(notation);
        let behind = self.held[open.len()..].trim_start();
        // A section's mark is followed by a call's.
        let call_at = if notation.section.is_some_and(|marks| !marks.open.is_empty()) && !notation.call.open.is_empty()
        {
            match at_front(behind, notation.call.open) {
                Found::Yes => self.held.len() - behind.len() + notation.call.open.len(),
                Found::Perhaps => return Outcome::Incomplete,
                Found::No => return Outcome::Other,
            }
        } else {
            open.len()
        };
        CallHead::read(&self.held[call_at..], notation, &self.functions).behind(call_at)
    }

    /// Drops what began as a mark or a call when the text was cut off.
    pub(super) fn drop_held(&mut self) -> bool {
        self.held.clear();
        self.blanks.clear();
        self.state = State::Between;
        false
    }

    /// What looked like a call is text.
    pub(super) fn no_call(&mut self, mark: &str) -> bool {
        let text: String = self.held.drain(..mark.len()).collect();
        self.say(&text);
        self.state = State::Text;
        true
    }

    /// Takes a call without a mark at the front of the held text. `Perhaps`: its beginning is there.
    pub(super) fn unmarked_call(&mut self, end: TextEnd) -> Found {
        let Some(notation) = self.notation() else {
            return Found::No;
        };
        let text = self.held.trim_start();
        if !text.starts_with(['{', '[']) {
            return self.builtin_call(end);
        }
        match CallHead::read(text, notation, &self.functions) {
            Outcome::Read(head, length) if self.functions.contains(&head.name) => {
                let consumed = self.held.len() - text.len() + length;
                self.begin(head, consumed);
                Found::Yes
            }
            Outcome::Incomplete if end == TextEnd::Open => Found::Perhaps,
            Outcome::Incomplete if end == TextEnd::Cut && self.may_be_call(notation, text) => Found::Perhaps,
            _ => Found::No,
        }
    }

    /// Whether a text that was cut off is the beginning of a call without a mark, and not of an answer in JSON.
    fn may_be_call(&self, notation: &Notation, text: &str) -> bool {
        match notation.form {
            CallForm::Python => may_be_python(text, &self.functions),
            _ => may_be_object(text, &self.functions),
        }
    }

    /// Takes `NAME.call(key="value")` behind a mark, as Llama 3 writes calls of tools that it knows.
    fn builtin_call(&mut self, end: TextEnd) -> Found {
        let text = self.held.trim_start();
        let is_other = |at: usize| !text[..at].ends_with(METHOD);
        if !self.is_behind_mark || text.find('(').is_some_and(is_other) {
            return Found::No;
        }
        match python_head(text) {
            Outcome::Read(mut head, length) => {
                let name = head.name.strip_suffix(METHOD).unwrap_or_default().to_owned();
                if !self.functions.contains(&name) {
                    return Found::No;
                }
                head.name = name;
                let consumed = self.held.len() - text.len() + length;
                self.begin(head, consumed);
                Found::Yes
            }
            Outcome::Incomplete if end == TextEnd::Open => Found::Perhaps,
            Outcome::Incomplete if end == TextEnd::Cut && may_be_python(text, &self.functions) => Found::Perhaps,
            Outcome::Incomplete | Outcome::Other => Found::No,
        }
    }

    pub(super) fn begin(&mut self, head: CallHead, consumed: usize) {
        self.held.drain(..consumed);
        self.blanks.clear();
        self.had_call = true;
        self.out.push(AnswerPiece::Call {
            name: head.name.clone(),
            id: head.id,
        });
        self.call = Some((head.name, head.body));
        self.state = State::Call;
    }
}
