//! Grammars of answers in a model's dialect: tool calls, text of a form, or either.
//!
//! The rules follow from the records of [`refrain_text::dialects`]: what a grammar admits, the dialect's reader reads.

use std::collections::HashMap;

use refrain_text::Tokenizer;
use refrain_text::dialects::Dialect;
use serde_json::Value;

use crate::call_rules::Extent;
use crate::grammar::{LarkRules, check_bytes, json_rule, literal};
use crate::limits::MAX_PROPERTIES;
use crate::schema::IgnoredKeyword;
use crate::{Grammar, GrammarError};

/// A function that a model may call.
#[derive(Debug, Clone, Copy)]
pub struct CallableFunction<'a> {
    /// The function's name.
    pub name: &'a str,
    /// The JSON schema of its arguments, if it has any.
    pub parameters: Option<&'a Value>,
    /// Whether calls that the model begins by itself must match the schema. Otherwise their arguments are any JSON
    /// object, or what else the dialect can write. Calls that are forced always match.
    pub strict: bool,
    /// The grammar of its only argument, a [`Grammar::Lark`] or [`Grammar::Regex`], if that is a text of some form.
    pub input: Option<&'a Grammar>,
}

/// What an answer may be.
#[derive(Debug, Clone, Copy)]
pub struct AnswerForm<'a> {
    /// How the model writes calls and text.
    pub dialect: &'a Dialect,
    /// The functions that may be called.
    pub functions: &'a [CallableFunction<'a>],
    /// Whether more than one call is allowed.
    pub several: bool,
    /// The form of a text that may come instead of calls.
    pub text: Option<&'a Grammar>,
}

/// A grammar of answers in a model's dialect.
#[derive(Debug, Clone, PartialEq)]
pub struct AnswerGrammar {
    lark: String,
    ignored: Vec<IgnoredKeyword>,
}

impl AnswerGrammar {
    /// The keywords of the functions' schemas that are not enforced.
    pub fn ignored(&self) -> &[IgnoredKeyword] {
        &self.ignored
    }

    pub(crate) fn rules(&self) -> LarkRules {
        LarkRules {
            lark: self.lark.clone(),
            ignored: self.ignored.clone(),
        }
    }
}

/// The special tokens of a tokenizer, which grammars name by their ids.
#[derive(Debug, Clone, Default)]
pub struct SpecialTokens(Vec<(String, u32)>);

impl SpecialTokens {
    /// The special tokens of a tokenizer.
    pub fn of(tokenizer: &Tokenizer) -> SpecialTokens {
        let tokens = tokenizer.vocabulary().into_iter().zip(0..).filter_map(|(token, id)| {
            let token = token.filter(|token| token.is_special)?;
            Some((String::from_utf8(token.bytes).ok()?, id))
        });
        SpecialTokens(tokens.filter(|(text, _)| !text.is_empty()).collect())
    }

    /// Special tokens with their ids.
    pub fn from_pairs(tokens: Vec<(String, u32)>) -> SpecialTokens {
        SpecialTokens(tokens)
    }

    /// Returns an expression for a text in which special tokens may stand. Empty text is an empty expression.
    pub(crate) fn expression(&self, text: &str) -> String {
        let mut parts = vec![];
        let mut plain = String::new();
        let mut rest = text;
        while let Some(letter) = rest.chars().next() {
            let special = self.0.iter().filter(|(token, _)| rest.starts_with(token.as_str()));
            if let Some((token, id)) = special.max_by_key(|(token, _)| token.len()) {
                if !plain.is_empty() {
                    parts.push(literal(&std::mem::take(&mut plain)));
                }
                parts.push(format!("<[{id}]>"));
                rest = &rest[token.len()..];
            } else {
                plain.push(letter);
                rest = &rest[letter.len_utf8()..];
            }
        }
        if !plain.is_empty() {
            parts.push(literal(&plain));
        }
        parts.join(" ")
    }

    /// Whether a text begins with a special token.
    pub(crate) fn begins(&self, text: &str) -> bool {
        self.0.iter().any(|(token, _)| text.starts_with(token.as_str()))
    }
}

impl AnswerForm<'_> {
    /// Returns the grammar of such answers, a [`Grammar::Answer`].
    ///
    /// # Errors
    /// If a schema is invalid or exceeds a limit; the error names the function. If the dialect has no calls.
    pub fn grammar(&self, special: &SpecialTokens) -> Result<Grammar, GrammarError> {
        let text = self.text.map(Grammar::expansion).transpose()?.flatten();
        let mut rules = Rules::new(special);
        let mut alternatives = vec![];
        let notation = self.dialect.calls;
        if !self.functions.is_empty() {
            alternatives.push(match (self.dialect.messages, notation) {
                (Some(format), _) => self.messages(&mut rules, format, Extent::Answer)?,
                (None, Some(notation)) => self.calls(&mut rules, notation, Extent::Answer)?,
                (None, None) => return Err(GrammarError::new("this model's template has no tool calls")),
            });
        }
        if let Some(text) = text {
            rules.ignored.extend(text.ignored);
            let form = rules.add(&text.text);
            let marks = notation.and_then(|notation| notation.text);
            let [open, close] = match (self.dialect.messages, marks) {
                (Some(format), _) => [format.headers.text, ""],
                (None, Some(marks)) => [marks.open, marks.close],
                (None, None) => ["", ""],
            };
            let parts = [special.expression(open), form, special.expression(close)];
            alternatives.push(rules.add(&joined(&parts)));
        }
        if alternatives.is_empty() {
            return Err(GrammarError::new("neither functions nor a form are given"));
        }
        let reasoning = self
            .dialect
            .messages
            .and_then(|format| Some((format, format.headers.reasoning?)));
        let reasoning = reasoning.map_or(String::new(), |(format, header)| {
            let end = format.ends[0];
            let text = rules.text_until(end);
            let message = joined(&[special.expression(header), text, special.expression(format.start)]);
            format!("({message})?")
        });
        let start = joined(&[reasoning, format!("({})", alternatives.join(" | "))]);
        let LarkRules { lark, ignored } = rules.finish(&start)?;
        Ok(Grammar::Answer(AnswerGrammar { lark, ignored }))
    }
}

/// The rules of a grammar that is being made.
pub(crate) struct Rules<'s> {
    pub special: &'s SpecialTokens,
    rules: Vec<String>,
    count: usize,
    /// Properties of all functions.
    properties: usize,
    ignored: Vec<IgnoredKeyword>,
    /// Rules for JSON by their expressions: functions may share one.
    json: HashMap<String, String>,
}

impl<'s> Rules<'s> {
    pub fn new(special: &'s SpecialTokens) -> Rules<'s> {
        Rules {
            special,
            rules: vec![],
            count: 0,
            properties: 0,
            ignored: vec![],
            json: HashMap::new(),
        }
    }

    /// Returns the grammar that begins with the expression `start`.
    ///
    /// # Errors
    /// If it is too long.
    pub fn finish(self, start: &str) -> Result<LarkRules, GrammarError> {
        let mut all = vec![format!("start: {start}")];
        all.extend(self.rules);
        let lark = all.join("\n");
        check_bytes(lark.len())?;
        Ok(LarkRules {
            lark,
            ignored: self.ignored,
        })
    }

    /// Adds a rule and returns its name. An expression that is empty or a name is no rule.
    pub fn add(&mut self, expression: &str) -> String {
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if expression.is_empty() || expression.chars().all(is_name) {
            return expression.to_owned();
        }
        let name = self.name();
        self.rules.push(format!("{name}: {expression}"));
        name
    }

    /// Adds a rule for JSON that matches the part at `path` of the schema `whole` of a function's arguments.
    pub fn json(&mut self, function: &str, whole: &Value, part: &Value, path: &str) -> Result<String, GrammarError> {
        let expansion = json_rule(whole, part, path);
        let expansion = expansion.map_err(|why| why.about(&format!("the parameters of {function:?}")))?;
        self.count_properties(expansion.properties)?;
        self.ignored.extend(
            expansion
                .ignored
                .into_iter()
                .map(|ignored| ignored.of_function(function)),
        );
        if let Some(name) = self.json.get(&expansion.text) {
            return Ok(name.clone());
        }
        let name = self.add(&expansion.text);
        self.json.insert(expansion.text, name.clone());
        Ok(name)
    }

    /// Counts properties of functions.
    ///
    /// # Errors
    /// If all functions together have too many.
    pub fn count_properties(&mut self, count: usize) -> Result<(), GrammarError> {
        self.properties += count;
        if self.properties > MAX_PROPERTIES {
            let why = format!("the functions have more than {MAX_PROPERTIES} properties together");
            return Err(GrammarError::new(why));
        }
        Ok(())
    }

    fn name(&mut self) -> String {
        self.count += 1;
        format!("r{}", self.count)
    }

    /// Adds a rule for any text up to `end`, and `end`.
    pub fn text_until(&mut self, end: &str) -> String {
        let plain = end.trim_start_matches('\n');
        if self.special.begins(plain) {
            // No text contains a special token.
            return joined(&["/(?s:.*)/".to_owned(), self.special.expression(plain)]);
        }
        let name = self.name();
        self.rules.push(format!("{name}[suffix={}]: /(?s:.*)/", literal(end)));
        name
    }
}

/// Joins expressions to a sequence; empty ones are left out.
pub(crate) fn joined(parts: &[String]) -> String {
    let parts: Vec<&str> = parts
        .iter()
        .map(String::as_str)
        .filter(|part| !part.is_empty())
        .collect();
    parts.join(" ")
}
