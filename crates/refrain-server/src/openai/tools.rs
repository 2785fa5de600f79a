//! Tools of chats and responses as functions that a model can call.
//!
//! A [`ToolSet`] knows for each function which tool it stands for, so that a call can be written as the client expects
//! it: custom tools take text instead of JSON, functions of a namespace carry its name, and a local shell has an item
//! of its own. Tools that run on OpenAI's servers are passed over.

use std::collections::HashMap;

use refrain_grammar::Grammar;
use serde_json::{Value, json};

use crate::error::Refusal;

/// What a tool takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ToolKind {
    /// A JSON object.
    Function,
    /// Text, which the model writes as the only argument of a function.
    Custom,
    /// A command of a shell on the client's computer.
    LocalShell,
}

/// A tool that is offered to the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OfferedTool {
    /// The name of the function that the model calls.
    pub function: String,
    /// The name that the client knows.
    pub name: String,
    pub namespace: Option<String>,
    pub kind: ToolKind,
}

/// The tools of a request.
#[derive(Debug, Clone, Default)]
pub(crate) struct ToolSet {
    tools: Vec<OfferedTool>,
    functions: Vec<Value>,
    inputs: InputGrammars,
}

/// The forms of texts that custom tools take, by the names of their functions.
pub(crate) type InputGrammars = HashMap<String, Grammar>;

/// The argument of a custom tool's function.
const INPUT: &str = "input";
/// The name of the local shell's function.
const LOCAL_SHELL: &str = "local_shell";

impl ToolSet {
    /// Reads the tools of a chat: descriptions within `function` or `custom`, or functions alone.
    ///
    /// # Errors
    /// If a function has no name.
    pub fn of_chat(tools: Vec<Value>) -> Result<ToolSet, Refusal> {
        let mut set = ToolSet::default();
        for (index, tool) in tools.into_iter().enumerate() {
            match tool["type"].as_str() {
                Some("custom") => {
                    let described = tool.get("custom").unwrap_or(&tool);
                    set.custom(index, described, None)?;
                }
                Some("function") | None => {
                    let described = tool.get("function").unwrap_or(&tool);
                    set.add(name(index, described)?, None, ToolKind::Function);
                    set.functions.push(tool);
                }
                Some(_) => {}
            }
        }
        Ok(set)
    }

    /// Reads the tools of a response: flat descriptions, and namespaces of such.
    ///
    /// # Errors
    /// If a function has no name.
    pub fn of_responses(tools: &[Value]) -> Result<ToolSet, Refusal> {
        let mut set = ToolSet::default();
        for (index, tool) in tools.iter().enumerate() {
            if tool["type"] != "namespace" {
                set.flat(index, tool, None)?;
                continue;
            }
            let namespace = name(index, tool)?;
            for tool in tool["tools"].as_array().into_iter().flatten() {
                set.flat(index, tool, Some(&namespace))?;
            }
        }
        Ok(set)
    }

    fn flat(&mut self, index: usize, tool: &Value, namespace: Option<&str>) -> Result<(), Refusal> {
        match tool["type"].as_str() {
            Some("function") => {
                let function = self.add(name(index, tool)?, namespace, ToolKind::Function);
                let parameters = Some(&tool["parameters"]).filter(|parameters| parameters.is_object());
                let nothing = json!({"type": "object", "properties": {}});
                self.describe(&function, &tool["description"], parameters.cloned().unwrap_or(nothing));
                if tool["strict"] == true {
                    let described = self.functions.last_mut().expect("just described");
                    described["function"]["strict"] = true.into();
                }
            }
            Some("custom") => self.custom(index, tool, namespace)?,
            Some("local_shell") => {
                let function = self.add(LOCAL_SHELL.to_owned(), namespace, ToolKind::LocalShell);
                let parameters = json!({
                    "type": "object",
                    "properties": {
                        "command": {"type": "array", "items": {"type": "string"}, "description": "The program and its arguments."},
                        "working_directory": {"type": "string"},
                        "timeout_ms": {"type": "integer"},
                    },
                    "required": ["command"],
                });
                self.describe(&function, &"Runs a command on the user's computer.".into(), parameters);
            }
            _ => {}
        }
        Ok(())
    }

    /// Adds a tool that takes text. Its grammar is described to the model, and enforced.
    fn custom(&mut self, index: usize, tool: &Value, namespace: Option<&str>) -> Result<(), Refusal> {
        let function = self.add(name(index, tool)?, namespace, ToolKind::Custom);
        let format = &tool["format"];
        // Chats have it a level deeper.
        let grammar = format.get("grammar").unwrap_or(format);
        let mut input = json!({"type": "string"});
        let mut description = tool["description"].as_str().unwrap_or_default().to_owned();
        if let Some(definition) = grammar["definition"].as_str() {
            let refused = |why: String| Refusal::field("tools", format!("tool {index}: {why}"));
            let form = match grammar["syntax"].as_str() {
                Some("regex") => {
                    input["pattern"] = format!("^(?:{definition})$").into();
                    Grammar::Regex(definition.to_owned())
                }
                Some("lark") => {
                    description.push_str(&format!("\n\nThe input follows this Lark grammar:\n{definition}"));
                    Grammar::Lark(definition.to_owned())
                }
                other => {
                    let syntax = other.unwrap_or("null");
                    return Err(refused(format!(
                        "the grammar's syntax must be lark or regex, not {syntax}"
                    )));
                }
            };
            form.lark().map_err(|why| refused(why.to_string()))?;
            self.inputs.insert(function.clone(), form);
        }
        let parameters = json!({
            "type": "object",
            "properties": {INPUT: input},
            "required": [INPUT],
            "additionalProperties": false,
        });
        self.describe(&function, &description.trim_start().into(), parameters);
        Ok(())
    }

    /// Adds a tool and returns the name of its function.
    fn add(&mut self, name: String, namespace: Option<&str>, kind: ToolKind) -> String {
        let function = qualified(namespace, &name);
        let namespace = namespace.map(str::to_owned);
        self.tools.push(OfferedTool {
            function: function.clone(),
            name,
            namespace,
            kind,
        });
        function
    }

    fn describe(&mut self, name: &str, description: &Value, parameters: Value) {
        let description = description.as_str().unwrap_or_default();
        let function = json!({"name": name, "description": description, "parameters": parameters});
        self.functions.push(json!({"type": "function", "function": function}));
    }

    /// Returns the functions as chat templates expect them; `None` if there are none.
    pub fn functions(&self) -> Option<Vec<Value>> {
        (!self.functions.is_empty()).then(|| self.functions.clone())
    }

    /// Returns the forms of the texts that custom tools take.
    pub fn inputs(&self) -> &InputGrammars {
        &self.inputs
    }

    /// Returns a choice of tools with the names of their functions.
    pub fn qualified_choice(&self, choice: &Value) -> Value {
        let mut choice = choice.clone();
        let qualify = |choice: &mut Value| {
            if choice["type"] == LOCAL_SHELL {
                choice["name"] = LOCAL_SHELL.into();
            }
            if let (Some(namespace), Some(name)) = (choice["namespace"].as_str(), choice["name"].as_str()) {
                choice["name"] = qualified(Some(namespace), name).into();
            }
        };
        if choice.is_object() {
            qualify(&mut choice);
            let tools = choice.get_mut("tools").and_then(Value::as_array_mut);
            tools
                .into_iter()
                .flatten()
                .filter(|tool| tool.is_object())
                .for_each(qualify);
        }
        choice
    }

    /// Returns the tool that a function stands for.
    pub fn tool(&self, function: &str) -> Option<&OfferedTool> {
        self.tools.iter().find(|tool| tool.function == function)
    }
}

impl OfferedTool {
    /// A function of this name without a namespace.
    pub fn function(name: &str) -> OfferedTool {
        OfferedTool {
            function: name.to_owned(),
            name: name.to_owned(),
            namespace: None,
            kind: ToolKind::Function,
        }
    }
}

/// Returns the name of a function of a namespace.
pub(crate) fn qualified(namespace: Option<&str>, name: &str) -> String {
    match namespace {
        Some(namespace) if namespace.ends_with("__") => format!("{namespace}{name}"),
        Some(namespace) => format!("{namespace}__{name}"),
        None => name.to_owned(),
    }
}

/// Returns the text that a custom tool takes, from the arguments of its function, which may be cut off.
pub(crate) fn custom_input(arguments: &str) -> String {
    if let Ok(parsed) = serde_json::from_str::<Value>(arguments) {
        return parsed[INPUT].as_str().unwrap_or(arguments).to_owned();
    }
    let opening = format!("{{\"{INPUT}\":\"");
    match arguments.strip_prefix(&opening) {
        Some(text) => cut_string(text),
        None if opening.starts_with(arguments) => String::new(),
        None => arguments.to_owned(),
    }
}

/// Returns what is there of a JSON string behind its first quote. An escape that was cut off is left out.
fn cut_string(text: &str) -> String {
    /// Length of a pair of surrogates, each as `\\uXXXX`.
    const MAX_ESCAPE: usize = 12;
    let ends = text.char_indices().map(|(at, _)| at).chain([text.len()]).rev();
    let read = |end: usize| serde_json::from_str(&format!("\"{}\"", &text[..end])).ok();
    ends.take(MAX_ESCAPE + 1).find_map(read).unwrap_or_default()
}

/// Returns the arguments of a custom tool's function for the text it takes.
pub(crate) fn custom_arguments(input: &str) -> Value {
    json!({INPUT: input})
}

fn name(index: usize, tool: &Value) -> Result<String, Refusal> {
    let name = tool["name"].as_str().filter(|name| !name.is_empty());
    name.map(str::to_owned)
        .ok_or_else(|| Refusal::field("tools", format!("tool {index}: a function has no name")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(set: &ToolSet) -> Vec<&str> {
        let functions = set.functions.iter();
        functions
            .map(|tool| tool["function"]["name"].as_str().unwrap())
            .collect()
    }

    #[test]
    fn the_input_of_a_custom_tool_that_was_cut_off_is_its_beginning() {
        for (arguments, input) in [
            (r#"{"input":"a \"b\""}"#, "a \"b\""),
            (r#"{"input":"I Something,"#, "I Something,"),
            (r#"{"input":"I Something,""#, "I Something,"),
            (r#"{"input":"a\\"#, "a\\"),
            (r#"{"input":"a\"#, "a"),
            (r#"{"input":"a\ud83d\u"#, "a"),
            (r#"{"input":"a\ud83d\ude00"#, "a😀"),
            (r#"{"inp"#, ""),
            ("", ""),
            (r#"{"other":1}"#, r#"{"other":1}"#),
        ] {
            assert_eq!(custom_input(arguments), input, "{arguments}");
        }
    }

    #[test]
    fn namespaces_are_spread_and_hosted_tools_passed_over() {
        let tools = json!([
            {"type": "function", "name": "f"},
            {"type": "namespace", "name": "agents", "tools": [
                {"type": "function", "name": "wait", "parameters": {"type": "object"}},
                {"type": "custom", "name": "say"}]},
            {"type": "namespace", "name": "mcp__files__", "tools": [{"type": "function", "name": "read"}]},
            {"type": "web_search"},
            {"type": "local_shell"},
        ]);
        let set = ToolSet::of_responses(tools.as_array().unwrap()).unwrap();
        assert_eq!(
            names(&set),
            ["f", "agents__wait", "agents__say", "mcp__files__read", "local_shell"]
        );
        let wait = set.tool("agents__wait").unwrap();
        assert_eq!((&wait.name[..], wait.namespace.as_deref()), ("wait", Some("agents")));
        assert_eq!(set.tool("agents__say").unwrap().kind, ToolKind::Custom);
        assert_eq!(set.tool("local_shell").unwrap().kind, ToolKind::LocalShell);
        assert_eq!(set.functions[0]["function"]["parameters"]["type"], "object");
        assert!(
            ToolSet::of_responses(&[json!({"type": "web_search"})])
                .unwrap()
                .functions()
                .is_none()
        );
        assert!(ToolSet::of_responses(&[json!({"type": "function"})]).is_err());
    }

    #[test]
    fn custom_tools_take_text() {
        let format = json!({"type": "grammar", "grammar": {"syntax": "regex", "definition": "a+"}});
        let chat = vec![json!({"type": "custom", "custom": {"name": "say", "format": format}})];
        let set = ToolSet::of_chat(chat).unwrap();
        assert_eq!(
            set.functions[0]["function"]["parameters"]["properties"]["input"]["pattern"],
            "^(?:a+)$"
        );
        let flat = json!({"type": "custom", "name": "say", "description": "Says.",
            "format": {"type": "grammar", "syntax": "lark", "definition": "start: \"a\""}});
        let set = ToolSet::of_responses(&[flat]).unwrap();
        let description = set.functions[0]["function"]["description"].as_str().unwrap();
        assert!(
            description.starts_with("Says.") && description.ends_with("start: \"a\""),
            "{description}"
        );
        assert_eq!(set.inputs()["say"], Grammar::Lark("start: \"a\"".to_owned()));
        for (syntax, definition) in [("ebnf", "a"), ("regex", "[ab"), ("lark", " "), ("lark", "root ::= a")] {
            let format = json!({"type": "grammar", "syntax": syntax, "definition": definition});
            let tool = json!({"type": "custom", "name": "say", "format": format});
            assert!(ToolSet::of_responses(&[tool]).is_err(), "{definition}");
        }
        assert_eq!(custom_input(&custom_arguments("a\nb").to_string()), "a\nb");
        assert_eq!(custom_input("plain"), "plain");
    }

    #[test]
    fn functions_of_chats_stay_as_they_are() {
        let tools = vec![
            json!({"type": "function", "function": {"name": "f", "x": 1}}),
            json!({"name": "g"}),
        ];
        assert_eq!(ToolSet::of_chat(tools.clone()).unwrap().functions(), Some(tools));
    }
}
