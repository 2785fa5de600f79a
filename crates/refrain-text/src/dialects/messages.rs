//! Reads answers that are sequences of messages, each with a header that says what it is.

use super::call::TextEnd;
use super::json::{Compactor, ValueScanner};
use super::marked::MarkedReader;
use super::marks::{Found, at_front, begun, first};
use super::reader::AnswerPiece;
use super::{Dialect, Functions, MessageFormat, Route};

/// The longest header, in bytes. What is longer is text.
const MAX_HEADER: usize = 512;

/// Reads one answer of several messages.
#[derive(Debug, Clone)]
pub(super) struct MessageReader {
    format: &'static MessageFormat,
    functions: Functions,
    state: State,
    held: String,
    had_text: bool,
    had_reasoning: bool,
    /// Blanks at the end of what was read of the present message.
    blanks: String,
    out: Vec<AnswerPiece>,
}

#[derive(Debug, Clone)]
enum State {
    Header,
    Reasoning {
        said: bool,
    },
    Text {
        said: bool,
    },
    Arguments {
        scanner: ValueScanner,
        compactor: Compactor,
        has_ended: bool,
        said: bool,
    },
    /// Calls in a notation of their own.
    Calls(Box<MarkedReader>),
}

impl MessageReader {
    pub fn new(format: &'static MessageFormat, functions: Functions, prompt: &str) -> MessageReader {
        // The prompt may end within a header, or behind one.
        let tail = prompt
            .rfind(format.start)
            .map_or("", |at| &prompt[at + format.start.len()..]);
        let is_over = tail.len() > MAX_HEADER || format.ends.iter().any(|end| tail.contains(end));
        let tail = if is_over { "" } else { tail };
        let mut reader = MessageReader {
            format,
            functions,
            state: State::Header,
            held: tail.to_owned(),
            had_text: false,
            had_reasoning: false,
            blanks: String::new(),
            out: vec![],
        };
        if tail.contains(format.header_end) {
            while reader.advance(TextEnd::Open) {}
            reader.held.clear();
            reader.out.clear();
        }
        reader
    }

    pub fn is_reasoning(&self) -> bool {
        matches!(self.state, State::Reasoning { .. })
    }

    pub fn push(&mut self, piece: &str) -> Vec<AnswerPiece> {
        self.held.push_str(piece);
        while self.advance(TextEnd::Open) {}
        std::mem::take(&mut self.out)
    }

    pub fn finish(&mut self, end: TextEnd) -> Vec<AnswerPiece> {
        while self.advance(end) {}
        let mut held = std::mem::take(&mut self.held);
        if end == TextEnd::Cut {
            held.clear();
        }
        let is_header = matches!(self.state, State::Header);
        // A header that never ended is dropped; what is none is text.
        if !is_header {
            self.body(&held);
        } else if !held.trim().is_empty() && !self.looks_like_header(&held) {
            self.say_text(&held);
        }
        self.end_message(end);
        std::mem::take(&mut self.out)
    }

    fn looks_like_header(&self, text: &str) -> bool {
        let begins = self.format.header_begins;
        begins.is_empty() || begins.iter().any(|mark| at_front(text, mark) != Found::No)
    }

    fn advance(&mut self, end: TextEnd) -> bool {
        if self.held.is_empty() {
            return false;
        }
        match self.state {
            State::Header => self.header(end),
            _ => self.message(end),
        }
    }

    fn header(&mut self, end: TextEnd) -> bool {
        if let Some(rest) = self.held.trim_start().strip_prefix(self.format.start) {
            self.held = rest.to_owned();
            return true;
        }
        if at_front(self.held.trim_start(), self.format.start) == Found::Perhaps && end != TextEnd::Complete {
            return false;
        }
        if !self.looks_like_header(&self.held) {
            self.state = State::Text { said: false };
            return true;
        }
        let Some(at) = self.held.find(self.format.header_end) else {
            if self.held.len() > MAX_HEADER {
                self.state = State::Text { said: false };
                return true;
            }
            return false;
        };
        let header: String = self.held.drain(..at + self.format.header_end.len()).collect();
        self.state = match (self.format.route)(&header[..at]) {
            Route::Reasoning => {
                if self.had_reasoning {
                    self.out.push(AnswerPiece::Reasoning("\n\n".to_owned()));
                }
                State::Reasoning { said: false }
            }
            Route::Text => State::Text { said: false },
            Route::Call(name) => match self.format.calls {
                Some(notation) => {
                    let dialect = Dialect {
                        reasoning: None,
                        calls: Some(notation),
                        text_lead: "",
                        messages: None,
                    };
                    State::Calls(Box::new(MarkedReader::new(dialect, self.functions.clone(), false)))
                }
                None => {
                    self.out.push(AnswerPiece::Call { name, id: None });
                    State::Arguments {
                        scanner: ValueScanner::default(),
                        compactor: Compactor::default(),
                        has_ended: false,
                        said: false,
                    }
                }
            },
        };
        true
    }

    fn message(&mut self, end: TextEnd) -> bool {
        if let State::Arguments {
            scanner,
            has_ended: false,
            said,
            ..
        } = &self.state
        {
            let blanks = if *said {
                0
            } else {
                self.held.len() - self.held.trim_start().len()
            };
            let (length, is_whole) = scanner.clone().scan(&self.held[blanks..]);
            return self.arguments(blanks + length, is_whole, end);
        }
        let marks = || self.format.ends.iter().copied().chain([self.format.start]);
        let Some((at, mark)) = first(&self.held, marks()) else {
            let begun = if end == TextEnd::Complete {
                0
            } else {
                begun(&self.held, marks())
            };
            let body: String = self.held.drain(..self.held.len() - begun).collect();
            self.body(&body);
            return false;
        };
        let body: String = self.held.drain(..at).collect();
        self.held.drain(..mark.len());
        self.body(&body);
        self.end_message(TextEnd::Complete);
        true
    }

    /// More of the arguments, of which the held text has `length` bytes; `is_whole`: they end there.
    ///
    /// A mark within them is part of a string, unless another message follows it: then the model never ended the
    /// arguments.
    fn arguments(&mut self, length: usize, is_whole: bool, end: TextEnd) -> bool {
        let ends = || self.format.ends.iter().copied();
        let found = first(&self.held, ends()).filter(|(at, _)| *at < length);
        let Some((at, mark)) = found else {
            let begun = if is_whole || end == TextEnd::Complete {
                0
            } else {
                begun(&self.held, ends())
            };
            let body: String = self.held.drain(..length - begun).collect();
            self.body(&body);
            if let State::Arguments { has_ended, .. } = &mut self.state {
                // Also where what stands there is no value at all.
                *has_ended = is_whole;
            }
            return is_whole;
        };
        let behind = self.held[at + mark.len()..].trim_start();
        let is_end = match at_front(behind, self.format.start) {
            Found::Yes => true,
            Found::Perhaps if end != TextEnd::Complete => {
                let body: String = self.held.drain(..at).collect();
                self.body(&body);
                return false;
            }
            Found::Perhaps | Found::No => end == TextEnd::Complete && behind.is_empty(),
        };
        let taken = if is_end { at } else { at + mark.len() };
        let body: String = self.held.drain(..taken).collect();
        self.body(&body);
        if is_end {
            self.held.drain(..mark.len());
            self.end_message(TextEnd::Complete);
        }
        true
    }

    /// More of the present message.
    fn body(&mut self, text: &str) {
        match &mut self.state {
            State::Header => {}
            State::Reasoning { said } => {
                self.blanks.push_str(text);
                let all = if *said {
                    &self.blanks[..]
                } else {
                    self.blanks.trim_start()
                };
                let certain = all.trim_end();
                if !certain.is_empty() {
                    (*said, self.had_reasoning) = (true, true);
                    self.out.push(AnswerPiece::Reasoning(certain.to_owned()));
                    self.blanks = all[certain.len()..].to_owned();
                }
            }
            State::Text { said } => {
                *said = true;
                self.say_text(text);
            }
            State::Arguments {
                scanner,
                compactor,
                has_ended,
                said,
            } => {
                let text = if *said { text } else { text.trim_start() };
                if *has_ended || text.is_empty() {
                    return;
                }
                *said = true;
                let (length, is_whole) = scanner.scan(text);
                *has_ended = is_whole;
                let mut arguments = String::new();
                compactor.push(&text[..length], &mut arguments);
                if !arguments.is_empty() {
                    self.out.push(AnswerPiece::Arguments(arguments));
                }
            }
            State::Calls(reader) => self.out.extend(reader.push(text)),
        }
    }

    fn say_text(&mut self, text: &str) {
        if !text.is_empty() {
            self.had_text = true;
            self.out.push(AnswerPiece::Text(text.to_owned()));
        }
    }

    /// Ends the present message, at its mark or where the text ends.
    fn end_message(&mut self, end: TextEnd) {
        match std::mem::replace(&mut self.state, State::Header) {
            State::Arguments { said: false, .. } if end != TextEnd::Cut => {
                self.out.push(AnswerPiece::Arguments("{}".to_owned()))
            }
            State::Calls(mut reader) => self.out.extend(reader.finish(end)),
            _ => {}
        }
        self.blanks.clear();
    }
}
