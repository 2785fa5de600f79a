//! The form that clients ask of an answer.

use refrain_grammar::{CallableFunction, Grammar, calls_grammar};
use serde::Deserialize;
use serde_json::Value;

use crate::error::Refusal;
use crate::tools::MARKS;

/// The fields by which clients ask for a form: OpenAI's, and those that llama.cpp's and vLLM's know.
#[derive(Debug, Deserialize)]
pub(crate) struct StructureFields {
    response_format: Option<Value>,
    json_schema: Option<Value>,
    grammar: Option<String>,
    guided_json: Option<Value>,
    guided_regex: Option<String>,
    guided_choice: Option<Vec<String>>,
    guided_grammar: Option<String>,
    structured_outputs: Option<StructuredOutputs>,
}

/// vLLM's newer field.
#[derive(Debug, Deserialize)]
struct StructuredOutputs {
    json: Option<Value>,
    json_object: Option<bool>,
    regex: Option<String>,
    choice: Option<Vec<String>>,
    grammar: Option<String>,
}

/// A form that was asked for, and by which field.
pub(crate) type AskedForm = (&'static str, Grammar);

impl StructureFields {
    /// The form, if one is asked for.
    ///
    /// # Errors
    /// More than one, or one that is none.
    pub fn form(&self) -> Result<Option<AskedForm>, Refusal> {
        let mut forms: Vec<AskedForm> = vec![];
        if let Some(format) = &self.response_format {
            forms.extend(of_response_format(format)?.map(|grammar| ("response_format", grammar)));
        }
        let schema = |field: &'static str, schema: &Option<Value>| {
            let schema = schema.as_ref().filter(|schema| !schema.is_null());
            schema.map(|schema| Ok::<_, Refusal>((field, Grammar::JsonSchema(parsed(field, schema)?))))
        };
        forms.extend(schema("json_schema", &self.json_schema).transpose()?);
        forms.extend(schema("guided_json", &self.guided_json).transpose()?);
        let lark = |field, text: &Option<String>| Some((field, Grammar::Lark(text.clone().filter(|t| !t.is_empty())?)));
        let regex = |field, text: &Option<String>| Some((field, Grammar::Regex(text.clone()?)));
        let choice = |field, texts: &Option<Vec<String>>| Some((field, Grammar::Choice(texts.clone()?)));
        forms.extend(lark("grammar", &self.grammar));
        forms.extend(lark("guided_grammar", &self.guided_grammar));
        forms.extend(regex("guided_regex", &self.guided_regex));
        forms.extend(choice("guided_choice", &self.guided_choice));
        if let Some(asked) = &self.structured_outputs {
            let field = "structured_outputs";
            forms.extend(schema(field, &asked.json).transpose()?);
            let is_object = asked.json_object == Some(true);
            forms.extend(is_object.then_some((field, Grammar::JsonObject)));
            forms.extend(regex(field, &asked.regex));
            forms.extend(choice(field, &asked.choice));
            forms.extend(lark(field, &asked.grammar));
        }
        match forms.len() {
            0 | 1 => Ok(forms.pop()),
            _ => Err(Refusal::field(
                forms[1].0,
                "an answer has one form; more than one is asked for",
            )),
        }
    }
}

/// OpenAI's `response_format`.
fn of_response_format(format: &Value) -> Result<Option<Grammar>, Refusal> {
    let field = "response_format";
    if format.is_null() {
        return Ok(None);
    }
    match format["type"].as_str() {
        Some("text") => Ok(None),
        Some("json_object" | "json_schema") => {
            let nested = &format["json_schema"];
            // llama.cpp's clients put the schema beside the type.
            let schema = [&nested["schema"], &format["schema"]]
                .into_iter()
                .find(|schema| !schema.is_null());
            match schema {
                Some(schema) => Ok(Some(Grammar::JsonSchema(schema.clone()))),
                None if format["type"] == "json_object" => Ok(Some(Grammar::JsonObject)),
                None => Err(Refusal::field(
                    field,
                    "json_schema needs a schema, as {\"json_schema\": {\"schema\": …}}",
                )),
            }
        }
        Some(other) => {
            let why = format!("{other:?} is none of \"text\", \"json_object\" and \"json_schema\"");
            Err(Refusal::field(field, why))
        }
        None => Err(Refusal::field(field, "it has no type")),
    }
}

/// A schema, which may come as a text of JSON.
fn parsed(field: &'static str, schema: &Value) -> Result<Value, Refusal> {
    match schema {
        Value::String(text) => {
            serde_json::from_str(text).map_err(|why| Refusal::field(field, format!("this is no JSON: {why}")))
        }
        schema => Ok(schema.clone()),
    }
}

/// Ollama's `format`: `"json"`, or a schema.
pub(crate) fn of_ollama(format: Option<&Value>) -> Result<Option<AskedForm>, Refusal> {
    match format {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.is_empty() => Ok(None),
        Some(Value::String(text)) if text == "json" => Ok(Some(("format", Grammar::JsonObject))),
        Some(schema @ Value::Object(_)) => Ok(Some(("format", Grammar::JsonSchema(schema.clone())))),
        Some(_) => Err(Refusal::field("format", "it is neither \"json\" nor a JSON schema")),
    }
}

/// What `tool_choice` makes of tools.
pub(super) enum ToolChoice {
    /// The model may call them.
    Free,
    /// It has none.
    None,
    /// It calls, whatever else it would do.
    Forced(AskedForm),
}

/// Reads `tool_choice`; `several`: of more than one call at once.
///
/// # Errors
/// A choice that there is not, tools without names.
pub(super) fn tool_choice(choice: Option<&Value>, tools: &[Value], several: bool) -> Result<ToolChoice, Refusal> {
    let field = "tool_choice";
    let name = match choice {
        None | Some(Value::Null) => return Ok(ToolChoice::Free),
        Some(Value::String(word)) => match word.as_str() {
            "auto" => return Ok(ToolChoice::Free),
            "none" => return Ok(ToolChoice::None),
            "required" => None,
            _ => {
                let why = format!("{word:?} is none of \"auto\", \"none\" and \"required\", and no function");
                return Err(Refusal::field(field, why));
            }
        },
        Some(named) => match named["function"]["name"].as_str() {
            Some(name) => Some(name),
            None => return Err(Refusal::field(field, "it names no function")),
        },
    };
    let mut functions = vec![];
    for tool in tools {
        let function = tool.get("function").unwrap_or(tool);
        let Some(its) = function["name"].as_str() else {
            return Err(Refusal::field("tools", "a function has no name"));
        };
        functions.push(CallableFunction {
            name: its,
            parameters: function.get("parameters").filter(|parameters| !parameters.is_null()),
        });
    }
    functions.retain(|function| name.is_none_or(|name| name == function.name));
    if functions.is_empty() {
        let why = name.map_or("there are no tools".to_owned(), |name| {
            format!("there is no function {name:?}")
        });
        return Err(Refusal::field(field, why));
    }
    let grammar = calls_grammar(&functions, MARKS, several && name.is_none());
    let grammar = grammar.map_err(|why| Refusal::field("tools", why.to_string()))?;
    Ok(ToolChoice::Forced(("tools", grammar)))
}
