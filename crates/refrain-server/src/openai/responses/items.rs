//! Items of a conversation as messages.

use base64::prelude::{BASE64_STANDARD, Engine};
use serde_json::{Value, json};

use crate::error::Refusal;
use crate::messages;
use crate::openai::object_id;
use crate::openai::tools::{custom_arguments, qualified};

/// Begins the `encrypted_content` that this server writes: the reasoning as base64, for clients that keep nothing else.
const REASONING_PREFIX: &str = "refrain:";

/// Reads instructions and items as messages. Calls belong to the assistant's message before them; results are messages.
///
/// # Errors
/// If a value is not an item, or of a kind that only OpenAI's own servers have.
pub(super) fn read(instructions: Option<&str>, items: &[Value]) -> Result<Vec<Value>, Refusal> {
    let mut reader = ItemReader::default();
    for (index, item) in items.iter().enumerate() {
        reader.read(index, item)?;
    }
    let mut read = reader.messages;
    if read.is_empty() {
        return Err(Refusal::field("input", "there are no messages"));
    }
    if let Some(instructions) = instructions {
        read.insert(0, json!({"role": "system", "content": instructions}));
    }
    messages::read(read).map_err(|refusal| match refusal {
        Refusal::Field { field, why } if field == "messages" => Refusal::field("input", why),
        other => other,
    })
}

/// Returns the items of `input`: a text is a message of the user.
///
/// # Errors
/// If it is neither a text nor a list.
pub(super) fn of_input(input: Value) -> Result<Vec<Value>, Refusal> {
    match input {
        Value::String(text) => Ok(vec![json!({"type": "message", "role": "user", "content": text})]),
        Value::Array(items) => Ok(items),
        _ => Err(Refusal::field("input", "it is neither a string nor a list of items")),
    }
}

/// Returns an item as it is kept: with an id and a type, and the text of a message in parts, as clients expect it back.
pub(super) fn stored(item: Value) -> Value {
    let Value::Object(mut item) = item else { return item };
    if item.get("type").is_none_or(Value::is_null) {
        item.insert("type".to_owned(), "message".into());
    }
    let prefix = match item["type"].as_str() {
        Some("message") => "msg",
        Some("reasoning") => "rs",
        Some("function_call") => "fc",
        Some("function_call_output") => "fco",
        Some("custom_tool_call") => "ctc",
        Some("custom_tool_call_output") => "ctco",
        Some("local_shell_call") => "lsh",
        _ => "item",
    };
    if !item.get("id").is_some_and(Value::is_string) {
        item.insert("id".to_owned(), object_id(prefix).into());
    }
    if prefix == "msg" {
        let is_answer = item.get("role").is_some_and(|role| role == "assistant");
        if let Some(content @ Value::String(_)) = item.get_mut("content") {
            let text = content.take();
            *content = if is_answer {
                json!([{"type": "output_text", "text": text, "annotations": []}])
            } else {
                json!([{"type": "input_text", "text": text}])
            };
        }
        item.entry("status").or_insert_with(|| "completed".into());
    }
    item.into()
}

/// Returns the `encrypted_content` of an item of reasoning.
pub(super) fn encrypted(reasoning: &str) -> String {
    format!("{REASONING_PREFIX}{}", BASE64_STANDARD.encode(reasoning))
}

/// Turns items into messages one by one.
#[derive(Default)]
struct ItemReader {
    messages: Vec<Value>,
    /// Reasoning that belongs to the assistant's next message.
    reasoning: String,
}

impl ItemReader {
    fn read(&mut self, index: usize, item: &Value) -> Result<(), Refusal> {
        match item["type"].as_str() {
            None | Some("message") => self.message(item),
            Some("function_call") => {
                let name = qualified(item["namespace"].as_str(), item["name"].as_str().unwrap_or_default());
                self.call(item, &name, item["arguments"].clone());
            }
            Some("custom_tool_call") => {
                let name = qualified(item["namespace"].as_str(), item["name"].as_str().unwrap_or_default());
                self.call(
                    item,
                    &name,
                    custom_arguments(item["input"].as_str().unwrap_or_default()),
                );
            }
            Some("local_shell_call") => {
                let mut action = item["action"].clone();
                if let Some(action) = action.as_object_mut() {
                    action.retain(|name, value| name != "type" && !value.is_null());
                }
                self.call(item, "local_shell", action);
            }
            Some("function_call_output" | "custom_tool_call_output" | "local_shell_call_output") => self.output(item),
            Some("reasoning") => self.reasoning.push_str(&reasoning(item)),
            Some(kind) if is_hosted(kind) => {}
            Some(kind) => {
                let why = format!("item {index} is {kind:?}; messages, calls and their outputs are supported");
                return Err(Refusal::field("input", why));
            }
        }
        Ok(())
    }

    fn message(&mut self, item: &Value) {
        let mut message = json!({"role": item["role"], "content": item["content"]});
        let reasoning = std::mem::take(&mut self.reasoning);
        if item["role"] == "assistant" && !reasoning.is_empty() {
            message["reasoning_content"] = reasoning.into();
        }
        self.messages.push(message);
    }

    fn call(&mut self, item: &Value, name: &str, arguments: Value) {
        let id = [&item["call_id"], &item["id"]].into_iter().find(|id| id.is_string());
        let function = json!({"name": name, "arguments": arguments});
        let call = json!({"id": id, "type": "function", "function": function});
        if self.messages.last().is_none_or(|last| last["role"] != "assistant") {
            self.messages.push(json!({"role": "assistant", "content": ""}));
        }
        let Some(last) = self.messages.last_mut() else { return };
        if !self.reasoning.is_empty() {
            let before = last["reasoning_content"].as_str().unwrap_or_default();
            last["reasoning_content"] = format!("{before}{}", std::mem::take(&mut self.reasoning)).into();
        }
        match &mut last["tool_calls"] {
            Value::Array(calls) => calls.push(call),
            calls => *calls = json!([call]),
        }
    }

    fn output(&mut self, item: &Value) {
        self.reasoning.clear();
        let id = [&item["call_id"], &item["id"]].into_iter().find(|id| id.is_string());
        let content = match &item["output"] {
            output @ (Value::String(_) | Value::Array(_) | Value::Null) => output.clone(),
            output => output.to_string().into(),
        };
        self.messages
            .push(json!({"role": "tool", "tool_call_id": id, "content": content}));
    }
}

/// Whether an item is of a tool that runs on OpenAI's servers, or means nothing to a model. Such items are passed over.
fn is_hosted(kind: &str) -> bool {
    [
        "_call",
        "_call_output",
        "_list_tools",
        "_approval_request",
        "_approval_response",
    ]
    .iter()
    .any(|end| kind.ends_with(end))
        || matches!(kind, "compaction" | "ghost_snapshot" | "other")
}

/// Returns the text of an item of reasoning.
fn reasoning(item: &Value) -> String {
    let parts = item["content"].as_array().into_iter().flatten();
    let text: String = parts.filter_map(|part| part["text"].as_str()).collect();
    if !text.is_empty() {
        return text;
    }
    let encrypted = item["encrypted_content"].as_str();
    let encoded = encrypted.and_then(|content| content.strip_prefix(REASONING_PREFIX));
    let decoded = encoded.and_then(|content| BASE64_STANDARD.decode(content).ok());
    decoded
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(input: Value) -> Vec<Value> {
        of_input(input).unwrap()
    }

    #[test]
    fn items_become_messages() {
        let input = json!([
            {"role": "user", "content": [{"type": "input_text", "text": "How warm is it?"}]},
            {"type": "reasoning", "id": "rs_1", "summary": []},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
            {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{\"x\": 1}"},
            {"type": "function_call", "call_id": "c2", "name": "g", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "7"},
        ]);
        let call = |id: &str, name: &str, arguments: Value| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
        let calls = [call("c1", "f", json!({"x": 1})), call("c2", "g", json!({}))];
        let expected = [
            json!({"role": "system", "content": "Be brief."}),
            json!({"role": "user", "content": "How warm is it?"}),
            json!({"role": "assistant", "content": "I look.", "tool_calls": calls}),
            json!({"role": "tool", "tool_call_id": "c1", "content": "7"}),
        ];
        assert_eq!(read(Some("Be brief."), &items(input)).unwrap(), expected);
        let refused = read(None, &[json!({"type": "item_reference", "id": "x"})]).unwrap_err();
        assert!(refused.to_string().contains("item_reference"), "{refused}");
        let image = json!([{"role": "user", "content": [{"type": "input_image"}]}]);
        let refused = read(None, &items(image)).unwrap_err().to_string();
        assert!(
            refused.starts_with("input: ") && refused.contains("input_image"),
            "{refused}"
        );
        assert!(read(None, &[]).is_err() && of_input(json!(7)).is_err());
        assert_eq!(
            read(None, &items(json!("q"))).unwrap(),
            [json!({"role": "user", "content": "q"})]
        );
    }

    #[test]
    fn items_are_kept_with_ids_and_the_text_of_messages_in_parts() {
        let question = stored(json!({"role": "user", "content": "q"}));
        let id = question["id"].as_str().unwrap();
        assert!(id.starts_with("msg_"), "{id}");
        assert_eq!(question["content"], json!([{"type": "input_text", "text": "q"}]));
        assert_eq!(
            (&question["type"], &question["status"]),
            (&json!("message"), &json!("completed"))
        );
        let answer = stored(json!({"type": "message", "id": "msg_1", "role": "assistant", "content": "a"}));
        assert_eq!(
            (&answer["id"], &answer["content"][0]["type"]),
            (&json!("msg_1"), &json!("output_text"))
        );
        let call = stored(json!({"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"}));
        assert!(call["id"].as_str().unwrap().starts_with("fc_") && call.get("status").is_none());
        assert_eq!(stored(json!(7)), json!(7));
    }

    #[test]
    fn calls_of_namespaces_custom_tools_and_shells_are_calls() {
        let read = read(
            None,
            &[
                json!({"type": "function_call", "call_id": "1", "namespace": "agents", "name": "wait", "arguments": "{}"}),
                json!({"type": "custom_tool_call", "call_id": "2", "name": "say", "input": "hm"}),
                json!({"type": "local_shell_call", "call_id": "3", "action": {"type": "exec", "command": ["ls"], "env": null}}),
                json!({"type": "web_search_call", "id": "ws_1", "status": "completed"}),
                json!({"type": "custom_tool_call_output", "call_id": "2", "output": [{"type": "input_text", "text": "ok"}]}),
                json!({"type": "local_shell_call_output", "id": "3", "output": {"exit_code": 0}}),
            ],
        );
        let read = read.unwrap();
        let function = |index: usize| &read[0]["tool_calls"][index]["function"];
        assert_eq!(function(0)["name"], "agents__wait");
        assert_eq!(function(1), &json!({"name": "say", "arguments": {"input": "hm"}}));
        assert_eq!(
            function(2),
            &json!({"name": "local_shell", "arguments": {"command": ["ls"]}})
        );
        assert_eq!(
            (&read[1]["content"], &read[2]["content"]),
            (&json!("ok"), &json!("{\"exit_code\":0}"))
        );
    }

    #[test]
    fn reasoning_belongs_to_the_answer_behind_it() {
        let call = json!({"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"});
        for item in [
            json!({"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}]}),
            json!({"type": "reasoning", "summary": [], "encrypted_content": encrypted("hm")}),
        ] {
            assert_eq!(read(None, &[item, call.clone()]).unwrap()[0]["reasoning_content"], "hm");
        }
        let foreign = json!({"type": "reasoning", "summary": [], "encrypted_content": "gAAAA"});
        assert_eq!(read(None, &[foreign, call]).unwrap()[0].get("reasoning_content"), None);
    }
}
