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
            forms.extend(of_format("response_format", format)?);
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

/// What OpenAI's `response_format` is, and what stands elsewhere in other interfaces.
///
/// # Errors
/// What is no format.
pub(crate) fn of_format(field: &'static str, format: &Value) -> Result<Option<AskedForm>, Refusal> {
    if format.is_null() {
        return Ok(None);
    }
    match format["type"].as_str() {
        Some("text") => Ok(None),
        Some("json_object" | "json_schema") => {
            let nested = &format["json_schema"];
            // Chats have it a level deeper than others.
            let schema = [&nested["schema"], &format["schema"]]
                .into_iter()
                .find(|schema| !schema.is_null());
            match schema {
                Some(schema) => Ok(Some((field, Grammar::JsonSchema(schema.clone())))),
                None if format["type"] == "json_object" => Ok(Some((field, Grammar::JsonObject))),
                None if field == "response_format" => Err(Refusal::field(
                    field,
                    "json_schema needs a schema, as {\"json_schema\": {\"schema\": …}}",
                )),
                None => Err(Refusal::field(
                    field,
                    "json_schema needs a schema, as {\"type\": \"json_schema\", \"schema\": …}",
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

/// What an answer may be.
pub(crate) struct AnswerForm {
    /// Functions that the model hears of.
    pub tools: Option<Vec<Value>>,
    /// What it is held to.
    pub constraint: Option<AskedForm>,
}

/// Brings together functions as chats describe them, who has to call them by `tool_choice`, whether it may be several at
/// once, and the form that is asked of texts.
///
/// # Errors
/// A choice that there is not, functions without names where they are needed, a form of what is to be a call.
pub(crate) fn answer_form(
    tools: Option<Vec<Value>>,
    choice: Option<&Value>,
    several: bool,
    asked: Option<AskedForm>,
) -> Result<AnswerForm, Refusal> {
    let tools = tools.filter(|tools| !tools.is_empty());
    let grammar_of = |name: Option<&str>, or: Option<&Grammar>| {
        let functions = callable(tools.as_deref().unwrap_or_default(), name)?;
        let grammar = calls_grammar(&functions, MARKS, several && name.is_none(), or);
        grammar.map_err(|why| Refusal::field("tools", why.to_string()))
    };
    let constraint = match (tool_choice(choice)?, asked) {
        (ToolChoice::None, constraint) => {
            return Ok(AnswerForm {
                tools: None,
                constraint,
            });
        }
        (ToolChoice::Forced(_), Some((field, _))) => {
            let why = "the answer is to be a call: tool_choice asks for one";
            return Err(Refusal::field(field, why));
        }
        (ToolChoice::Forced(name), None) => Some(("tools", grammar_of(name, None)?)),
        // Who may call need not, and then the text has its form.
        (ToolChoice::Free, Some((field, form))) if tools.is_some() && !matches!(form, Grammar::Lark(_)) => {
            form.lark().map_err(|why| Refusal::field(field, why.to_string()))?;
            Some((field, grammar_of(None, Some(&form))?))
        }
        (ToolChoice::Free, asked) => asked,
    };
    Ok(AnswerForm { tools, constraint })
}

/// What `tool_choice` makes of tools.
enum ToolChoice<'a> {
    /// The model may call them.
    Free,
    /// It has none.
    None,
    /// It calls, this one if it is named.
    Forced(Option<&'a str>),
}

fn tool_choice(choice: Option<&Value>) -> Result<ToolChoice<'_>, Refusal> {
    let field = "tool_choice";
    match choice {
        None | Some(Value::Null) => Ok(ToolChoice::Free),
        Some(Value::String(word)) => match word.as_str() {
            "auto" => Ok(ToolChoice::Free),
            "none" => Ok(ToolChoice::None),
            "required" => Ok(ToolChoice::Forced(None)),
            _ => {
                let why = format!("{word:?} is none of \"auto\", \"none\" and \"required\", and no function");
                Err(Refusal::field(field, why))
            }
        },
        Some(named) => match named["function"]["name"].as_str() {
            Some(name) => Ok(ToolChoice::Forced(Some(name))),
            None => Err(Refusal::field(field, "it names no function")),
        },
    }
}

/// The functions that may be called: all, or the one of that name.
fn callable<'a>(tools: &'a [Value], name: Option<&str>) -> Result<Vec<CallableFunction<'a>>, Refusal> {
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
        return Err(Refusal::field("tool_choice", why));
    }
    Ok(functions)
}
