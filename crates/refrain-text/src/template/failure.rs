//! Why a template does not render.

/// What rendering a template, or a part of it, comes to.
pub(super) type Attempt<T> = Result<T, RenderError>;

/// The longest text of a template that an error repeats, in characters.
const MAX_QUOTED: usize = 1000;

const UNDEFINED: &str = "undefined value";

/// What is wrong, and where in the template.
#[derive(Debug)]
pub(super) struct RenderError {
    text: String,
    place: ErrorPlace,
}

#[derive(Debug, Clone, Copy)]
enum ErrorPlace {
    /// Not known yet.
    Unknown,
    Line(u32),
    /// No line is to blame.
    Whole,
}

impl RenderError {
    fn new(kind: &str, detail: impl std::fmt::Display, place: ErrorPlace) -> Self {
        let detail = clip(&detail.to_string());
        let text = match (kind, detail.as_str()) {
            ("", detail) => detail.to_owned(),
            (kind, "") => kind.to_owned(),
            (kind, detail) => format!("{kind}: {detail}"),
        };
        RenderError { text, place }
    }

    /// What is no Jinja.
    pub fn syntax(detail: impl std::fmt::Display, line: u32) -> Self {
        Self::new("does not parse", detail, ErrorPlace::Line(line))
    }

    /// What does not go with the values at hand.
    pub fn invalid(detail: impl std::fmt::Display) -> Self {
        Self::new("invalid operation", detail, ErrorPlace::Unknown)
    }

    /// Something is asked of a value that is not there; `what` names it, if it has a name.
    pub fn undefined(what: &str) -> Self {
        Self::new(UNDEFINED, what, ErrorPlace::Unknown)
    }

    /// A filter, a test or a tag that Jinja does not have. `kind` is which of them.
    pub fn unknown(kind: &str, name: &str) -> Self {
        Self::new(&format!("unknown {kind}"), name, ErrorPlace::Unknown)
    }

    /// The template itself refuses, by `raise_exception`.
    pub fn raised(message: &str) -> Self {
        Self::new("refuses these messages", message, ErrorPlace::Whole)
    }

    /// A limit on what a template may take.
    pub fn limit(detail: impl std::fmt::Display) -> Self {
        Self::new("", detail, ErrorPlace::Whole)
    }

    /// Whether it is about something undefined that it cannot name.
    pub fn is_undefined(&self) -> bool {
        self.text == UNDEFINED
    }

    /// The same error with `line` to blame, unless that is known already.
    pub fn at(mut self, line: u32) -> Self {
        if let ErrorPlace::Unknown = self.place {
            self.place = ErrorPlace::Line(line);
        }
        self
    }
}

impl std::fmt::Display for RenderError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.place {
            ErrorPlace::Line(line) => write!(f, "line {line}: {}", self.text),
            ErrorPlace::Unknown | ErrorPlace::Whole => f.write_str(&self.text),
        }
    }
}

fn clip(text: &str) -> String {
    match text.char_indices().nth(MAX_QUOTED) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
