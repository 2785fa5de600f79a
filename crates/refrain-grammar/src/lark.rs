//! Checks grammars in Lark notation, and prepares the schemas in them.

use serde_json::Value;

use crate::error::GrammarError;
use crate::limits::{MAX_NESTING, MAX_RULES};
use crate::schema::{self, IgnoredKeyword};
use crate::{grammar, regex};

/// A user's grammar, checked.
pub(crate) struct CheckedLark {
    /// The grammar, with schemas that the library compiles.
    pub text: String,
    /// Keywords of its schemas that are not enforced.
    pub ignored: Vec<IgnoredKeyword>,
}

/// Checks a grammar's nesting, its number of rules and its regular expressions.
///
/// # Errors
/// If it exceeds a limit, or a schema in it is invalid.
pub(crate) fn check(lark: &str) -> Result<CheckedLark, GrammarError> {
    let mut scan = Scan::default();
    scan.read(lark)?;
    if scan.max_depth > MAX_NESTING {
        return Err(GrammarError::new(format!(
            "grammar nesting exceeds {MAX_NESTING} levels"
        )));
    }
    if scan.rules > MAX_RULES {
        let why = format!(
            "the grammar has {} rules, more than the limit of {MAX_RULES}",
            scan.rules
        );
        return Err(GrammarError::new(why));
    }
    Ok(CheckedLark {
        text: scan.text,
        ignored: scan.ignored,
    })
}

/// What has been read of a grammar.
#[derive(Default)]
struct Scan {
    text: String,
    depth: usize,
    max_depth: usize,
    rules: usize,
    ignored: Vec<IgnoredKeyword>,
}

impl Scan {
    fn read(&mut self, lark: &str) -> Result<(), GrammarError> {
        let mut at = 0;
        while let Some(letter) = lark[at..].chars().next() {
            let rest = &lark[at..];
            let end = match letter {
                '#' => line_end(rest),
                '/' if rest.starts_with("//") => line_end(rest),
                '"' => literal_end(rest, '"'),
                '/' => {
                    let end = literal_end(rest, '/');
                    self.check_regex(&rest[..end])?;
                    end
                }
                '%' if rest.starts_with("%json") => self.schema(rest)?,
                _ => {
                    self.count(letter);
                    letter.len_utf8()
                }
            };
            if !rest.starts_with("%json") {
                self.text.push_str(&rest[..end]);
            }
            at += end;
        }
        Ok(())
    }

    fn count(&mut self, letter: char) {
        match letter {
            '(' | '[' | '{' => {
                self.depth += 1;
                self.max_depth = self.max_depth.max(self.depth);
            }
            ')' | ']' | '}' => self.depth = self.depth.saturating_sub(1),
            ':' if self.depth == 0 => self.rules += 1,
            _ => {}
        }
    }

    /// Reads `%json` and the schema behind it. Returns its length.
    fn schema(&mut self, rest: &str) -> Result<usize, GrammarError> {
        const MARK: &str = "%json";
        self.text.push_str(MARK);
        let behind = &rest[MARK.len()..];
        let mut values = serde_json::Deserializer::from_str(behind).into_iter::<Value>();
        let Some(Ok(schema)) = values.next() else {
            // The library says what is wrong.
            return Ok(MARK.len());
        };
        let length = values.byte_offset();
        let prepared = schema::prepare(&schema).map_err(|why| why.about("a %json schema of the grammar"))?;
        let options = schema.get("x-guidance").cloned();
        self.text.push(' ');
        self.text
            .push_str(&grammar::embedded(prepared.schema, options).to_string());
        self.ignored.extend(prepared.ignored);
        Ok(MARK.len() + length)
    }

    /// Checks the size of a regular expression. The library says whether it is valid.
    fn check_regex(&self, literal: &str) -> Result<(), GrammarError> {
        let inner = literal.trim_matches('/').replace("\\/", "/");
        match regex::check(&inner) {
            Err(regex::RegexProblem::TooLarge(why)) => Err(GrammarError::new(why)),
            _ => Ok(()),
        }
    }
}

/// Returns the length of the text up to the end of its first line.
pub(crate) fn line_end(text: &str) -> usize {
    text.find('\n').unwrap_or(text.len())
}

/// Returns the length of a literal with its marks. A literal ends at its line's end at the latest.
pub(crate) fn literal_end(text: &str, mark: char) -> usize {
    let mut is_escaped = false;
    for (at, letter) in text.char_indices().skip(1) {
        match letter {
            '\n' => return at,
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            _ if letter == mark => return at + letter.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scanned(lark: &str) -> (usize, usize) {
        let mut scan = Scan::default();
        scan.read(lark).unwrap();
        (scan.max_depth, scan.rules)
    }

    #[test]
    fn refuses_deep_nesting_and_many_rules_outside_of_literals() {
        let grouped = |groups: usize| format!("start: {}\"a\"{}", "(".repeat(groups), ")".repeat(groups));
        assert!(check(&grouped(MAX_NESTING)).is_ok());
        let refused = check(&grouped(MAX_NESTING + 1)).err().unwrap();
        assert!(refused.to_string().contains("nesting exceeds"), "{refused}");
        assert!(check(&format!("# /\n{}", grouped(1000))).is_err());
        let many = |rules: usize| "r: \"a:\"\n".repeat(rules);
        assert!(check(&many(MAX_RULES)).is_ok() && check(&many(MAX_RULES + 1)).is_err());
        let text = "start: \"\\\"(((\" /\\/(([(/ \"b\" // ((\n# [[\n".repeat(100);
        assert_eq!(scanned(&text), (0, 100));
    }

    #[test]
    fn schemas_in_a_grammar_are_prepared() {
        let checked = check("start: \"{:\" x\nx: %json {\"type\": \"array\", \"uniqueItems\": true} \"y\"\n").unwrap();
        assert_eq!(checked.text, "start: \"{:\" x\nx: %json {\"type\":\"array\"} \"y\"\n");
        assert_eq!(checked.ignored[0].to_string(), "uniqueItems");
    }

    #[test]
    fn refuses_a_large_regular_expression() {
        let refused = check(&format!("start: /{}/", "a?".repeat(5_000))).err().unwrap();
        assert!(refused.to_string().contains("optional parts"), "{refused}");
    }
}
