//! Dialects: how families of models write reasoning, text and tool calls into one stream of text.
//!
//! A [`Dialect`] is a record. [`Dialect::of`] chooses it by what the model's own chat template writes, and an
//! [`AnswerReader`] reads an answer in it, piece by piece. The records are in `notations`.

mod call;
mod detect;
mod elements;
mod expressions;
mod json;
mod literal;
mod marked;
mod marks;
mod message_formats;
mod messages;
mod named;
mod notations;
mod objects;
mod reader;
mod reasoning_end;
#[cfg(test)]
mod tests;
mod values;

pub use call::{MAX_FUNCTION_NAME, is_function_name};
pub use reader::{AnswerPiece, AnswerReader};
pub use reasoning_end::ReasoningEnd;
pub use values::Functions;

/// Two marks around something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marks {
    /// Begins it.
    pub open: &'static str,
    /// Ends it. Empty where nothing marks the end.
    pub close: &'static str,
}

/// How a model writes its answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dialect {
    /// The marks around reasoning; `None` if the model does not reason.
    pub reasoning: Option<Marks>,
    /// How calls are written; `None` if the model's template has no tools.
    pub calls: Option<&'static Notation>,
    /// Blanks that the template writes before an answer's text, which are not part of it.
    pub text_lead: &'static str,
    /// An answer that is a sequence of messages, each with a header, instead of one text with marks.
    pub messages: Option<&'static MessageFormat>,
}

impl Dialect {
    /// A dialect of text alone.
    pub const PLAIN: Dialect = Dialect {
        reasoning: None,
        calls: None,
        text_lead: "",
        messages: None,
    };

    /// Whether the model reasons before it answers.
    pub fn reasons(&self) -> bool {
        self.reasoning.is_some() || self.messages.is_some_and(|format| format.headers.reasoning.is_some())
    }

    /// Whether the model calls tools.
    pub fn has_calls(&self) -> bool {
        self.calls.is_some() || self.messages.is_some()
    }

    /// The mark that begins calls; empty if nothing but their text does.
    pub fn call_mark(&self) -> &'static str {
        self.calls.map_or("", call::opening)
    }

    /// Whether the notation of calls is known, and not only assumed because a client offers tools.
    pub fn knows_calls(&self) -> bool {
        self.messages.is_some() || self.calls.is_some_and(|notation| *notation != notations::ASSUMED)
    }

    /// Whether text has a header or marks around it.
    pub fn wraps_text(&self) -> bool {
        self.messages.is_some() || self.calls.is_some_and(|notation| notation.text.is_some())
    }

    /// The same where tools are offered: a model whose template knows none may call them nevertheless.
    #[must_use]
    pub fn with_calls(self) -> Dialect {
        let assumed = self.messages.is_none().then_some(&notations::ASSUMED);
        Dialect {
            calls: self.calls.or(assumed),
            ..self
        }
    }

    /// The same where no tools are offered: what looks like a call is text.
    pub fn without_calls(self) -> Dialect {
        let calls = self.calls.filter(|notation| notation.text.is_some());
        Dialect { calls, ..self }
    }
}

/// How tool calls are written.
#[derive(Debug, PartialEq, Eq)]
pub struct Notation {
    /// The name of the notation, for logs and errors.
    pub name: &'static str,
    /// The marks around all calls, where calls have no such marks of their own.
    pub section: Option<Marks>,
    /// The marks around one call. The first is empty where the section or nothing marks a call's beginning.
    pub call: Marks,
    /// What stands between them.
    pub form: CallForm,
    /// The marks around the text of an answer, if it has some.
    pub text: Option<Marks>,
    /// Marks that may stand anywhere between text and calls, and mean nothing to a reader.
    pub ignored: &'static [&'static str],
}

/// What a call consists of.
#[derive(Debug, PartialEq, Eq)]
pub enum CallForm {
    /// A JSON object with the name under one key and the arguments under another, or a list of such.
    Objects(ObjectKeys),
    /// A JSON object whose one key is the name, or a list of such.
    KeyedObjects,
    /// The name, a mark, and the arguments as a JSON object.
    Named(NamedCall),
    /// The name, and each argument between marks.
    Tagged(NamedCall, ArgumentTags),
    /// Calls as in Python, within a list: `[f(a=1), g()]`.
    Python,
    /// `NAME{key:value,…}`, as Gemma writes it.
    Braces,
    /// The name, and each argument as an element of its own name, nested as far as the value is.
    Elements(NamedCall, ElementTags),
}

/// How objects are written. A reader takes all spellings that are known; a grammar writes this one.
#[derive(Debug, PartialEq, Eq)]
pub struct ObjectKeys {
    /// The key of the function's name.
    pub name: &'static str,
    /// The key of the arguments.
    pub arguments: &'static str,
    /// Whether calls are the items of a list.
    pub is_list: bool,
}

/// How the name of a call is written.
#[derive(Debug, PartialEq, Eq)]
pub struct NamedCall {
    /// What ends the name; the first that appears. A mark of the arguments or of the call's end is not consumed.
    pub name_ends: &'static [&'static str],
    /// Where the call's id stands, if it is written.
    pub id: CallId,
}

/// Where a call's id is written.
#[derive(Debug, PartialEq, Eq)]
pub enum CallId {
    /// It is not.
    None,
    /// Before the name, up to this mark.
    Before(&'static str),
    /// Behind the name: the marks before and behind it.
    Behind(&'static str, &'static str),
    /// It is the name's: `functions.NAME:INDEX`.
    InName,
    /// Attributes that are skipped up to this mark.
    Skipped(&'static str),
}

/// The marks of an argument.
#[derive(Debug, PartialEq, Eq)]
pub struct ArgumentTags {
    /// Begins the key.
    pub key: &'static str,
    /// What ends the key, and what that says of the value's type; the first that appears.
    pub key_ends: &'static [(&'static str, ValueType)],
    /// Begins the value, if that has a mark of its own.
    pub value: &'static str,
    /// Ends the value.
    pub value_end: &'static str,
    /// Whether a value stands on lines of its own: the line breaks around it are not part of it.
    pub on_lines: bool,
}

/// The marks of arguments that are elements.
#[derive(Debug, PartialEq, Eq)]
pub struct ElementTags {
    /// Stands before each `<` of a tag.
    pub prefix: &'static str,
    /// The name of a list's items.
    pub item: &'static str,
}

/// What a notation says of a value's type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueType {
    /// Nothing: the tool's schema decides.
    BySchema,
    /// It is a string.
    Text,
    /// It is JSON.
    Json,
}

/// An answer that is a sequence of messages.
#[derive(Debug)]
pub struct MessageFormat {
    /// The name of the format, for logs and errors.
    pub name: &'static str,
    /// Begins a message's header. The prompt ends with it.
    pub start: &'static str,
    /// Ends the header.
    pub header_end: &'static str,
    /// What may end a message, beside the start of the next.
    pub ends: &'static [&'static str],
    /// What a header begins with; an answer that begins otherwise is text without a header.
    pub header_begins: &'static [&'static str],
    /// What a header says of its message.
    pub route: fn(&str) -> Route,
    /// How calls are written in a message to a tool; `None`: the message is the arguments.
    pub calls: Option<&'static Notation>,
    /// The headers as a model writes them, for grammars.
    pub headers: MessageHeaders,
}

/// The headers of the kinds of messages, from the start of a message to the end of the header.
#[derive(Debug)]
pub struct MessageHeaders {
    /// Of reasoning, if messages carry it.
    pub reasoning: Option<&'static str>,
    /// Of text for the user.
    pub text: &'static str,
    /// Of a call: what stands before and behind the function's name.
    pub call: Marks,
}

/// What a message is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// Reasoning.
    Reasoning,
    /// Text for the user.
    Text,
    /// A call of this function.
    Call(String),
}

/// Formats are told apart by name.
impl PartialEq for MessageFormat {
    fn eq(&self, other: &MessageFormat) -> bool {
        self.name == other.name
    }
}

impl Eq for MessageFormat {}
