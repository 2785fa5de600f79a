//! Grammars and their translation to Lark notation.

use serde_json::{Map, Value, json};

use refrain_text::dialects::Dialect;

use crate::answer::{AnswerForm, AnswerGrammar, SpecialTokens};
use crate::call_grammar::CallGrammar;
use crate::error::{GrammarError, NO_VALUE};
use crate::limits::{MAX_BYTES, MAX_LITERALS};
use crate::schema::{self, IgnoredKeyword};
use crate::{lark, regex};

/// White space in JSON: a space, or a new line with some indentation. Small models would fill pages with more.
const WHITE_SPACE: &str = r" |\n[ \t]{0,20}";

/// A set of allowed texts.
#[derive(Debug, Clone, PartialEq)]
pub enum Grammar {
    /// Any JSON object.
    JsonObject,
    /// JSON that matches a schema.
    JsonSchema(Value),
    /// A grammar in Lark notation, with llguidance's extensions.
    Lark(String),
    /// Texts that match a regular expression as a whole.
    Regex(String),
    /// One of these texts.
    Choice(Vec<String>),
    /// Answers in a model's dialect, by [`AnswerForm`](crate::AnswerForm).
    Answer(AnswerGrammar),
    /// Free text in which calls may begin, by [`AnswerForm::call_grammar`](crate::AnswerForm::call_grammar).
    Calls(CallGrammar),
}

/// A grammar in Lark notation that the library compiles.
#[derive(Debug)]
pub(crate) struct LarkRules {
    pub lark: String,
    /// Keywords of its schemas that are not enforced.
    pub ignored: Vec<IgnoredKeyword>,
}

/// The right-hand side of a rule.
pub(crate) struct Expansion {
    pub text: String,
    pub ignored: Vec<IgnoredKeyword>,
    /// Number of properties of its schema.
    pub properties: usize,
}

impl Grammar {
    /// Translates the grammar to Lark notation.
    ///
    /// # Errors
    /// If the grammar is invalid, empty or too large.
    pub fn lark(&self) -> Result<String, GrammarError> {
        Ok(self.rules()?.lark)
    }

    /// Translates the grammar to Lark notation, and lists the keywords of its schemas that are not enforced.
    ///
    /// # Errors
    /// If the grammar is invalid, empty or too large.
    pub(crate) fn rules(&self) -> Result<LarkRules, GrammarError> {
        let rules = match self {
            Grammar::Lark(grammar) => lark_rules(grammar)?,
            Grammar::Answer(grammar) => grammar.rules(),
            Grammar::Calls(grammar) => grammar.rules(),
            Grammar::Choice(choices) if choices.is_empty() => return Err(GrammarError::new(NO_VALUE)),
            other => match other.expansion()? {
                Some(expansion) => LarkRules {
                    lark: format!("start: {}", expansion.text),
                    ignored: expansion.ignored,
                },
                None => return Err(GrammarError::new(NO_VALUE)),
            },
        };
        check_length(&rules.lark)?;
        Ok(rules)
    }

    /// Returns the grammar of answers in a dialect whose text has this form: what the dialect writes around text
    /// belongs to it.
    ///
    /// # Errors
    /// If the grammar is invalid, empty or too large.
    pub fn in_dialect(self, dialect: &Dialect, special: &SpecialTokens) -> Result<Grammar, GrammarError> {
        if !dialect.wraps_text() {
            return Ok(self);
        }
        let form = AnswerForm {
            dialect,
            functions: &[],
            several: false,
            text: Some(&self),
        };
        form.grammar(special)
    }

    /// Returns the right-hand side of a rule for this grammar; `None` for grammars of answers.
    ///
    /// # Errors
    /// If a schema or regular expression is invalid.
    pub(crate) fn expansion(&self) -> Result<Option<Expansion>, GrammarError> {
        let text = match self {
            Grammar::JsonObject => {
                let object = json!({"type": "object"});
                return json_rule(&object, &object, "").map(Some);
            }
            Grammar::JsonSchema(schema) => return json_rule(schema, schema, "").map(Some),
            Grammar::Regex(pattern) => {
                regex::check(pattern).map_err(|problem| GrammarError::new(problem.message()))?;
                format!("/{}/", llguidance::regex_to_lark(pattern, ""))
            }
            Grammar::Choice(choices) => {
                let bytes = choices.iter().map(String::len).sum::<usize>();
                check_bytes(bytes)?;
                alternatives(choices.iter().map(String::as_str))
            }
            Grammar::Lark(grammar) => {
                let rules = lark_rules(grammar)?;
                return Ok(Some(Expansion {
                    text: format!("%lark {{\n{}\n}}", rules.lark),
                    ignored: rules.ignored,
                    properties: 0,
                }));
            }
            Grammar::Answer(_) | Grammar::Calls(_) => return Ok(None),
        };
        Ok(Some(Expansion {
            text,
            ignored: vec![],
            properties: 0,
        }))
    }
}

/// Checks a user's grammar.
///
/// # Errors
/// If it is empty, exceeds a limit, or is in another notation.
fn lark_rules(grammar: &str) -> Result<LarkRules, GrammarError> {
    if grammar.contains("::=") {
        let why = "this is GBNF; write it in Lark's notation, which begins with `start: …`";
        return Err(GrammarError::new(why));
    }
    check_length(grammar)?;
    let checked = lark::check(grammar)?;
    Ok(LarkRules {
        lark: checked.text,
        ignored: checked.ignored,
    })
}

fn check_length(lark: &str) -> Result<(), GrammarError> {
    if lark.trim().is_empty() {
        return Err(GrammarError::new(NO_VALUE));
    }
    check_bytes(lark.len())
}

/// # Errors
/// If a grammar has more than [`MAX_BYTES`].
pub(crate) fn check_bytes(bytes: usize) -> Result<(), GrammarError> {
    if bytes > MAX_BYTES {
        let why = format!("the grammar has {bytes} bytes, more than the limit of {MAX_BYTES}");
        return Err(GrammarError::new(why));
    }
    Ok(())
}

/// Returns a rule for JSON that matches the part of a schema at a path; references are resolved in the whole.
///
/// # Errors
/// If the schema is invalid, exceeds a limit or admits no value.
pub(crate) fn json_rule(whole: &Value, part: &Value, path: &str) -> Result<Expansion, GrammarError> {
    let prepared = schema::prepare_part(whole, part, path)?;
    let options = json!({"whitespace_pattern": WHITE_SPACE});
    let text = format!("%json {}", embedded(prepared.schema, Some(options)));
    check_bytes(text.len())?;
    Ok(Expansion {
        text,
        ignored: prepared.ignored,
        properties: prepared.properties,
    })
}

/// Adds the library's options to a prepared schema.
pub(crate) fn embedded(schema: Value, options: Option<Value>) -> Value {
    let mut schema = match schema {
        Value::Object(schema) => schema,
        _ => Map::new(),
    };
    if let Some(options) = options {
        schema.insert("x-guidance".to_owned(), options);
    }
    Value::Object(schema)
}

/// Returns a rule for a literal text.
pub(crate) fn literal(text: &str) -> String {
    Value::from(text).to_string()
}

/// Returns an expression for one of `texts`. Many become a regular expression, since each literal is a state of the
/// parser.
pub(crate) fn alternatives<'t>(texts: impl Iterator<Item = &'t str>) -> String {
    let texts: Vec<&str> = texts.collect();
    if texts.len() <= MAX_LITERALS {
        return texts.iter().map(|text| literal(text)).collect::<Vec<_>>().join(" | ");
    }
    let escaped: Vec<String> = (texts.iter().filter(|text| !text.is_empty()))
        .map(|text| regex_syntax::escape(text))
        .collect();
    let empty = if texts.contains(&"") { "\"\" | " } else { "" };
    format!("{empty}/{}/", llguidance::regex_to_lark(&escaped.join("|"), ""))
}
