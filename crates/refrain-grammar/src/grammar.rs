//! What a text may be.

use serde_json::{Value, json};

/// The most bytes of a grammar.
const MOST_BYTES: usize = 256 << 10;
/// How deep its groups lie at most, and how many rules it has: more would take more stack than there is.
const MOST_GROUPS: usize = 150;
const MOST_RULES: usize = 500;
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
            Grammar::Lark(grammar) if grammar.contains("::=") => {
                let why = "this is GBNF; write it in Lark's notation, which begins with `start: …`";
                return Err(GrammarError(why.to_owned()));
            }
            Grammar::Lark(grammar) => grammar.clone(),
            Grammar::Choice(choices) if choices.is_empty() => String::new(),
            other => other
                .expansion()?
                .map_or_else(String::new, |expansion| format!("start: {expansion}")),
        };
        let (groups, rules) = match self {
            Grammar::Lark(grammar) => groups_and_rules(grammar),
            _ => (0, 0),
        };
        let why = match lark.trim().len() {
            0 => "there is nothing that a text might be".to_owned(),
            bytes if bytes > MOST_BYTES => format!("the grammar has {bytes} bytes, {MOST_BYTES} are the most"),
            _ if groups > MOST_GROUPS => format!("the grammar's groups lie deeper than {MOST_GROUPS} in each other"),
            _ if rules > MOST_RULES => format!("the grammar has more than {MOST_RULES} rules"),
            _ => return Ok(lark),
        };
        Err(GrammarError(why))
    }
}

impl Grammar {
    /// What a rule stands for that is this; a grammar of several rules is none.
    ///
    /// # Errors
    /// What is no schema.
    pub(crate) fn expansion(&self) -> Result<Option<String>, GrammarError> {
        Ok(Some(match self {
            Grammar::JsonObject => json_rule(&json!({"type": "object"}))?,
            Grammar::JsonSchema(schema) => json_rule(schema)?,
            Grammar::Regex(regex) => format!("/{}/", llguidance::regex_to_lark(regex, "")),
            Grammar::Choice(choices) => {
                let literals: Vec<String> = choices.iter().map(|choice| literal(choice)).collect();
                literals.join(" | ")
            }
            Grammar::Lark(_) => return Ok(None),
        }))
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

/// How deep a grammar's groups lie in each other, and how many rules it has; what is in its strings, regular expressions and
/// comments is neither.
fn groups_and_rules(lark: &str) -> (usize, usize) {
    let (mut now, mut most, mut rules) = (0usize, 0, 0);
    let mut quote = None;
    let mut letters = lark.chars().peekable();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (_, '\n') => quote = None,
            (Some('"' | '/'), '\\') => drop(letters.next()),
            (Some(end), _) if letter == end => quote = None,
            (Some(_), _) => {}
            (None, '/') if letters.peek() == Some(&'/') => quote = Some('\n'),
            (None, '#') => quote = Some('\n'),
            (None, '"' | '/') => quote = Some(letter),
            (None, '(' | '[' | '{') => {
                now += 1;
                most = most.max(now);
            }
            (None, ')' | ']' | '}') => now = now.saturating_sub(1),
            (None, ':') if now == 0 => rules += 1,
            (None, _) => {}
        }
    }
    (most, rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_deep_groups_and_too_many_rules_are_refused_and_what_is_text_is_neither() {
        let grouped = |groups: usize| format!("start: {}\"a\"{}", "(".repeat(groups), ")".repeat(groups));
        assert!(Grammar::Lark(grouped(MOST_GROUPS)).lark().is_ok());
        let refused = Grammar::Lark(grouped(MOST_GROUPS + 1)).lark().unwrap_err();
        assert!(refused.to_string().contains("deeper than"), "{refused}");
        assert!(Grammar::Lark(format!("# /\n{}", grouped(1000))).lark().is_err());
        let many = |rules: usize| "r: \"a:\"\n".repeat(rules);
        assert!(Grammar::Lark(many(MOST_RULES)).lark().is_ok() && Grammar::Lark(many(MOST_RULES + 1)).lark().is_err());
        let text = "start: \"\\\"(((\" /\\/(([(/ \"b\" // ((\n# [[\n".repeat(100);
        assert_eq!(groups_and_rules(&text), (0, 100));
    }
}
