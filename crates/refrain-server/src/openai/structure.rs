//! Structured output: what clients request by their many fields, and the grammar that follows from it.

use std::sync::LazyLock;

use refrain_grammar::{CallableFunction, Grammar};
use refrain_text::dialects::{self, MAX_FUNCTION_NAME};
use serde_json::{Value, json};

use super::fields::FieldReader;
use super::tool_choice::{self, CallMode, ToolChoice};
use super::tools::InputGrammars;
use crate::error::Refusal;
use crate::served::ServedModel;

/// The fields of structured output: OpenAI's, and those that llama.cpp and vLLM know. Each with the grammar it stands
/// for.
#[derive(Debug, Default)]
pub(crate) struct StructureFields(Vec<ResponseFormat>);

/// A grammar that was requested, and by which field.
pub(crate) type ResponseFormat = (&'static str, Grammar);

impl StructureFields {
    /// Reads the fields of a request.
    ///
    /// # Errors
    /// If one has the wrong type.
    pub fn read(fields: &mut FieldReader) -> Result<StructureFields, Refusal> {
        let mut formats = vec![];
        let format = fields.value("response_format").unwrap_or_default();
        formats.extend(of_format("response_format", &format)?);
        for field in ["json_schema", "guided_json"] {
            let schema = fields.value(field).map(|schema| parsed(field, schema)).transpose()?;
            formats.extend(schema.map(|schema| (field, Grammar::JsonSchema(schema))));
        }
        for field in ["grammar", "guided_grammar"] {
            formats.extend(fields.text(field)?.and_then(|text| lark(field, text)));
        }
        formats.extend(
            fields
                .text("guided_regex")?
                .map(|regex| ("guided_regex", Grammar::Regex(regex))),
        );
        let choice = fields.texts("guided_choice")?;
        formats.extend(choice.map(|choice| ("guided_choice", Grammar::Choice(choice))));
        // vLLM's newer field.
        match fields.value("structured_outputs") {
            None => {}
            Some(Value::Object(options)) => formats.extend(of_options(FieldReader::new(options))?),
            Some(_) => return Err(Refusal::field("structured_outputs", "expected an object")),
        }
        Ok(StructureFields(formats))
    }

    /// Returns the grammar, if one is requested. Several fields with the same grammar are one.
    ///
    /// # Errors
    /// If fields request different grammars.
    pub fn form(&self) -> Result<Option<ResponseFormat>, Refusal> {
        let Some(first) = self.0.first() else {
            return Ok(None);
        };
        match self.0.iter().find(|(_, grammar)| *grammar != first.1) {
            None => Ok(Some(first.clone())),
            Some((field, _)) => {
                let why = format!("an answer has one form, but {} requests another one", first.0);
                Err(Refusal::field(*field, why))
            }
        }
    }
}

/// Reads the options of vLLM's `structured_outputs`.
fn of_options(mut options: FieldReader) -> Result<Vec<ResponseFormat>, Refusal> {
    let field = "structured_outputs";
    let mut grammars = vec![];
    if options.value("structural_tag").is_some() {
        return Err(Refusal::field(
            field,
            "structural_tag is not supported; json, json_object, regex, choice and grammar are",
        ));
    }
    if let Some(schema) = options.value("json") {
        grammars.push(Grammar::JsonSchema(parsed(field, schema)?));
    }
    if options.flag("json_object")? == Some(true) {
        grammars.push(Grammar::JsonObject);
    }
    grammars.extend(options.text("regex")?.map(Grammar::Regex));
    grammars.extend(options.texts("choice")?.map(Grammar::Choice));
    let mut formats: Vec<ResponseFormat> = grammars.into_iter().map(|grammar| (field, grammar)).collect();
    formats.extend(options.text("grammar")?.and_then(|text| lark(field, text)));
    Ok(formats)
}

fn lark(field: &'static str, text: String) -> Option<ResponseFormat> {
    (!text.is_empty()).then_some((field, Grammar::Lark(text)))
}

/// Reads OpenAI's `response_format`, or the same value of another interface's field.
///
/// # Errors
/// If it is not a format.
pub(crate) fn of_format(field: &'static str, format: &Value) -> Result<Option<ResponseFormat>, Refusal> {
    if format.is_null() {
        return Ok(None);
    }
    match format["type"].as_str() {
        Some("text") => Ok(None),
        Some("json_object" | "json_schema") => {
            let nested = &format["json_schema"];
            // Chats have it a level deeper.
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

/// Returns a schema, which may be a string of JSON.
fn parsed(field: &'static str, schema: Value) -> Result<Value, Refusal> {
    match schema {
        Value::String(text) => {
            serde_json::from_str(&text).map_err(|why| Refusal::field(field, format!("not valid JSON: {why}")))
        }
        schema => Ok(schema),
    }
}

/// Reads Ollama's `format`: `"json"`, or a schema.
///
/// # Errors
/// If it is neither.
pub(crate) fn of_ollama(format: Option<&Value>) -> Result<Option<ResponseFormat>, Refusal> {
    match format {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.is_empty() => Ok(None),
        Some(Value::String(text)) if text == "json" => Ok(Some(("format", Grammar::JsonObject))),
        Some(schema @ Value::Object(_)) => Ok(Some(("format", Grammar::JsonSchema(schema.clone())))),
        Some(_) => Err(Refusal::field("format", "it is neither \"json\" nor a JSON schema")),
    }
}

/// The tools that an answer may call, and what its text may be.
pub(crate) struct RequestedAnswer {
    /// The functions that the model is told about.
    pub tools: Option<Vec<Value>>,
    /// The grammar of the answer.
    pub constraint: Option<ResponseFormat>,
}

/// Combines tools as chats describe them, the forms of texts that custom tools take, `tool_choice`, whether several
/// calls are allowed, and the form of the text.
///
/// Where calls are forced, the form does not apply: it is the text's, and the answer has none. Where they are
/// possible, the answer is a call or a text of that form; without a form, calls that the model begins are kept
/// well-formed.
///
/// # Errors
/// If the choice is invalid or names a function that is not offered, or a function has no name or a bad one.
pub(crate) fn requested_answer(
    model: &ServedModel,
    tools: Option<Vec<Value>>,
    inputs: &InputGrammars,
    choice: Option<&Value>,
    several: bool,
    asked: Option<ResponseFormat>,
) -> Result<RequestedAnswer, Refusal> {
    check_names(tools.as_deref().unwrap_or_default())?;
    let ToolChoice { mode, allowed } = tool_choice::read(choice)?;
    let tools = allowed.filter(tools)?.filter(|tools| !tools.is_empty());
    let grammar_of = |text: Option<&Grammar>| {
        let functions = callable(tools.as_deref().unwrap_or_default(), inputs)?;
        let grammar = model.answer_grammar(&functions, several && !allowed.is_one(), text);
        grammar.map_err(|why| Refusal::field("tools", why.to_string()))
    };
    let calls = || match callable(tools.as_deref().unwrap_or_default(), inputs) {
        Ok(functions) => {
            let grammar = model.call_grammar(&functions, several);
            grammar.map_err(|why| Refusal::field("tools", why.to_string()))
        }
        // What is no function is described to the model as it is.
        Err(_) => Ok(None),
    };
    // Models whose answers have headers or marks have them around a form, too.
    let in_dialect = |(field, form): ResponseFormat| {
        let wrapped = model.form_in_dialect(form);
        wrapped
            .map(|grammar| (field, grammar))
            .map_err(|why| Refusal::field(field, why.to_string()))
    };
    let constraint = match (mode, asked) {
        (CallMode::None, asked) => {
            return Ok(RequestedAnswer {
                tools: None,
                constraint: asked.map(in_dialect).transpose()?,
            });
        }
        (CallMode::Required, _) => Some(("tools", grammar_of(None)?)),
        (CallMode::Auto, Some((field, form))) if tools.is_some() => {
            form.lark().map_err(|why| Refusal::field(field, why.to_string()))?;
            Some((field, grammar_of(Some(&form))?))
        }
        (CallMode::Auto, None) if tools.is_some() => calls()?.map(|grammar| ("tools", grammar)),
        (CallMode::Auto, asked) => asked.map(in_dialect).transpose()?,
    };
    Ok(RequestedAnswer { tools, constraint })
}

/// Checks that calls of all functions can be read back.
///
/// # Errors
/// If a function has a name that is not.
fn check_names(tools: &[Value]) -> Result<(), Refusal> {
    for (index, tool) in tools.iter().enumerate() {
        if let Some(name) = tool_choice::function(tool)["name"].as_str()
            && !dialects::is_function_name(name)
        {
            let why = format!(
                "tool {index}: the name {name:?} must be 1 to {MAX_FUNCTION_NAME} bytes of letters, digits, _, - and dots"
            );
            return Err(Refusal::field("tools", why));
        }
    }
    Ok(())
}

/// Returns the functions that may be called.
fn callable<'a>(tools: &'a [Value], inputs: &'a InputGrammars) -> Result<Vec<CallableFunction<'a>>, Refusal> {
    if tools.is_empty() {
        return Err(Refusal::field("tool_choice", "there are no tools"));
    }
    let function = |tool| {
        let function: &Value = tool_choice::function(tool);
        match function["name"].as_str() {
            Some(name) => {
                let input = inputs.get(name);
                Ok(CallableFunction {
                    name,
                    parameters: Some(parameters(function)),
                    strict: function["strict"] == true || input.is_some(),
                    input,
                })
            }
            None => Err(Refusal::field("tools", "a function has no name")),
        }
    };
    tools.iter().map(function).collect()
}

/// Returns the schema of a function's arguments. A function without one, or with an empty one, has none.
fn parameters(function: &Value) -> &Value {
    static NONE: LazyLock<Value> =
        LazyLock::new(|| json!({"type": "object", "properties": {}, "additionalProperties": false}));
    let given = function.get("parameters").filter(|parameters| !parameters.is_null());
    given
        .filter(|parameters| parameters.as_object().is_none_or(|schema| !schema.is_empty()))
        .unwrap_or(&NONE)
}
