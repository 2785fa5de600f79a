//! Reads answers: reasoning, text and calls in a text that arrives piece by piece.

use super::call::TextEnd;
use super::marked::MarkedReader;
use super::messages::MessageReader;
use super::{Dialect, Functions};

/// A piece of an answer. Pieces of one kind behind each other go on from each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnswerPiece {
    /// Reasoning.
    Reasoning(String),
    /// Text for the user.
    Text(String),
    /// A call begins.
    Call {
        /// The function's name.
        name: String,
        /// The id that the model gave it, if the dialect has such.
        id: Option<String>,
    },
    /// More of the arguments of the call that began last: JSON, in pieces.
    Arguments(String),
}

/// Reads one answer.
///
/// Blanks around reasoning and before calls are left out. What turns out to be no call stays text: nothing is lost of
/// a text that the model ended.
#[derive(Debug, Clone)]
pub struct AnswerReader(Kind);

#[derive(Debug, Clone)]
enum Kind {
    Marked(MarkedReader),
    Messages(MessageReader),
}

impl AnswerReader {
    /// A reader for the answer to a rendered `prompt`, whose end tells whether the answer begins within reasoning.
    pub fn new(dialect: Dialect, functions: Functions, prompt: &str) -> AnswerReader {
        AnswerReader(match dialect.messages {
            Some(format) => Kind::Messages(MessageReader::new(format, functions, prompt)),
            None => {
                let marks = dialect.reasoning;
                let is_open = marks.is_some_and(|marks| prompt.trim_end().ends_with(marks.open.trim_end()));
                Kind::Marked(MarkedReader::new(dialect, functions, is_open))
            }
        })
    }

    /// Takes the next piece of the text and returns what is certain now.
    pub fn push(&mut self, piece: &str) -> Vec<AnswerPiece> {
        match &mut self.0 {
            Kind::Marked(reader) => reader.push(piece),
            Kind::Messages(reader) => reader.push(piece),
        }
    }

    /// Ends a text that the model ended, and returns what was held back.
    pub fn finish(&mut self) -> Vec<AnswerPiece> {
        self.end(TextEnd::Complete)
    }

    /// Ends a text that a limit or a stop string ended, and returns what was held back and is certain: no beginnings of
    /// marks or of calls. The last call may lack some of its arguments, or all.
    pub fn cut_off(&mut self) -> Vec<AnswerPiece> {
        self.end(TextEnd::Cut)
    }

    fn end(&mut self, end: TextEnd) -> Vec<AnswerPiece> {
        match &mut self.0 {
            Kind::Marked(reader) => reader.finish(end),
            Kind::Messages(reader) => reader.finish(end),
        }
    }

    /// Whether the text is in the middle of reasoning.
    pub fn is_reasoning(&self) -> bool {
        match &self.0 {
            Kind::Marked(reader) => reader.is_reasoning(),
            Kind::Messages(reader) => reader.is_reasoning(),
        }
    }
}
