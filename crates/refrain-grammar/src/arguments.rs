//! Rules for the arguments of a function, in each of the ways in which dialects write them.

use refrain_text::dialects::{ArgumentTags, ElementTags, ValueType};
use serde_json::{Map, Value, json};

use crate::GrammarError;
use crate::answer::{CallableFunction, Rules, joined};
use crate::call_rules::BLANK;
use crate::grammar::{alternatives, literal};
use crate::schema;
use crate::text_argument::TextGrammar;

/// The arguments of a function.
pub(crate) struct Arguments {
    function: String,
    /// Their schema, an object.
    schema: Value,
    /// The grammar of the only argument, if it is a text of some form.
    input: Option<TextGrammar>,
}

/// An argument.
struct Member<'s> {
    key: &'s str,
    /// Its schema, behind references.
    schema: &'s Value,
    is_required: bool,
}

/// What a schema admits, as far as notations differ in it.
#[derive(PartialEq)]
enum Kind {
    Text,
    Flag,
    Other,
    /// A text or something else.
    Any,
}

impl Arguments {
    /// The arguments of a function. Without a schema they are any object.
    ///
    /// # Errors
    /// A schema that is no object, or an invalid grammar.
    pub fn of(function: &CallableFunction<'_>) -> Result<Arguments, GrammarError> {
        let mut schema = match function.parameters {
            None | Some(Value::Null | Value::Bool(true)) => Map::new(),
            Some(Value::Object(schema)) => schema.clone(),
            Some(_) => {
                let why = format!("the parameters of {:?} must be a JSON schema, an object", function.name);
                return Err(GrammarError::new(why));
            }
        };
        if !matches!(schema.get("type"), Some(Value::String(kind)) if kind == "object") {
            schema.insert("type".to_owned(), "object".into());
        }
        Ok(Arguments {
            function: function.name.to_owned(),
            schema: Value::Object(schema),
            input: function.input.map(TextGrammar::of).transpose()?,
        })
    }

    /// A rule for them as a JSON object.
    pub fn json(&self, rules: &mut Rules<'_>) -> Result<String, GrammarError> {
        if let (Some(input), [member]) = (&self.input, &*self.members()) {
            let head = joined(&[
                literal("{"),
                BLANK.to_owned(),
                literal(&format!("{}:", literal(member.key))),
            ]);
            let text = rules.add(&input.json()?);
            let tail = joined(&[BLANK.to_owned(), literal("}")]);
            return Ok(joined(&[head, BLANK.to_owned(), text, tail]));
        }
        rules.json(&self.function, &self.schema, &self.schema, "")
    }

    /// A rule for them between tags.
    pub fn tagged(&self, rules: &mut Rules<'_>, tags: &ArgumentTags) -> Result<String, GrammarError> {
        let line = if tags.on_lines { "\n" } else { "" };
        let end = format!("{line}{}", tags.value_end);
        // Some templates begin the value on a line of its own.
        let blank = if tags.value.is_empty() { "" } else { "\"\\n\"?" };
        let mut parts = vec![];
        rules.count_properties(self.members().len())?;
        for member in self.members() {
            let kind = kind(member.schema);
            let value_type = if kind == Kind::Text {
                ValueType::Text
            } else {
                ValueType::Json
            };
            let head = joined(&[
                rules.special.expression(&format!("{}{}", tags.key, member.key)),
                key_end(rules, tags, member.schema, value_type),
                blank.to_owned(),
                rules.special.expression(&format!("{}{line}", tags.value)),
            ]);
            let body = match (kind, self.texts(&member)) {
                (Kind::Text, Some(texts)) => joined(&[format!("({texts})"), rules.special.expression(&end)]),
                (Kind::Text | Kind::Any, _) => rules.text_until(&end),
                _ => joined(&[self.value(rules, &member)?, rules.special.expression(&end)]),
            };
            let whole = rules.add(&joined(&["\"\\n\"?".to_owned(), head, body]));
            parts.push(if member.is_required { whole } else { format!("{whole}?") });
        }
        if self.members().is_empty() && self.is_open() {
            let key = rules.special.expression(tags.key);
            let ends = tags.key_ends.iter().map(|(end, _)| rules.special.expression(end));
            let behind = format!("({})", ends.collect::<Vec<_>>().join(" | "));
            let value = format!("{}{line}", tags.value);
            let behind = joined(&[behind, blank.to_owned(), rules.special.expression(&value)]);
            let value = rules.text_until(&end);
            let any = rules.add(&joined(&[key, "/[a-zA-Z_][a-zA-Z0-9_.-]*/".to_owned(), behind, value]));
            parts.push(format!("(\"\\n\"? {any})*"));
        }
        Ok(joined(&parts))
    }

    /// A rule for them as Python's named arguments.
    pub fn python(&self, rules: &mut Rules<'_>) -> Result<String, GrammarError> {
        self.listed(rules, |rules, member| {
            let value = match kind(member.schema) {
                Kind::Flag => "(\"True\" | \"False\")".to_owned(),
                // Python's strings may have single quotes; what restricts them further knows JSON's alone.
                Kind::Text if self.input.is_none() && is_any_text(member.schema) => {
                    format!("({} | {SINGLE_QUOTED})", self.value(rules, member)?)
                }
                _ => self.value(rules, member)?,
            };
            Ok(joined(&[literal(&format!("{}=", member.key)), value]))
        })
    }

    /// A rule for them between braces, as Gemma writes them.
    pub fn braces(&self, rules: &mut Rules<'_>) -> Result<String, GrammarError> {
        const QUOTE: &str = "<|\"|>";
        self.listed(rules, |rules, member| {
            let head = literal(&format!("{}:", member.key));
            let value = match (kind(member.schema), self.texts(member)) {
                (Kind::Text, Some(texts)) => {
                    let quote = rules.special.expression(QUOTE);
                    joined(&[quote.clone(), format!("({texts})"), quote])
                }
                (Kind::Text | Kind::Any, _) => {
                    let text = rules.text_until(QUOTE);
                    joined(&[rules.special.expression(QUOTE), text])
                }
                _ => self.value(rules, member)?,
            };
            Ok(joined(&[head, value]))
        })
    }

    /// A rule for them as elements of their own names.
    pub fn elements(&self, rules: &mut Rules<'_>, tags: &ElementTags) -> Result<String, GrammarError> {
        let mut parts = vec![];
        for member in self.members() {
            let head = rules.special.expression(&format!("{}<{}>", tags.prefix, member.key));
            let end = format!("{}</{}>", tags.prefix, member.key);
            let body = match (kind(member.schema), self.texts(&member)) {
                (Kind::Text, Some(texts)) => joined(&[format!("({texts})"), rules.special.expression(&end)]),
                (Kind::Text | Kind::Any, _) => rules.text_until(&end),
                (Kind::Flag | Kind::Other, _) => joined(&[self.value(rules, &member)?, rules.special.expression(&end)]),
            };
            let whole = rules.add(&joined(&[head, body]));
            parts.push(if member.is_required { whole } else { format!("{whole}?") });
        }
        Ok(joined(&parts))
    }

    /// A rule for members with commas between them: those that are required, then any of the others.
    fn listed<'s>(
        &'s self,
        rules: &mut Rules<'_>,
        mut rule: impl FnMut(&mut Rules<'_>, &Member<'s>) -> Result<String, GrammarError>,
    ) -> Result<String, GrammarError> {
        let (required, optional): (Vec<_>, Vec<_>) = self.members().into_iter().partition(|member| member.is_required);
        let mut named = |members: &[Member<'s>]| -> Result<Vec<String>, GrammarError> {
            members.iter().map(|member| rule(rules, member)).collect()
        };
        let (required, optional) = (named(&required)?, named(&optional)?);
        const COMMA: &str = "/, ?/";
        // From the last on: what may follow where something stands before, and where nothing does.
        let (mut behind, mut first) = (String::new(), String::new());
        for member in optional.iter().rev() {
            let member = rules.add(member);
            let begun = joined(&[member.clone(), behind.clone()]);
            first = if first.is_empty() {
                format!("({begun})?")
            } else {
                format!("({begun} | {first})")
            };
            first = rules.add(&first);
            behind = rules.add(&format!("({COMMA} {member})? {behind}"));
        }
        if required.is_empty() {
            return Ok(first);
        }
        let required = required.iter().map(|member| rules.add(member)).collect::<Vec<_>>();
        Ok(joined(&[required.join(&format!(" {COMMA} ")), behind]))
    }

    fn members(&self) -> Vec<Member<'_>> {
        let required = self.schema.get("required").and_then(Value::as_array);
        let is_required = |key: &str| required.is_some_and(|keys| keys.iter().any(|known| known == key));
        let properties = self.schema.get("properties").and_then(Value::as_object);
        let members = properties.into_iter().flatten().map(|(key, schema)| Member {
            key,
            schema: schema::resolved(&self.schema, schema),
            is_required: is_required(key),
        });
        members.collect()
    }

    /// Whether they may have members that the schema does not name.
    fn is_open(&self) -> bool {
        self.schema.get("additionalProperties") != Some(&Value::Bool(false))
    }

    /// An expression for an argument's text, if the text is not free.
    fn texts(&self, member: &Member<'_>) -> Option<String> {
        match &self.input {
            Some(input) => Some(input.plain()),
            None => texts(member.schema),
        }
    }

    /// A rule for JSON that matches the schema of an argument.
    fn value(&self, rules: &mut Rules<'_>, member: &Member<'_>) -> Result<String, GrammarError> {
        if let Some(input) = &self.input {
            return Ok(rules.add(&input.json()?));
        }
        let path = format!("/properties/{}", schema::pointer(member.key));
        rules.json(&self.function, &self.schema, member.schema, &path)
    }
}

/// A text in single quotes.
const SINGLE_QUOTED: &str = r"/'([^'\\\n]|\\[nrt'\\])*'/";

/// Whether a schema admits every text.
fn is_any_text(schema: &Value) -> bool {
    const NOTES: [&str; 5] = ["type", "description", "title", "default", "examples"];
    schema
        .as_object()
        .is_some_and(|schema| schema.keys().all(|key| NOTES.contains(&key.as_str())))
}

/// What ends the key of an argument: by the name of its type where the notation has such, else by what a value is.
fn key_end(rules: &Rules<'_>, tags: &ArgumentTags, schema: &Value, value_type: ValueType) -> String {
    let name = schema.get("type").and_then(Value::as_str);
    // Templates call every number a number.
    let names = name.into_iter().chain((name == Some("integer")).then_some("number"));
    let of_name = |name: &str| {
        let name = format!("type=\"{name}\"");
        tags.key_ends.iter().find(|(end, _)| end.contains(&name))
    };
    let by_name: Vec<String> = names
        .filter_map(of_name)
        .map(|(end, _)| rules.special.expression(end))
        .collect();
    if !by_name.is_empty() {
        return format!("({})", by_name.join(" | "));
    }
    let by_type = tags.key_ends.iter().find(|(_, kind)| *kind == value_type);
    rules.special.expression(by_type.unwrap_or(&tags.key_ends[0]).0)
}

fn kind(schema: &Value) -> Kind {
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        return if values.iter().all(Value::is_string) {
            Kind::Text
        } else {
            Kind::Other
        };
    }
    if let Some(value) = schema.get("const") {
        return if value.is_string() { Kind::Text } else { Kind::Other };
    }
    match schema.get("type") {
        Some(Value::String(name)) if name == "string" => Kind::Text,
        Some(Value::String(name)) if name == "boolean" => Kind::Flag,
        Some(Value::String(_)) => Kind::Other,
        Some(Value::Array(names)) if !names.contains(&json!("string")) => Kind::Other,
        Some(_) => Kind::Any,
        None if schema.get("properties").is_some() || schema.get("items").is_some() => Kind::Other,
        None => Kind::Any,
    }
}

/// The texts that a schema lists, as an expression.
fn texts(schema: &Value) -> Option<String> {
    let one = schema.get("const").into_iter();
    let listed = schema.get("enum").and_then(Value::as_array).into_iter().flatten();
    let texts: Vec<&str> = one.chain(listed).filter_map(Value::as_str).collect();
    (!texts.is_empty()).then(|| alternatives(texts.into_iter()))
}
