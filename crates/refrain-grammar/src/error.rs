//! Errors of grammars, in words that a client understands.

/// An invalid or unsupported grammar, or one that needs too much.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct GrammarError {
    message: String,
    reason: Reason,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reason {
    Invalid,
    Busy,
    Cancelled,
}

/// Message for grammars that exceed a limit of the library.
const TOO_COMPLEX: &str = "the grammar is too complex: use a simpler schema or regular expression";
/// Message for schemas and grammars that no text matches.
pub(crate) const NO_VALUE: &str = "the schema admits no value";
/// Limit of a message's length, in characters.
const MAX_MESSAGE: usize = 500;

/// Words of the library's messages, and what they mean.
const MEANINGS: [(&str, &str); 15] = [
    ("NoExtension", NO_VALUE),
    ("nsatisfiable", NO_VALUE),
    ("no tokens allowed", NO_VALUE),
    ("too many expressions", TOO_COMPLEX),
    ("precomputation failed", TOO_COMPLEX),
    ("too big", TOO_COMPLEX),
    ("too large", TOO_COMPLEX),
    ("too many items", TOO_COMPLEX),
    ("too many states", TOO_COMPLEX),
    ("items; max is", TOO_COMPLEX),
    ("fuel", TOO_COMPLEX),
    ("stack level exceeded", TOO_COMPLEX),
    ("operation cancelled", TOO_LONG),
    (
        "circular references",
        "a reference leads back to itself next to other keywords",
    ),
    ("panic:", "the grammar cannot be compiled"),
];

/// Message for grammars whose compilation or evaluation exceeds the time limit.
pub(crate) const TOO_LONG: &str = "the grammar takes too long: compiling it and finding each next token may take 2 s";

impl GrammarError {
    /// An invalid grammar, in our own words.
    pub(crate) fn new(message: impl Into<String>) -> GrammarError {
        GrammarError {
            message: message.into(),
            reason: Reason::Invalid,
        }
    }

    /// Too many grammars are compiled at once.
    pub(crate) fn busy() -> GrammarError {
        GrammarError {
            message: "too many grammars are being compiled; try again later".to_owned(),
            reason: Reason::Busy,
        }
    }

    /// The caller cancelled the compilation.
    pub(crate) fn cancelled() -> GrammarError {
        GrammarError {
            message: "the compilation of the grammar was cancelled".to_owned(),
            reason: Reason::Cancelled,
        }
    }

    /// Converts the library's error to one line: a plain sentence for known causes, otherwise the message without
    /// its excerpts of the grammar.
    pub(crate) fn of(error: impl std::fmt::Display) -> GrammarError {
        let text = error.to_string();
        if let Some((_, meaning)) = MEANINGS.iter().find(|(word, _)| text.contains(word)) {
            return GrammarError::new(*meaning);
        }
        let is_excerpt = |line: &str| {
            line.trim_start()
                .split_once(" | ")
                .is_some_and(|(at, _)| at.parse::<u32>().is_ok())
        };
        let is_end = |line: &str| line.starts_with("<backtrace>") || line.starts_with("<non-verbose");
        let lines = text.lines().take_while(|line| !is_excerpt(line) && !is_end(line));
        let words: Vec<&str> = lines.flat_map(str::split_whitespace).collect();
        GrammarError::new(words.join(" ").chars().take(MAX_MESSAGE).collect::<String>())
    }

    /// Drops the position from the error of a generated grammar, whose positions mean nothing to the user.
    pub(crate) fn without_position(mut self) -> GrammarError {
        if let Some((position, rest)) = self.message.split_once("): ")
            && position.starts_with("at ")
        {
            self.message = rest.to_owned();
        }
        self
    }

    /// Names what the error is about.
    pub(crate) fn about(mut self, subject: &str) -> GrammarError {
        if self.reason == Reason::Invalid {
            self.message = format!("{subject}: {}", self.message);
        }
        self
    }

    /// Names the part of a schema that it is about.
    pub(crate) fn at(self, path: &str) -> GrammarError {
        if path.is_empty() { self } else { self.about(path) }
    }

    /// Whether the server is busy, so that the same grammar may compile later.
    pub fn is_busy(&self) -> bool {
        self.reason == Reason::Busy
    }

    /// Whether the caller cancelled the compilation.
    pub fn is_cancelled(&self) -> bool {
        self.reason == Reason::Cancelled
    }
}
