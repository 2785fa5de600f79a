//! Anthropic's messages and tools as templates expect them.

use serde_json::{Map, Value, json};

use crate::error::Refusal;
use crate::messages;

/// The system's text and the messages: blocks of text in one piece, results of tools as messages of their own.
///
/// # Errors
/// What is no message, or holds what no template here takes.
pub(super) fn read(system: Option<Value>, given: Vec<Value>) -> Result<Vec<Value>, Refusal> {
    if given.last().is_some_and(|last| last["role"] == "assistant") {
        let why = "the last one is the assistant's; going on from it is not supported";
        return Err(Refusal::field("messages", why));
    }
    let mut read = vec![];
    for (index, message) in given.into_iter().enumerate() {
        one(index, message, &mut read)?;
    }
    if read.is_empty() {
        return messages::read(read);
    }
    if let Some(system) = system.filter(|system| !system.is_null()) {
        read.insert(0, json!({"role": "system", "content": system}));
    }
    messages::read(read)
}

fn one(index: usize, message: Value, read: &mut Vec<Value>) -> Result<(), Refusal> {
    let Value::Array(blocks) = &message["content"] else {
        read.push(message);
        return Ok(());
    };
    let is_users = match message["role"].as_str() {
        Some("user") => true,
        Some("assistant") => false,
        role => {
            let why = format!("message {index} has the role {role:?}, which is neither \"user\" nor \"assistant\"");
            return Err(Refusal::field("messages", why));
        }
    };
    let (mut texts, mut thoughts, mut calls) = (vec![], String::new(), vec![]);
    for block in blocks {
        match block["type"].as_str() {
            Some("thinking") if !is_users => thoughts.push_str(block["thinking"].as_str().unwrap_or_default()),
            Some("redacted_thinking") if !is_users => {}
            Some("tool_use") if !is_users => {
                let function = json!({"name": block["name"], "arguments": block["input"]});
                calls.push(json!({"id": block["id"], "type": "function", "function": function}));
            }
            Some("tool_result") if is_users => read.push(json!({
                "role": "tool",
                "tool_call_id": block["tool_use_id"],
                "content": block["content"],
            })),
            // What is no text is refused where parts are read.
            _ => texts.push(block.clone()),
        }
    }
    let mut put = Map::new();
    put.insert("role".to_owned(), message["role"].clone());
    let is_empty = texts.is_empty() && calls.is_empty() && thoughts.is_empty();
    put.insert("content".to_owned(), texts.into());
    if !thoughts.is_empty() {
        put.insert("reasoning_content".to_owned(), thoughts.into());
    }
    if !calls.is_empty() {
        put.insert("tool_calls".to_owned(), calls.into());
    }
    if !is_empty {
        read.push(put.into());
    }
    Ok(())
}

/// Descriptions of functions, as OpenAI's clients give them.
///
/// # Errors
/// Tools that only Anthropic's own servers have.
pub(super) fn tools(given: Vec<Value>) -> Result<Vec<Value>, Refusal> {
    let one = |tool: Value| match (&tool["name"], &tool["input_schema"]) {
        (Value::String(name), Value::Object(schema)) => {
            let function = json!({"name": name, "description": tool["description"], "parameters": schema});
            Ok(json!({"type": "function", "function": function}))
        }
        _ => {
            let kind = tool["type"].as_str().or(tool["name"].as_str()).unwrap_or_default();
            let why = format!("{kind:?} has no name with an input_schema; only such tools are supported");
            Err(Refusal::field("tools", why))
        }
    };
    given.into_iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_become_messages_calls_and_results() {
        let system = json!([{"type": "text", "text": "Be ", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "brief."}]);
        let given = json!([
            {"role": "user", "content": "How warm is it?"},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "Look.", "signature": ""},
                {"type": "text", "text": "Let me see."},
                {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Ulm"}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "7"}]},
                {"type": "text", "text": "And now?"}]},
        ]);
        let Value::Array(given) = given else { unreachable!() };
        let call =
            json!({"id": "toolu_1", "type": "function", "function": {"name": "weather", "arguments": {"city": "Ulm"}}});
        assert_eq!(
            read(Some(system), given).unwrap(),
            [
                json!({"role": "system", "content": "Be brief."}),
                json!({"role": "user", "content": "How warm is it?"}),
                json!({"role": "assistant", "content": "Let me see.", "reasoning_content": "Look.", "tool_calls": [call]}),
                json!({"role": "tool", "tool_call_id": "toolu_1", "content": "7"}),
                json!({"role": "user", "content": "And now?"}),
            ]
        );
    }

    #[test]
    fn what_cannot_be_read_is_told() {
        let said = |message: Value| read(None, vec![message]).unwrap_err().to_string();
        assert!(read(None, vec![]).unwrap_err().to_string().contains("there are none"));
        assert!(said(json!({"role": "assistant", "content": "x"})).contains("the last one"));
        assert!(said(json!({"role": "user", "content": [{"type": "image"}]})).contains("image"));
        assert!(said(json!({"role": "narrator", "content": []})).contains("narrator"));
        let own = tools(vec![json!({"type": "web_search_20250305", "name": "web_search"})]);
        assert!(own.unwrap_err().to_string().contains("web_search"));
    }
}
