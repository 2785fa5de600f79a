//! Items of a conversation as messages.

use serde_json::{Value, json};

use crate::error::Refusal;
use crate::messages;

/// The messages that instructions and input are: calls belong to the message before them, results are their own.
///
/// # Errors
/// What is no item, or of a kind that only OpenAI's own servers have.
pub(super) fn read(instructions: Option<&str>, input: &Value) -> Result<Vec<Value>, Refusal> {
    let mut read = vec![];
    match input {
        Value::String(text) => read.push(json!({"role": "user", "content": text})),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                one(index, item, &mut read)?;
            }
        }
        _ => return Err(Refusal::field("input", "neither a text nor a list of items")),
    }
    if read.is_empty() {
        return Err(Refusal::field("input", "there are no messages"));
    }
    if let Some(instructions) = instructions {
        read.insert(0, json!({"role": "system", "content": instructions}));
    }
    messages::read(read)
}

fn one(index: usize, item: &Value, read: &mut Vec<Value>) -> Result<(), Refusal> {
    match item["type"].as_str() {
        None | Some("message") => read.push(json!({"role": item["role"], "content": item["content"]})),
        Some("function_call") => {
            let function = json!({"name": item["name"], "arguments": item["arguments"]});
            let call = json!({"id": item["call_id"], "type": "function", "function": function});
            assistant(read, "tool_calls", |calls| match calls {
                Value::Array(calls) => calls.push(call),
                calls => *calls = json!([call]),
            });
        }
        Some("function_call_output") => read.push(json!({
            "role": "tool",
            "tool_call_id": item["call_id"],
            "content": item["output"],
        })),
        // Thoughts of earlier answers are no part of the conversation.
        Some("reasoning") => {}
        Some(kind) => {
            let why = format!("item {index} is {kind:?}; messages, functions' calls and outputs are supported");
            return Err(Refusal::field("input", why));
        }
    }
    Ok(())
}

/// Changes a field of the assistant's last message, or of a new one.
fn assistant(read: &mut Vec<Value>, field: &str, change: impl FnOnce(&mut Value)) {
    if read.last().is_none_or(|last| last["role"] != "assistant") {
        read.push(json!({"role": "assistant", "content": ""}));
    }
    if let Some(last) = read.last_mut() {
        change(&mut last[field]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(read(Some("Be brief."), &input).unwrap(), expected);
        let refused = read(None, &json!([{"type": "item_reference", "id": "x"}])).unwrap_err();
        assert!(refused.to_string().contains("item_reference"), "{refused}");
        assert!(read(None, &json!([])).is_err() && read(None, &json!(7)).is_err());
    }
}
