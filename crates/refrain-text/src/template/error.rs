//! The error of a failed rendering, with its line in the template.

/// The result of rendering a template or a part of it.
pub(super) type Try<T> = Result<T, RenderError>;

/// Longest text from a template that an error quotes, in characters.
const MAX_QUOTED: usize = 1000;

const UNDEFINED: &str = "undefined value";

/// What is wrong, and where in the template.
#[derive(Debug)]
pub(super) struct RenderError {
    text: String,
    location: ErrorLocation,
}

#[derive(Debug, Clone, Copy)]
enum ErrorLocation {
    /// Not known yet.
    Unknown,
    Line(u32),
    /// The error has no line.
    NoLine,
}

impl RenderError {
    fn new(kind: &str, detail: impl std::fmt::Display, location: ErrorLocation) -> Self {
        let detail = clip(&detail.to_string());
        let text = match (kind, detail.as_str()) {
            ("", detail) => detail.to_owned(),
            (kind, "") => kind.to_owned(),
            (kind, detail) => format!("{kind}: {detail}"),
        };
        RenderError { text, location }
    }

    /// A syntax error.
    pub fn syntax(detail: impl std::fmt::Display, line: u32) -> Self {
        Self::new("does not parse", detail, ErrorLocation::Line(line))
    }

    /// An operation that the values do not support.
    pub fn invalid(detail: impl std::fmt::Display) -> Self {
        Self::new("invalid operation", detail, ErrorLocation::Unknown)
    }

    /// An operation on an undefined value; `what` is its name, if it has one.
    pub fn undefined(what: &str) -> Self {
        Self::new(UNDEFINED, what, ErrorLocation::Unknown)
    }

    /// An unknown filter, test or tag; `kind` tells which.
    pub fn unknown(kind: &str, name: &str) -> Self {
        Self::new(&format!("unknown {kind}"), name, ErrorLocation::Unknown)
    }

    /// An error raised by the template itself, with `raise_exception`.
    pub fn raised(message: &str) -> Self {
        Self::new("refuses these messages", message, ErrorLocation::NoLine)
    }

    /// A resource limit was exceeded.
    pub fn limit(detail: impl std::fmt::Display) -> Self {
        Self::new("", detail, ErrorLocation::NoLine)
    }

    /// Whether this is about an undefined value whose name is not known yet.
    pub fn is_undefined(&self) -> bool {
        self.text == UNDEFINED
    }

    /// Sets the line, unless it is already known.
    pub fn at(mut self, line: u32) -> Self {
        if let ErrorLocation::Unknown = self.location {
            self.location = ErrorLocation::Line(line);
        }
        self
    }
}

impl std::fmt::Display for RenderError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.location {
            ErrorLocation::Line(line) => write!(f, "line {line}: {}", self.text),
            ErrorLocation::Unknown | ErrorLocation::NoLine => f.write_str(&self.text),
        }
    }
}

fn clip(text: &str) -> String {
    match text.char_indices().nth(MAX_QUOTED) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
