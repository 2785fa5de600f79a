//! Rules for calls in a dialect's notation.

use refrain_text::dialects::{CallForm, CallId, MessageFormat, NamedCall, Notation, ObjectKeys};

use crate::GrammarError;
use crate::answer::{AnswerForm, CallableFunction, Rules, joined};
use crate::arguments::Arguments;
use crate::grammar::literal;

/// White space between the parts of a call, as templates write it.
pub(crate) const BLANK: &str = "/( |\\n {0,16})/?";

/// How much of an answer a rule describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// All calls of the answer.
    Answer,
    /// One call, or the calls between one pair of marks.
    Section,
}

impl AnswerForm<'_> {
    /// A rule for one or more calls between marks.
    ///
    /// # Errors
    /// If a schema is invalid or exceeds a limit.
    pub(crate) fn calls(
        &self,
        rules: &mut Rules<'_>,
        notation: &Notation,
        extent: Extent,
    ) -> Result<String, GrammarError> {
        let calls = self.functions.iter().map(|function| call(rules, notation, function));
        let calls = calls.collect::<Result<Vec<_>, _>>()?;
        let one = rules.add(&calls.join(" | "));
        let is_list = match &notation.form {
            CallForm::Objects(keys) => keys.is_list,
            CallForm::KeyedObjects | CallForm::Python => true,
            _ => false,
        };
        // GLM has a section for each call.
        let is_section_of_one = notation.section.is_some() && notation.call.open.is_empty() && !is_list;
        let comma = format!("\",\" {BLANK}");
        let (open_list, close_list) = (format!("{BLANK} \"[\" {BLANK}"), format!("{BLANK} \"]\" {BLANK}"));
        let (separator, list) = if is_list {
            (comma.as_str(), [open_list.as_str(), close_list.as_str()])
        } else if notation.section.is_none() && matches!(notation.form, CallForm::Objects(_)) {
            // Each call on lines of its own, as templates write them: a model ends where no line follows.
            ("\"\\n\"", ["", ""])
        } else {
            ("\"\\n\"?", ["", ""])
        };
        let more = |one: &str, is_within: bool| {
            if self.several && (is_within || extent == Extent::Answer) {
                format!("({separator} {one})*")
            } else {
                String::new()
            }
        };
        let section = |calls: String| match notation.section {
            Some(marks) => {
                let [open, close] = [marks.open, marks.close].map(|mark| rules.special.expression(mark));
                let blank = if is_list || is_section_of_one { "" } else { "\"\\n\"?" };
                joined(&[open, blank.to_owned(), calls, blank.to_owned(), close])
            }
            None => calls,
        };
        // Some models write a list between the marks, some write each call on a line of its own.
        let is_either = matches!(&notation.form, CallForm::Objects(keys) if keys.is_list && keys.name == "name")
            && notation.section.is_some_and(|marks| !marks.close.is_empty());
        if is_either {
            let line = joined(&["\"\\n\"?".to_owned(), one.clone()]);
            let more_lines = if self.several {
                format!("(\"\\n\" {one})*")
            } else {
                String::new()
            };
            let lines = joined(&[line, more_lines, "\"\\n\"?".to_owned()]);
            let listed = joined(&[list[0].to_owned(), one.clone(), more(&one, true), list[1].to_owned()]);
            let all = section(format!("({listed} | {lines})"));
            return Ok(rules.add(&all));
        }
        if is_section_of_one {
            let one = section(one);
            let one = rules.add(&one);
            let all = joined(&[one.clone(), more(&one, false)]);
            return Ok(rules.add(&all));
        }
        let all = section(joined(&[
            list[0].to_owned(),
            one.clone(),
            more(&one, is_list || notation.section.is_some()),
            list[1].to_owned(),
        ]));
        Ok(rules.add(&all))
    }

    /// A rule for one or more messages with calls.
    ///
    /// # Errors
    /// If a schema is invalid or exceeds a limit.
    pub(crate) fn messages(
        &self,
        rules: &mut Rules<'_>,
        format: &MessageFormat,
        extent: Extent,
    ) -> Result<String, GrammarError> {
        let mut calls = vec![];
        for function in self.functions {
            let [before, behind] = [format.headers.call.open, format.headers.call.close];
            let header = rules.special.expression(&format!("{before}{}{behind}", function.name));
            let body = match format.calls {
                Some(notation) => {
                    let call = call(rules, notation, function)?;
                    let section = notation.section.map_or(["", ""], |marks| [marks.open, marks.close]);
                    let [open, close] = section.map(|mark| rules.special.expression(mark));
                    let blank = "\"\\n\"?".to_owned();
                    joined(&[open, blank.clone(), call, blank, close])
                }
                None => Arguments::of(function)?.json(rules)?,
            };
            calls.push(joined(&[header, body]));
        }
        let one = rules.add(&calls.join(" | "));
        // Where nothing else ends a message, the next one's start does; elsewhere a call ends the answer.
        let is_continued = self.several && extent == Extent::Answer && format.headers.call.open.is_empty();
        let more = is_continued.then(|| format!("({} {one})*", rules.special.expression(format.start)));
        Ok(rules.add(&joined(&[one.clone(), more.unwrap_or_default()])))
    }
}

/// Returns a rule for a call of `function`, between the marks of a call.
fn call(rules: &mut Rules<'_>, notation: &Notation, function: &CallableFunction<'_>) -> Result<String, GrammarError> {
    let arguments = Arguments::of(function)?;
    let name = function.name;
    let [open, close] = [notation.call.open, notation.call.close];
    let blank = "\"\\n\"?".to_owned();
    let parts = match &notation.form {
        CallForm::Objects(keys) => {
            let object = object(rules, keys, name, &arguments)?;
            // Llama's objects have no marks, and lists have their own.
            let blank = if open.is_empty() || keys.is_list {
                String::new()
            } else {
                blank
            };
            vec![
                rules.special.expression(open),
                blank.clone(),
                object,
                blank,
                rules.special.expression(close),
            ]
        }
        CallForm::KeyedObjects => {
            let head = format!("{{{}:", literal(name));
            vec![literal(&head), BLANK.to_owned(), arguments.json(rules)?, literal("}")]
        }
        CallForm::Named(named) => {
            let head = named_head(rules, named, open, name);
            // A block of code ends on a line of its own.
            let line = if close.starts_with("```") {
                "\"\\n\"".to_owned()
            } else {
                String::new()
            };
            vec![head, arguments.json(rules)?, line, rules.special.expression(close)]
        }
        CallForm::Tagged(named, tags) => {
            let head = tagged_head(rules, named, open, name);
            vec![
                head,
                arguments.tagged(rules, tags)?,
                blank,
                rules.special.expression(close),
            ]
        }
        CallForm::Python => vec![literal(&format!("{name}(")), arguments.python(rules)?, literal(")")],
        CallForm::Braces => {
            let head = rules.special.expression(&format!("{open}call:{name}{{"));
            let tail = rules.special.expression(&format!("}}{close}"));
            vec![head, arguments.braces(rules)?, tail]
        }
        CallForm::Elements(named, tags) => {
            let head = rules.special.expression(&format!("{open}{name}{}", named.name_ends[0]));
            vec![head, arguments.elements(rules, tags)?, rules.special.expression(close)]
        }
    };
    Ok(rules.add(&joined(&parts)))
}

/// An object with the name and the arguments of a call.
fn object(rules: &mut Rules<'_>, keys: &ObjectKeys, name: &str, arguments: &Arguments) -> Result<String, GrammarError> {
    // Cohere's models number their calls.
    let number = if keys.name == "tool_name" {
        format!("(\"\\\"tool_call_id\\\":\" {BLANK} /\"[0-9]{{1,4}}\"/ \",\" {BLANK})?")
    } else {
        String::new()
    };
    let parts = [
        literal("{"),
        BLANK.to_owned(),
        number,
        literal(&format!("\"{}\":", keys.name)),
        BLANK.to_owned(),
        literal(&format!("{},", literal(name))),
        BLANK.to_owned(),
        literal(&format!("\"{}\":", keys.arguments)),
        BLANK.to_owned(),
        arguments.json(rules)?,
        BLANK.to_owned(),
        literal("}"),
    ];
    Ok(joined(&parts))
}

/// What stands before the JSON arguments of a call.
fn named_head(rules: &Rules<'_>, named: &NamedCall, open: &str, name: &str) -> String {
    let end = named.name_ends[0];
    match named.id {
        CallId::Before(mark) => {
            let id = "/[a-zA-Z0-9]{9}/".to_owned();
            let behind = rules.special.expression(&format!("{mark}{name}{end}"));
            joined(&[rules.special.expression(open), id, behind])
        }
        CallId::Behind(mark, _) => {
            let before = rules.special.expression(&format!("{open}{name}"));
            let id = joined(&[rules.special.expression(mark), "/[a-zA-Z0-9]{9}/".to_owned()]);
            joined(&[before, format!("({id})?"), rules.special.expression(end)])
        }
        CallId::InName => {
            let before = rules.special.expression(&format!("{open}functions.{name}:"));
            joined(&[before, "/[0-9]{1,3}/".to_owned(), rules.special.expression(end)])
        }
        _ => rules.special.expression(&format!("{open}{name}{end}")),
    }
}

/// What stands before the arguments of a call that are between marks.
fn tagged_head(rules: &Rules<'_>, named: &NamedCall, open: &str, name: &str) -> String {
    match named.id {
        CallId::Skipped(mark) => joined(&[
            rules.special.expression(&format!("{open}{name}{mark} index=\"")),
            "/[0-9]{1,3}/".to_owned(),
            rules.special.expression(&format!("\"{}", named.name_ends[0])),
        ]),
        // Some templates begin the arguments on a line of their own, some do not.
        _ if named.name_ends[0] == "\n" => joined(&[
            rules.special.expression(&format!("{open}{name}")),
            "\"\\n\"?".to_owned(),
        ]),
        _ => rules.special.expression(&format!("{open}{name}{}", named.name_ends[0])),
    }
}
