//! A user's grammar of a text that is the only argument of a function: as dialects write texts, or as a string of JSON.

use regex_syntax::hir::{Class, ClassUnicode, ClassUnicodeRange, Hir, HirKind, Repetition};
use serde_json::Value;

use crate::lark::{line_end, literal_end};
use crate::{Grammar, GrammarError, grammar};

/// The grammar of a text, in Lark notation.
pub(crate) struct TextGrammar(String);

impl TextGrammar {
    /// Reads a grammar in Lark notation or a regular expression.
    ///
    /// # Errors
    /// If it is neither, or is invalid.
    pub fn of(grammar: &Grammar) -> Result<TextGrammar, GrammarError> {
        match grammar {
            Grammar::Lark(_) | Grammar::Regex(_) => Ok(TextGrammar(grammar.lark()?)),
            _ => Err(GrammarError::new("a text needs a grammar or a regular expression")),
        }
    }

    /// An expression for the text as it is.
    pub fn plain(&self) -> String {
        nested(&self.0)
    }

    /// An expression for the text as a string of JSON.
    ///
    /// # Errors
    /// If the grammar has parts that cannot be escaped.
    pub fn json(&self) -> Result<String, GrammarError> {
        Ok(format!("\"\\\"\" {} \"\\\"\"", nested(&escaped_grammar(&self.0)?)))
    }
}

fn nested(lark: &str) -> String {
    format!("%lark {{\n{lark}\n}}")
}

/// What a string of JSON writes otherwise. Further control characters have escapes that no model writes.
const ESCAPES: [(char, &str); 7] = [
    ('"', "\\\""),
    ('\\', "\\\\"),
    ('\n', "\\n"),
    ('\r', "\\r"),
    ('\t', "\\t"),
    ('\u{8}', "\\b"),
    ('\u{c}', "\\f"),
];

/// The terminals of Lark's library that contain letters which JSON escapes.
const COMMON: [(&str, &str); 10] = [
    ("ESCAPED_STRING", r#""([^"\\]|\\.)*""#),
    ("WS_INLINE", r"[ \t]+"),
    ("WS", r"[ \t\f\r\n]+"),
    ("CR", r"\r"),
    ("LF", r"\n"),
    ("NEWLINE", r"(\r?\n)+"),
    ("SH_COMMENT", r"#[^\n]*"),
    ("CPP_COMMENT", r"//[^\n]*"),
    ("C_COMMENT", r"/\*[^*]*\*+([^/*][^*]*\*+)*/"),
    ("SQL_COMMENT", r"--[^\n]*"),
];

/// Returns a grammar of the texts as strings of JSON have them between their quotes.
fn escaped_grammar(lark: &str) -> Result<String, GrammarError> {
    let mut text = String::new();
    let mut rest = lark;
    while let Some(letter) = rest.chars().next() {
        let length = match letter {
            '#' => line_end(rest),
            '/' if rest.starts_with("//") => line_end(rest),
            '"' => {
                let (expression, length) = escaped_literal(rest)?;
                text.push_str(&expression);
                length
            }
            '/' => {
                let end = literal_end(rest, '/');
                let flags = rest[end..].bytes().take_while(u8::is_ascii_lowercase).count();
                let pattern = rest[..end].trim_matches('/').replace("\\/", "/");
                text.push_str(&escaped_regex(&pattern, &rest[end..end + flags])?);
                end + flags
            }
            '%' if rest.starts_with("%import") => {
                let length = line_end(rest);
                text.push_str(&imported(&rest[..length])?);
                length
            }
            '%' if ["%json", "%regex", "%llguidance"]
                .iter()
                .any(|word| rest.starts_with(word)) =>
            {
                let word: String = rest.chars().take_while(|c| !c.is_whitespace() && *c != '{').collect();
                return Err(GrammarError::new(format!(
                    "{word} cannot stand in the grammar of a tool's text"
                )));
            }
            _ => {
                text.push(letter);
                letter.len_utf8()
            }
        };
        rest = &rest[length..];
    }
    Ok(text)
}

/// Returns the expression for a literal, or a range of letters, at the beginning of a text, and its length there.
fn escaped_literal(rest: &str) -> Result<(String, usize), GrammarError> {
    let mut end = literal_end(rest, '"');
    let first = literal_text(&rest[..end])?;
    let behind = rest[end..].trim_start_matches(' ');
    if let Some(second) = behind.strip_prefix("..") {
        let second = second.trim_start_matches(' ');
        let length = literal_end(second, '"');
        let last = literal_text(
            second
                .get(..length)
                .filter(|text| text.starts_with('"'))
                .unwrap_or_default(),
        )?;
        let [first, last] = [first, last].map(|text| regex_syntax::escape(&text));
        let expression = escaped_regex(&format!("[{first}-{last}]"), "")?;
        return Ok((expression, rest.len() - second.len() + length));
    }
    if rest[end..].starts_with('i') {
        end += 1;
        return Ok((escaped_regex(&regex_syntax::escape(&first), "i")?, end));
    }
    Ok((grammar::literal(&escaped_text(&first)), end))
}

/// Returns the text of a literal, which has JSON's escapes, and `\xHH`.
fn literal_text(literal: &str) -> Result<String, GrammarError> {
    let mut json = String::new();
    let mut letters = literal.chars();
    while let Some(letter) = letters.next() {
        json.push(letter);
        if letter == '\\' {
            match letters.next() {
                Some('x') => json.push_str("u00"),
                other => json.extend(other),
            }
        }
    }
    let text = serde_json::from_str(&json);
    text.map_err(|why| GrammarError::new(format!("the grammar's literal {literal}: {why}")))
}

/// Returns a text as a string of JSON has it between its quotes.
fn escaped_text(text: &str) -> String {
    let json = Value::from(text).to_string();
    json[1..json.len() - 1].to_owned()
}

/// Returns terminals of Lark's library, which `%import` names: those that JSON escapes as definitions.
fn imported(line: &str) -> Result<String, GrammarError> {
    let names = line.trim_start_matches("%import").trim();
    let Some(names) = names.strip_prefix("common") else {
        return Ok(line.to_owned());
    };
    let names = names.trim_start_matches(['.', ' ']);
    let (names, alias) = match names.split_once("->") {
        Some((name, alias)) => (name, Some(alias.trim())),
        None => (names, None),
    };
    let one = |name: &str| match COMMON.iter().find(|(known, _)| *known == name) {
        Some((_, pattern)) => Ok(format!("{}: {}", alias.unwrap_or(name), escaped_regex(pattern, "")?)),
        None => Ok(format!(
            "%import common.{name}{}",
            alias.map_or(String::new(), |alias| format!(" -> {alias}"))
        )),
    };
    let names = names.trim().trim_start_matches('(').trim_end_matches(')');
    let lines = names.split(',').map(|name| one(name.trim()));
    Ok(lines.collect::<Result<Vec<_>, GrammarError>>()?.join("\n"))
}

/// Returns a regular expression for what it matches as JSON escapes it, in Lark notation.
fn escaped_regex(pattern: &str, flags: &str) -> Result<String, GrammarError> {
    let parsed = regex_syntax::ParserBuilder::new()
        .case_insensitive(flags.contains('i'))
        .dot_matches_new_line(flags.contains('s'))
        .ignore_whitespace(flags.contains('x'))
        .build()
        .parse(pattern);
    let tree = parsed.map_err(|why| GrammarError::new(format!("unsupported regular expression: {why}")))?;
    let escaped = escaped_tree(&tree)?.to_string();
    Ok(format!("/{}/", llguidance::regex_to_lark(&escaped, "")))
}

fn escaped_tree(tree: &Hir) -> Result<Hir, GrammarError> {
    let all = |parts: &[Hir]| parts.iter().map(escaped_tree).collect::<Result<Vec<_>, _>>();
    let unsupported = || GrammarError::new("unsupported regular expression: it matches bytes that are no text");
    Ok(match tree.kind() {
        HirKind::Empty | HirKind::Look(_) => tree.clone(),
        HirKind::Literal(literal) => {
            let text = std::str::from_utf8(&literal.0).map_err(|_| unsupported())?;
            Hir::literal(escaped_text(text).into_bytes())
        }
        HirKind::Class(Class::Unicode(class)) => escaped_class(class),
        HirKind::Class(Class::Bytes(class)) => escaped_class(&class.to_unicode_class().ok_or_else(unsupported)?),
        HirKind::Repetition(repetition) => Hir::repetition(Repetition {
            sub: Box::new(escaped_tree(&repetition.sub)?),
            ..repetition.clone()
        }),
        HirKind::Capture(capture) => escaped_tree(&capture.sub)?,
        HirKind::Concat(parts) => Hir::concat(all(parts)?),
        HirKind::Alternation(parts) => Hir::alternation(all(parts)?),
    })
}

/// Returns an expression for one letter of a class.
fn escaped_class(class: &ClassUnicode) -> Hir {
    let escaped = ['"', '\\'].map(|letter| ClassUnicodeRange::new(letter, letter));
    let control = ClassUnicodeRange::new('\0', '\u{1f}');
    let mut plain = class.clone();
    plain.difference(&ClassUnicode::new(escaped.into_iter().chain([control])));
    let is_in_class = |letter: char| {
        let mut ranges = class.iter();
        ranges.any(|range| (range.start()..=range.end()).contains(&letter))
    };
    let escapes = ESCAPES.iter().filter(|(letter, _)| is_in_class(*letter));
    let mut options: Vec<Hir> = escapes.map(|(_, escape)| Hir::literal(escape.as_bytes())).collect();
    options.push(Hir::class(Class::Unicode(plain)));
    Hir::alternation(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminals_are_escaped_as_in_json() {
        for (given, escaped) in [
            (r#"start: "a\"b\\c" x"#, r#"start: "a\\\"b\\\\c" x"#),
            ("start: \"a\\n\" # comment\n", "start: \"a\\\\n\" \n"),
            ("start: A // comment", "start: A "),
            ("a: \"b\".\"c\"", "a: \"b\".\"c\""),
            ("%import common.INT\nLF: \"\"", "%import common.INT\nLF: \"\""),
        ] {
            assert_eq!(escaped_grammar(given).unwrap(), escaped, "{given}");
        }
        assert!(escaped_grammar("start: %json {}").is_err());
        assert!(escaped_grammar("start: \"\\q\"").is_err());
        assert!(escaped_grammar("start: /(?=a)/").is_err());
    }

    /// Whether an escaped expression matches a text as a whole.
    fn matches(pattern: &str, flags: &str, text: &str) -> bool {
        let lark = escaped_regex(pattern, flags).unwrap();
        let pattern = lark[1..lark.len() - 1].replace("\\/", "/");
        regex::Regex::new(&format!("^(?:{pattern})$")).unwrap().is_match(text)
    }

    #[test]
    fn regular_expressions_match_escaped_texts() {
        for (pattern, flags, text) in [
            (".+", "", "a\"b\\c\té"),
            ("[^\\n]*", "", "a\t\"\\"),
            ("(.|\\n)*", "", "a\nb"),
            (".*", "s", "a\r\nb"),
            ("abc", "i", "aBC"),
            (r#""(\\.|[^"\\])*""#, "", r#""a\"b""#),
            ("[\\x00-\\x1f]", "", "\t"),
        ] {
            let escaped = escaped_text(text);
            assert!(matches(pattern, flags, &escaped), "{pattern} {escaped}");
        }
        assert!(!matches(".+", "", "a\\nb"));
        assert!(!matches("[^\\n]*", "", "a\\nb"));
        assert!(!matches(".+", "", "a\"b"), "an unescaped quote ends the string");
    }
}
