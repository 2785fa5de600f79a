//! Where calls begin in a text with marks.

use super::{MarkedReader, State};
use crate::dialects::Notation;
use crate::dialects::call::{CallHead, Outcome, opening};
use crate::dialects::expressions::python_head;
use crate::dialects::marks::{Found, at_front};
use crate::dialects::notations::{ALTERNATIVES, ASSUMED};
use crate::dialects::reader::AnswerPiece;

impl MarkedReader {
    /// Takes a call at the front of the held text, which begins with the mark of a call or a section. What turns out to
    /// be no call is text. Returns whether there is more to do.
    pub(super) fn marked_call(&mut self, notation: &'static Notation, is_final: bool) -> bool {
        let open = opening(notation);
        match self.marked_head(notation, is_final) {
            Outcome::Read(head, consumed) => {
                self.begin(head, consumed);
                true
            }
            Outcome::Incomplete if !is_final => false,
            Outcome::Other if *notation == ASSUMED => self.assumed_call(open, is_final),
            Outcome::Incomplete | Outcome::Other => self.no_call(open),
        }
    }

    /// Looks for a call in the notations that share a mark with the assumed one. The function must be offered.
    fn assumed_call(&mut self, open: &str, is_final: bool) -> bool {
        for notation in ALTERNATIVES {
            match self.marked_head(notation, is_final) {
                Outcome::Read(head, consumed) if self.functions.contains(&head.name) => {
                    self.dialect.calls = Some(notation);
                    self.begin(head, consumed);
                    return true;
                }
                Outcome::Incomplete if !is_final => return false,
                _ => {}
            }
        }
        self.no_call(open)
    }

    /// Reads the head of a call, behind the mark that the held text begins with.
    fn marked_head(&self, notation: &'static Notation, is_final: bool) -> Outcome<CallHead> {
        let open = opening(notation);
        let behind = self.held[open.len()..].trim_start();
        // A section's mark is followed by a call's.
        let call_at = if notation.section.is_some_and(|marks| !marks.open.is_empty()) && !notation.call.open.is_empty()
        {
            match at_front(behind, notation.call.open) {
                Found::Yes => self.held.len() - behind.len() + notation.call.open.len(),
                Found::Perhaps if !is_final => return Outcome::Incomplete,
                Found::Perhaps | Found::No => return Outcome::Other,
            }
        } else {
            open.len()
        };
        CallHead::read(&self.held[call_at..], notation, &self.functions, is_final).behind(call_at)
    }

    /// What looked like a call is text.
    pub(super) fn no_call(&mut self, mark: &str) -> bool {
        let text: String = self.held.drain(..mark.len()).collect();
        self.say(&text);
        self.state = State::Text;
        true
    }

    pub(super) fn unmarked_call(&mut self, is_final: bool) -> Found {
        let Some(notation) = self.notation() else {
            return Found::No;
        };
        let text = self.held.trim_start();
        if !text.starts_with(['{', '[']) {
            return self.builtin_call(is_final);
        }
        match CallHead::read(text, notation, &self.functions, is_final) {
            Outcome::Read(head, length) if self.functions.contains(&head.name) => {
                let consumed = self.held.len() - text.len() + length;
                self.begin(head, consumed);
                Found::Yes
            }
            Outcome::Incomplete if !is_final => Found::Perhaps,
            _ => Found::No,
        }
    }

    /// Takes `NAME.call(key="value")` behind a mark, as Llama 3 writes calls of tools that it knows.
    fn builtin_call(&mut self, is_final: bool) -> Found {
        const METHOD: &str = ".call";
        let text = self.held.trim_start();
        let is_other = |at: usize| !text[..at].ends_with(METHOD);
        if !self.is_behind_mark || text.find('(').is_some_and(is_other) {
            return Found::No;
        }
        match python_head(text, is_final) {
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
            Outcome::Incomplete if !is_final => Found::Perhaps,
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
