//! Reads answers that are one text with marks in it.

mod heads;

use super::call::{CallBody, CallHead, Outcome, TextEnd, may_begin, opening};
use super::marks::{Found, at_front, begun, first};
use super::reader::AnswerPiece;
use super::{Dialect, Functions, Notation};

/// Reads one text with marks in it.
#[derive(Debug, Clone)]
pub(super) struct MarkedReader {
    dialect: Dialect,
    functions: Functions,
    state: State,
    /// What is not certain yet.
    held: String,
    /// Blanks of the text, which count only if text follows.
    blanks: String,
    had_reasoning: bool,
    /// Whether some of the present reasoning was given out.
    said_reasoning: bool,
    had_text: bool,
    had_call: bool,
    /// Whether a mark that means nothing stands before the held text.
    is_behind_mark: bool,
    call: Option<(String, CallBody)>,
    /// The present reasoning, in which calls may stand if no mark ends it.
    unended: String,
    out: Vec<AnswerPiece>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// At the beginning, or behind reasoning, a call or the text's closing mark.
    Between,
    Reasoning,
    Text,
    /// Between the calls of a section.
    Section,
    Call,
}

impl MarkedReader {
    pub fn new(dialect: Dialect, functions: Functions, is_open: bool) -> MarkedReader {
        MarkedReader {
            dialect,
            functions,
            state: if is_open { State::Reasoning } else { State::Between },
            held: String::new(),
            blanks: String::new(),
            had_reasoning: is_open,
            said_reasoning: false,
            had_text: false,
            had_call: false,
            is_behind_mark: false,
            call: None,
            unended: String::new(),
            out: vec![],
        }
    }

    pub fn is_reasoning(&self) -> bool {
        self.state == State::Reasoning
    }

    pub fn push(&mut self, piece: &str) -> Vec<AnswerPiece> {
        self.held.push_str(piece);
        while self.advance(TextEnd::Open) {}
        std::mem::take(&mut self.out)
    }

    pub fn finish(&mut self, end: TextEnd) -> Vec<AnswerPiece> {
        while self.advance(end) {}
        let held = std::mem::take(&mut self.held);
        match self.state {
            // What is held may be the beginning of the mark that ends it.
            State::Reasoning if end == TextEnd::Cut => {}
            State::Reasoning => {
                self.say_reasoning(held.trim_end());
                self.calls_in_reasoning();
            }
            State::Between if (self.had_reasoning || self.had_call) && held.trim().is_empty() => {}
            State::Between | State::Text => {
                self.blanks.push_str(&held);
                if !self.had_call {
                    let rest = std::mem::take(&mut self.blanks);
                    self.emit_text(rest);
                }
            }
            State::Section | State::Call => {}
        }
        std::mem::take(&mut self.out)
    }

    fn notation(&self) -> Option<&'static Notation> {
        self.dialect.calls
    }

    /// Goes as far as the held text is certain; true if there is more to do.
    fn advance(&mut self, end: TextEnd) -> bool {
        match self.state {
            State::Between => self.between(end),
            State::Reasoning => self.reasoning(),
            State::Text => self.text(end),
            State::Section => self.section(end),
            State::Call => self.in_call(end),
        }
    }

    fn between(&mut self, end: TextEnd) -> bool {
        let is_beginning = !self.had_reasoning && !self.had_text && !self.had_call;
        let lead = self.dialect.text_lead;
        if is_beginning && self.blanks.is_empty() && !lead.is_empty() {
            match at_front(&self.held, lead) {
                Found::Yes => drop(self.held.drain(..lead.len())),
                Found::Perhaps if end == TextEnd::Open => return false,
                Found::Perhaps | Found::No => {}
            }
            self.dialect.text_lead = "";
        }
        let text = self.held.trim_start();
        if text.is_empty() {
            return false;
        }
        let reasoning = self.dialect.reasoning.filter(|_| !self.had_text);
        let text_open = self
            .notation()
            .and_then(|notation| notation.text)
            .map_or("", |marks| marks.open);
        let ignored = self.notation().map_or(&[][..], |notation| notation.ignored);
        let mut may_be_mark = false;
        if let Some(marks) = reasoning {
            match at_front(text, marks.open) {
                Found::Yes => {
                    self.held = text[marks.open.len()..].to_owned();
                    if self.had_reasoning && self.said_reasoning {
                        self.out.push(AnswerPiece::Reasoning("\n\n".to_owned()));
                    }
                    (self.state, self.had_reasoning, self.said_reasoning) = (State::Reasoning, true, false);
                    return true;
                }
                Found::Perhaps => may_be_mark = true,
                Found::No => {}
            }
            // Some templates end reasoning that was not there.
            match at_front(text, marks.close) {
                Found::Yes if is_beginning => {
                    self.held = text[marks.close.len()..].to_owned();
                    self.had_reasoning = true;
                    return true;
                }
                Found::Perhaps if is_beginning => may_be_mark = true,
                _ => {}
            }
        }
        for mark in ignored.iter().copied().chain([text_open]) {
            match at_front(text, mark) {
                Found::Yes => {
                    self.held = text[mark.len()..].to_owned();
                    self.is_behind_mark = true;
                    if mark == text_open {
                        self.state = State::Text;
                    }
                    return true;
                }
                Found::Perhaps => may_be_mark = true,
                Found::No => {}
            }
        }
        // Calls that no mark begins stand at the front alone.
        if self.notation().is_some_and(|notation| opening(notation).is_empty()) && !self.had_text {
            match self.unmarked_call(end) {
                Found::Yes => return true,
                Found::Perhaps if end == TextEnd::Cut => return self.drop_held(),
                Found::Perhaps => return false,
                Found::No => {}
            }
        }
        match end {
            TextEnd::Open if may_be_mark => return false,
            TextEnd::Cut if may_be_mark => return self.drop_held(),
            _ => {}
        }
        if self.had_reasoning && !self.had_text || self.had_call {
            self.held = self.held.trim_start().to_owned();
        }
        self.state = State::Text;
        true
    }

    fn reasoning(&mut self) -> bool {
        let Some(marks) = self.dialect.reasoning else {
            self.state = State::Text;
            return true;
        };
        if !self.said_reasoning {
            self.held = self.held.trim_start().to_owned();
        }
        if let Some(at) = self.held.find(marks.close) {
            let reasoning = self.held[..at].trim_end().to_owned();
            self.say_reasoning(&reasoning);
            self.held.drain(..at + marks.close.len());
            self.unended.clear();
            self.state = State::Between;
            return true;
        }
        let certain = self.held.len() - begun(&self.held, [marks.close]);
        // Blanks may be the last of the reasoning.
        let certain = self.held[..certain].trim_end().len();
        let reasoning: String = self.held.drain(..certain).collect();
        self.say_reasoning(&reasoning);
        false
    }

    /// The calls at the end of reasoning that the model forgot to end.
    fn calls_in_reasoning(&mut self) {
        let Some(notation) = self.notation() else { return };
        let dialect = Dialect {
            reasoning: None,
            ..self.dialect
        };
        let text = std::mem::take(&mut self.unended);
        let is_call = |piece: &AnswerPiece| matches!(piece, AnswerPiece::Call { .. } | AnswerPiece::Arguments(_));
        let mut reader = MarkedReader::new(dialect, self.functions.clone(), false);
        let mut pieces = reader.push(&text);
        pieces.extend(reader.finish(TextEnd::Complete));
        let are_known = pieces.iter().all(|piece| match piece {
            AnswerPiece::Call { name, .. } => self.functions.contains(name),
            _ => true,
        });
        let ends_with_call = pieces.last().is_some_and(is_call);
        if are_known && ends_with_call && !opening(notation).is_empty() {
            self.out.extend(pieces.into_iter().filter(is_call));
        }
    }

    fn say_reasoning(&mut self, reasoning: &str) {
        if !reasoning.is_empty() {
            self.said_reasoning = true;
            self.unended.push_str(reasoning);
            self.out.push(AnswerPiece::Reasoning(reasoning.to_owned()));
        }
    }

    fn text(&mut self, end: TextEnd) -> bool {
        let Some(notation) = self.notation() else {
            let held = std::mem::take(&mut self.held);
            self.say(&held);
            return false;
        };
        let open = opening(notation);
        let text_close = notation.text.map_or("", |marks| marks.close);
        let marks = || [open, text_close].into_iter().chain(notation.ignored.iter().copied());
        let Some((at, mark)) = first(&self.held, marks()) else {
            let begun = if end == TextEnd::Complete {
                0
            } else {
                begun(&self.held, marks())
            };
            let text: String = self.held.drain(..self.held.len() - begun).collect();
            self.say(&text);
            return begun > 0 && end == TextEnd::Cut && self.drop_held();
        };
        let text: String = self.held.drain(..at).collect();
        self.say(&text);
        if mark == open {
            return self.marked_call(notation, end);
        }
        self.held.drain(..mark.len());
        self.state = State::Between;
        true
    }

    fn in_call(&mut self, end: TextEnd) -> bool {
        let (Some(notation), Some((name, body))) = (self.dialect.calls, &mut self.call) else {
            self.state = State::Between;
            return true;
        };
        let mut arguments = String::new();
        let has_ended = body.advance(&mut self.held, &mut arguments, notation, &self.functions, name, end);
        if !arguments.is_empty() {
            self.out.push(AnswerPiece::Arguments(arguments));
        }
        if has_ended {
            self.call = None;
            self.state = State::Section;
        }
        has_ended
    }

    /// Behind a call: another one, or what ends them.
    fn section(&mut self, end: TextEnd) -> bool {
        let Some(notation) = self.notation() else {
            self.state = State::Between;
            return true;
        };
        // What separates the calls of a list, and ends it, unless a mark begins so.
        let is_list = notation.call.close.is_empty();
        let separators = |c: char| c.is_whitespace() || is_list && matches!(c, ',' | ';');
        let mut text = self.held.trim_start_matches(separators);
        let ends = [notation.section.map_or("", |marks| marks.close), notation.call.open];
        while is_list && text.starts_with(']') && ends.iter().all(|end| at_front(text, end) == Found::No) {
            text = text[1..].trim_start_matches(separators);
        }
        if text.is_empty() {
            self.held.clear();
            return false;
        }
        let section = notation.section;
        let next = if section.is_some() || opening(notation).is_empty() {
            notation.call.open
        } else {
            ""
        };
        let mut is_certain = true;
        if let Some(marks) = section {
            match at_front(text, marks.close) {
                Found::Yes => {
                    self.held = text[marks.close.len()..].to_owned();
                    self.state = State::Between;
                    return true;
                }
                Found::Perhaps => is_certain = false,
                Found::No => {}
            }
        }
        let is_unmarked = next.is_empty();
        match at_front(text, next) {
            Found::Perhaps => is_certain = false,
            Found::Yes | Found::No if next.is_empty() && !is_certain => {}
            found => {
                let may_follow = found == Found::Yes || is_unmarked && may_begin(text, notation);
                if may_follow {
                    match CallHead::read(&text[next.len()..], notation, &self.functions) {
                        Outcome::Read(head, length) => {
                            let consumed = self.held.len() - text.len() + next.len() + length;
                            self.begin(head, consumed);
                            return true;
                        }
                        Outcome::Incomplete if end == TextEnd::Open => return false,
                        Outcome::Incomplete => is_certain = false,
                        Outcome::Other => {}
                    }
                }
            }
        }
        match end {
            TextEnd::Open if !is_certain => return false,
            TextEnd::Cut if !is_certain => return self.drop_held(),
            _ => {}
        }
        self.held = text.to_owned();
        self.state = State::Between;
        true
    }

    /// Gives text out; blanks at its end wait for what follows.
    fn say(&mut self, text: &str) {
        self.blanks.push_str(text);
        let certain = self.blanks.trim_end().len();
        if certain > 0 {
            let text = self.blanks.drain(..certain).collect();
            self.emit_text(text);
        }
    }

    fn emit_text(&mut self, text: String) {
        if !text.is_empty() {
            self.had_text = true;
            self.out.push(AnswerPiece::Text(text));
        }
    }
}
