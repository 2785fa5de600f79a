//! Calls of functions.

use serde_json::{Value, json};

use crate::grammar::{json_rule, literal};
use crate::{Grammar, GrammarError};

/// A function that a model may call.
pub struct CallableFunction<'a> {
    /// Its name.
    pub name: &'a str,
    /// The JSON schema of its arguments, if it has any.
    pub parameters: Option<&'a Value>,
}

/// Nothing but calls of `functions`, each an object of a name and arguments between `marks`; `several`: one or more, a line
/// each; `or`: that may come instead, unless it is in Lark's notation.
///
/// # Errors
/// Arguments that are described by no JSON schema.
pub fn calls_grammar(
    functions: &[CallableFunction<'_>],
    marks: [&str; 2],
    several: bool,
    or: Option<&Grammar>,
) -> Result<Grammar, GrammarError> {
    let [open, close] = marks.map(literal);
    let mut rules = match or.map(Grammar::expansion).transpose()?.flatten() {
        Some(other) => vec!["start: calls | other".to_owned(), format!("other: {other}")],
        None => vec!["start: calls".to_owned()],
    };
    rules.push(format!("calls: call{}", if several { " (\"\\n\" call)*" } else { "" }));
    let names: Vec<String> = (0..functions.len()).map(|number| format!("call_{number}")).collect();
    rules.push(format!("call: {}", names.join(" | ")));
    for (name, function) in names.iter().zip(functions) {
        let mut arguments = function.parameters.cloned().unwrap_or(json!({"type": "object"}));
        let mut call = json!({
            "type": "object",
            "properties": {"name": {"const": function.name}},
            "required": ["name", "arguments"],
            "additionalProperties": false,
        });
        // What is referred to is looked for from the top.
        for key in ["$defs", "definitions"] {
            if let Some(definitions) = arguments.as_object_mut().and_then(|arguments| arguments.remove(key)) {
                call[key] = definitions;
            }
        }
        call["properties"]["arguments"] = arguments;
        rules.push(format!("{name}: {open} \"\\n\" {} \"\\n\" {close}", json_rule(&call)?));
    }
    Ok(Grammar::Lark(rules.join("\n")))
}
