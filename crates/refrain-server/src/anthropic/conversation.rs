//! Anthropic's messages and tools, as chat templates expect them.

use serde_json::{Map, Value, json};

use super::blocks::{is_server_block, text};
use crate::error::Refusal;
use crate::messages;

/// The beginning of a block that Claude Code puts first and changes with each request. It is no instruction for the
/// model, and would keep prompts from sharing their prefix.
const BILLING_HEADER: &str = "x-anthropic-billing-header:";

/// Returns the system prompt and the messages: blocks of text joined, tool results as messages of their own.
///
/// # Errors
/// What is not a message, or holds a block that is not supported.
pub(super) fn read(system: Option<Value>, given: Vec<Value>) -> Result<Vec<Value>, Refusal> {
    let mut read = vec![];
    for (index, message) in given.into_iter().enumerate() {
        read_message(index, message, &mut read)?;
    }
    if read.is_empty() {
        return messages::read(read);
    }
    let system = system.as_ref().map(system_text).transpose()?;
    if let Some(system) = system.filter(|text| !text.is_empty()) {
        read.insert(0, json!({"role": "system", "content": system}));
    }
    messages::read(read)
}

/// The system prompt: a text, or blocks of text.
fn system_text(system: &Value) -> Result<String, Refusal> {
    let is_instruction = |block: &&Value| !block["text"].as_str().unwrap_or_default().starts_with(BILLING_HEADER);
    match system {
        Value::Null => Ok(String::new()),
        Value::String(text) => Ok(text.clone()),
        Value::Array(blocks) => blocks
            .iter()
            .filter(is_instruction)
            .map(|block| text("system", block))
            .collect(),
        _ => Err(Refusal::field("system", "must be a text or a list of text blocks")),
    }
}

fn read_message(index: usize, message: Value, read: &mut Vec<Value>) -> Result<(), Refusal> {
    let role = match message["role"].as_str() {
        Some("developer") => "system",
        Some("user") => "user",
        Some("assistant") => "assistant",
        Some("system") => "system",
        Some(role) => {
            let why =
                format!("message {index} has the role {role:?}; the roles are \"user\", \"assistant\" and \"system\"");
            return Err(Refusal::field("messages", why));
        }
        // Refused with the other values that are no messages.
        None => {
            read.push(message);
            return Ok(());
        }
    };
    let Value::Array(blocks) = &message["content"] else {
        read.push(message);
        return Ok(());
    };
    let place = format!("message {index}");
    let (mut content, mut reasoning, mut calls) = (vec![], String::new(), vec![]);
    for block in blocks {
        match (role, block["type"].as_str().unwrap_or_default()) {
            ("assistant", "thinking") => reasoning.push_str(block["thinking"].as_str().unwrap_or_default()),
            ("assistant", "redacted_thinking") => {}
            ("assistant", "tool_use") => calls.push(call(block)),
            ("assistant", kind) if is_server_block(kind) => {}
            ("user", "tool_result") => read.push(tool_result(index, block)?),
            _ => content.push(json!({"type": "text", "text": text(&place, block)?})),
        }
    }
    if content.is_empty() && calls.is_empty() && reasoning.is_empty() {
        return Ok(());
    }
    let mut put = Map::new();
    put.insert("role".to_owned(), role.into());
    put.insert("content".to_owned(), content.into());
    if !reasoning.is_empty() {
        put.insert("reasoning_content".to_owned(), reasoning.into());
    }
    if !calls.is_empty() {
        put.insert("tool_calls".to_owned(), calls.into());
    }
    read.push(put.into());
    Ok(())
}

fn call(block: &Value) -> Value {
    let input = match &block["input"] {
        Value::Null => json!({}),
        input => input.clone(),
    };
    json!({"id": block["id"], "type": "function", "function": {"name": block["name"], "arguments": input}})
}

fn tool_result(index: usize, block: &Value) -> Result<Value, Refusal> {
    let place = format!("a tool result in message {index}");
    let content = match &block["content"] {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(blocks) => blocks
            .iter()
            .map(|block| text(&place, block))
            .collect::<Result<_, _>>()?,
        _ => {
            let why = format!("the content of {place} must be a text or a list of blocks");
            return Err(Refusal::field("messages", why));
        }
    };
    Ok(json!({"role": "tool", "tool_call_id": block["tool_use_id"], "content": content}))
}

/// Returns the descriptions of functions, as OpenAI's clients give them. Tools that Anthropic's servers run, or that
/// only its models know, are left out.
///
/// # Errors
/// A tool without a name or a schema.
pub(super) fn tools(given: Vec<Value>) -> Result<Vec<Value>, Refusal> {
    let functions = given.into_iter().enumerate().map(|(index, tool)| function(index, tool));
    functions.filter_map(Result::transpose).collect()
}

fn function(index: usize, mut tool: Value) -> Result<Option<Value>, Refusal> {
    if !tool.is_object() {
        return Err(Refusal::field("tools", format!("tool {index} is not an object")));
    }
    if tool["type"].as_str().is_some_and(|kind| kind != "custom") {
        return Ok(None);
    }
    let Some(name) = tool["name"].as_str().filter(|name| !name.is_empty()).map(str::to_owned) else {
        return Err(Refusal::field("tools", format!("tool {index} has no name")));
    };
    let schema = tool["input_schema"].take();
    if !schema.is_object() {
        let why = format!("the input_schema of tool {name:?} must be a JSON schema, an object");
        return Err(Refusal::field("tools", why));
    }
    let mut function = Map::new();
    function.insert("name".to_owned(), name.into());
    if let Some(description) = tool["description"].as_str() {
        function.insert("description".to_owned(), description.into());
    }
    function.insert("parameters".to_owned(), schema);
    Ok(Some(json!({"type": "function", "function": function})))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(system: Option<Value>, given: Value) -> Result<Vec<Value>, Refusal> {
        let Value::Array(given) = given else { unreachable!() };
        read(system, given)
    }

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
        let call =
            json!({"id": "toolu_1", "type": "function", "function": {"name": "weather", "arguments": {"city": "Ulm"}}});
        assert_eq!(
            read_all(Some(system), given).unwrap(),
            [
                json!({"role": "system", "content": "Be brief."}),
                json!({"role": "user", "content": "How warm is it?"}),
                json!({"role": "assistant", "content": "Let me see.", "reasoning_content": "Look.", "reasoning": "Look.", "thinking": "Look.", "tool_calls": [call]}),
                json!({"role": "tool", "tool_call_id": "toolu_1", "content": "7"}),
                json!({"role": "user", "content": "And now?"}),
            ]
        );
    }

    #[test]
    fn system_messages_are_accepted_among_the_others() {
        let given = json!([
            {"role": "user", "content": [{"type": "text", "text": "q", "cache_control": {"type": "ephemeral", "ttl": "1h"}}]},
            {"role": "system", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        ]);
        let read = read_all(Some("Be brief.".into()), given).unwrap();
        let text = read.iter().map(|message| message["content"].as_str().unwrap());
        let text = text.collect::<Vec<_>>().join(" ");
        assert!(
            text.contains("ab") && text.contains("Be brief.") && text.contains('q'),
            "{text}"
        );
    }

    #[test]
    fn the_changing_billing_header_is_not_part_of_the_prompt() {
        let header = format!("{BILLING_HEADER} cc_version=2.1.197; cch=a1b2c;");
        let system = json!([{"type": "text", "text": header}, {"type": "text", "text": "Be brief."}]);
        let read = read_all(Some(system), json!([{"role": "user", "content": "q"}])).unwrap();
        assert_eq!(read[0], json!({"role": "system", "content": "Be brief."}));
        let without = read_all(Some(json!("")), json!([{"role": "user", "content": "q"}])).unwrap();
        assert_eq!(without.len(), 1, "an empty system prompt is none");
    }

    #[test]
    fn blocks_of_anthropics_own_servers_are_passed_over() {
        let given = json!([
            {"role": "user", "content": "q"},
            {"role": "assistant", "content": [
                {"type": "redacted_thinking", "data": "x"},
                {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
                {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
                {"type": "text", "text": "a"}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x"}, {"type": "text", "text": "b"}]},
        ]);
        let read = read_all(None, given).unwrap();
        assert_eq!(read[1], json!({"role": "assistant", "content": "a"}));
        assert_eq!(read[2], json!({"role": "tool", "tool_call_id": "x", "content": ""}));
    }

    #[test]
    fn refuses_what_is_not_supported() {
        let error = |message: Value| read(None, vec![message]).unwrap_err().to_string();
        assert!(read(None, vec![]).unwrap_err().to_string().starts_with("messages: "));
        assert!(error(json!({"role": "user", "content": [{"type": "image"}]})).contains("image"));
        for content in [json!([]), json!("x")] {
            assert!(error(json!({"role": "narrator", "content": content})).contains("narrator"));
        }
        assert!(error(json!({"content": []})).contains("message 0 has no role"));
        let result = json!({"type": "tool_result", "tool_use_id": "x", "content": [{"type": "image", "source": {}}]});
        let error = error(json!({"role": "user", "content": [result]}));
        assert!(
            error.contains("a tool result in message 0") && error.contains("image"),
            "{error}"
        );
        let error = read(Some(json!(7)), vec![json!({"role": "user", "content": "q"})]).unwrap_err();
        assert!(error.to_string().starts_with("system: "), "{error}");
    }

    #[test]
    fn tools_without_a_schema_of_their_own_are_passed_over() {
        let schema = json!({"type": "object", "properties": {}});
        let given = vec![
            json!({"type": "web_search_20250305", "name": "web_search", "max_uses": 5}),
            json!({"type": "bash_20250124", "name": "bash"}),
            json!({"name": "f", "input_schema": schema, "cache_control": {"type": "ephemeral"}}),
            json!({"type": "custom", "name": "g", "description": "d", "input_schema": {}}),
        ];
        let f = json!({"type": "function", "function": {"name": "f", "parameters": schema}});
        let g = json!({"type": "function", "function": {"name": "g", "description": "d", "parameters": {}}});
        assert_eq!(tools(given).unwrap(), [f, g]);
        for (tool, why) in [
            (json!(7), "tool 0 is not an object"),
            (json!({"input_schema": {}}), "tool 0 has no name"),
            (json!({"name": "f"}), "input_schema of tool \"f\""),
            (json!({"name": "f", "input_schema": []}), "input_schema of tool \"f\""),
        ] {
            let error = tools(vec![tool]).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
