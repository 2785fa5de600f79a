//! What a text may be.

use serde_json::{Value, json};

/// The most bytes of a grammar.
const MOST_BYTES: usize = 256 << 10;
/// Between parts of JSON: a space, or a new line with some indentation. Small models would fill pages with more.
const BLANKS: &str = r" |\n[ \t]{0,20}";

/// What a text may be.
#[derive(Debug, Clone, PartialEq)]
pub enum Grammar {
    /// A JSON object.
    JsonObject,
    /// JSON of a schema.
    JsonSchema(Value),
    /// What a grammar in Lark's notation describes, with llguidance's extensions.
    Lark(String),
    /// What a regular expression matches as a whole.
    Regex(String),
    /// One of these.
    Choice(Vec<String>),
}

/// What is wrong with a grammar.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct GrammarError(String);

impl GrammarError {
    /// What the library says, in a line, without the excerpts that it shows.
    pub(crate) fn of(error: impl std::fmt::Display) -> GrammarError {
        let text = error.to_string();
        let is_excerpt = |line: &str| {
            line.trim_start()
                .split_once(" | ")
                .is_some_and(|(at, _)| at.parse::<u32>().is_ok())
        };
        let lines = text
            .lines()
            .take_while(|line| !is_excerpt(line) && !line.starts_with("<backtrace>"));
        let said: Vec<&str> = lines.flat_map(str::split_whitespace).collect();
        GrammarError(said.join(" ").chars().take(500).collect())
    }

    /// The same of a grammar that was made of something else: where in it is nothing to whoever asked.
    pub(crate) fn without_place(self) -> GrammarError {
        match self.0.split_once("): ") {
            Some((place, rest)) if place.starts_with("at ") => GrammarError(rest.to_owned()),
            _ => self,
        }
    }
}

impl Grammar {
    /// The same in Lark's notation.
    ///
    /// # Errors
    /// What is no grammar, or too large.
    pub fn lark(&self) -> Result<String, GrammarError> {
        let lark = match self {
            Grammar::JsonObject => format!("start: {}", json_rule(&json!({"type": "object"}))?),
            Grammar::JsonSchema(schema) => format!("start: {}", json_rule(schema)?),
            Grammar::Lark(grammar) if grammar.contains("::=") => {
                let why = "this is GBNF; write it in Lark's notation, which begins with `start: …`";
                return Err(GrammarError(why.to_owned()));
            }
            Grammar::Lark(grammar) => grammar.clone(),
            Grammar::Choice(choices) if choices.is_empty() => String::new(),
            Grammar::Regex(regex) => format!("start: /{}/", llguidance::regex_to_lark(regex, "")),
            Grammar::Choice(choices) => {
                let literals: Vec<String> = choices.iter().map(|choice| literal(choice)).collect();
                format!("start: {}", literals.join(" | "))
            }
        };
        match lark.trim().len() {
            0 => Err(GrammarError("there is nothing that a text might be".to_owned())),
            1..=MOST_BYTES => Ok(lark),
            bytes => {
                let why = format!("the grammar has {bytes} bytes, {MOST_BYTES} are the most");
                Err(GrammarError(why))
            }
        }
    }
}

/// A rule for JSON of a schema.
pub(crate) fn json_rule(schema: &Value) -> Result<String, GrammarError> {
    let mut schema = schema.clone();
    match &mut schema {
        Value::Object(schema) => {
            schema.insert("x-guidance".to_owned(), json!({"whitespace_pattern": BLANKS}));
        }
        Value::Bool(_) => {}
        _ => return Err(GrammarError("a JSON schema is an object".to_owned())),
    }
    Ok(format!("%json {schema}"))
}

/// A rule for a text.
pub(crate) fn literal(text: &str) -> String {
    Value::from(text).to_string()
}
