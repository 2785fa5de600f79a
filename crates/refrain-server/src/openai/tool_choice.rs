//! `tool_choice` in the forms of all interfaces and generations.

use serde_json::Value;

use crate::error::Refusal;

/// Whether the model calls tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallMode {
    /// As it likes.
    Auto,
    /// It must not.
    None,
    /// It must.
    Required,
}

/// The functions that may be called; `None`: all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AllowedFunctions(Option<Vec<String>>);

/// A choice that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ToolChoice {
    pub mode: CallMode,
    pub allowed: AllowedFunctions,
}

const FIELD: &str = "tool_choice";

/// Reads a choice:
///
/// - a word: `auto`, `none`, `required`, or `any` as Mistral's clients write it;
/// - a function: `{"type": "function", "function": {"name": …}}`, or with the name a level higher, also of type
///   `custom`;
/// - several: `{"type": "allowed_tools", "mode": …, "tools": […]}`, perhaps within `allowed_tools`.
///
/// # Errors
/// If it is none of these.
pub(super) fn read(choice: Option<&Value>) -> Result<ToolChoice, Refusal> {
    let of_mode = |mode| ToolChoice {
        mode,
        allowed: AllowedFunctions(None),
    };
    match choice {
        None | Some(Value::Null) => Ok(of_mode(CallMode::Auto)),
        Some(Value::String(word)) => mode(word).map(of_mode),
        Some(choice @ Value::Object(_)) => {
            let kind = choice["type"].as_str();
            if kind == Some("allowed_tools") {
                return several(choice);
            }
            if let Some(name) = name(choice) {
                return Ok(ToolChoice {
                    mode: CallMode::Required,
                    allowed: AllowedFunctions(Some(vec![name.to_owned()])),
                });
            }
            match kind {
                None | Some("function" | "custom" | "tool") => Err(Refusal::field(FIELD, "it names no function")),
                Some(kind) => mode(kind).map(of_mode),
            }
        }
        Some(_) => Err(Refusal::field(FIELD, "expected a string or an object")),
    }
}

fn mode(word: &str) -> Result<CallMode, Refusal> {
    match word {
        "auto" => Ok(CallMode::Auto),
        "none" => Ok(CallMode::None),
        "required" | "any" => Ok(CallMode::Required),
        _ => {
            let why = format!("{word:?} is none of \"auto\", \"none\" and \"required\", and no function");
            Err(Refusal::field(FIELD, why))
        }
    }
}

fn several(choice: &Value) -> Result<ToolChoice, Refusal> {
    let allowed = choice.get("allowed_tools").unwrap_or(choice);
    let Some(tools) = allowed["tools"].as_array() else {
        return Err(Refusal::field(FIELD, "allowed_tools needs a list of tools"));
    };
    // Tools that are no functions are not offered.
    let names = tools.iter().filter_map(name).map(str::to_owned);
    Ok(ToolChoice {
        mode: mode(allowed["mode"].as_str().unwrap_or("auto"))?,
        allowed: AllowedFunctions(Some(names.collect())),
    })
}

/// Returns the name of a function in a choice or a tool.
fn name(tool: &Value) -> Option<&str> {
    function(tool)["name"].as_str()
}

/// Returns the description of a tool's function: within the tool, or the tool itself.
pub(super) fn function(tool: &Value) -> &Value {
    let within = tool.get("function").or_else(|| tool.get("custom"));
    within.filter(|within| within.is_object()).unwrap_or(tool)
}

impl AllowedFunctions {
    /// Whether a single function may be called.
    pub fn is_one(&self) -> bool {
        self.0.as_ref().is_some_and(|names| names.len() == 1)
    }

    /// Returns the tools that may be called.
    ///
    /// # Errors
    /// If one is not offered.
    pub fn filter(&self, tools: Option<Vec<Value>>) -> Result<Option<Vec<Value>>, Refusal> {
        let Some(names) = &self.0 else {
            return Ok(tools);
        };
        let mut tools = tools.unwrap_or_default();
        let is_offered = |wanted: &&String| tools.iter().any(|tool| name(tool) == Some(wanted.as_str()));
        if let Some(missing) = names.iter().find(|name| !is_offered(name)) {
            return Err(Refusal::field(FIELD, format!("there is no function {missing:?}")));
        }
        tools.retain(|tool| name(tool).is_some_and(|name| names.iter().any(|allowed| allowed == name)));
        Ok(Some(tools))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn choice(value: Value) -> ToolChoice {
        read(Some(&value)).unwrap()
    }

    #[test]
    fn reads_the_choices_of_all_generations() {
        assert_eq!(read(None).unwrap(), choice(json!("auto")));
        assert_eq!(choice(json!({"type": "auto"})), choice(json!("auto")));
        assert_eq!(choice(json!("any")), choice(json!("required")));
        assert_eq!(choice(json!({"type": "none"})).mode, CallMode::None);
        let named = choice(json!({"type": "function", "function": {"name": "f"}}));
        assert_eq!((named.mode, named.allowed.is_one()), (CallMode::Required, true));
        for other in [
            json!({"name": "f"}),
            json!({"type": "function", "name": "f"}),
            json!({"type": "custom", "custom": {"name": "f"}}),
            json!({"type": "tool", "name": "f"}),
            json!({"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "f"}]}),
        ] {
            assert_eq!(choice(other), named);
        }
        let tools = json!([{"type": "function", "function": {"name": "f"}}, {"type": "web_search"}]);
        let allowed = choice(json!({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": tools}}));
        assert_eq!((allowed.mode, &allowed.allowed), (CallMode::Auto, &named.allowed));
    }

    #[test]
    fn refuses_what_is_no_choice() {
        for wrong in [
            json!("f"),
            json!(7),
            json!({}),
            json!({"type": "web_search"}),
            json!({"type": "allowed_tools"}),
        ] {
            assert!(
                read(Some(&wrong)).unwrap_err().to_string().starts_with("tool_choice: "),
                "{wrong}"
            );
        }
    }

    #[test]
    fn only_allowed_functions_stay() {
        let tools = || Some(vec![json!({"function": {"name": "f"}}), json!({"name": "g"})]);
        let allowed = |names: &[&str]| AllowedFunctions(Some(names.iter().map(|name| (*name).to_owned()).collect()));
        assert_eq!(AllowedFunctions(None).filter(tools()).unwrap(), tools());
        assert_eq!(
            allowed(&["g"]).filter(tools()).unwrap(),
            Some(vec![json!({"name": "g"})])
        );
        assert!(
            allowed(&["h"])
                .filter(tools())
                .unwrap_err()
                .to_string()
                .contains("there is no function \"h\"")
        );
    }
}
