//! Messages as clients send them, for templates.

use serde_json::{Map, Value};

use crate::error::Refusal;

/// Messages as templates expect them: text in one piece, arguments of calls as objects.
///
/// # Errors
/// What is no message, or holds what no template here takes.
pub(crate) fn read(messages: Vec<Value>) -> Result<Vec<Value>, Refusal> {
    if messages.is_empty() {
        return Err(Refusal::field("messages", "there are none"));
    }
    let read = |(index, message): (usize, Value)| match message {
        Value::Object(message) => one(index, message),
        _ => Err(Refusal::field("messages", format!("message {index} is no object"))),
    };
    messages.into_iter().enumerate().map(read).collect()
}

fn one(index: usize, mut message: Map<String, Value>) -> Result<Value, Refusal> {
    match message.get("role").and_then(Value::as_str) {
        // OpenAI's newer name; templates know the older.
        Some("developer") => drop(message.insert("role".to_owned(), "system".into())),
        Some(_) => {}
        None => return Err(Refusal::field("messages", format!("message {index} has no role"))),
    }
    let content = match message.remove("content") {
        Some(Value::Array(parts)) => text(index, &parts)?.into(),
        Some(Value::String(text)) => text.into(),
        Some(Value::Null) | None => "".into(),
        Some(_) => {
            let why = format!("the content of message {index} is neither a text nor a list of parts");
            return Err(Refusal::field("messages", why));
        }
    };
    message.insert("content".to_owned(), content);
    let calls = message.get_mut("tool_calls").and_then(Value::as_array_mut);
    for call in calls.into_iter().flatten() {
        let Some(function) = call.get_mut("function").and_then(Value::as_object_mut) else {
            let why = format!("a call in message {index} has no function");
            return Err(Refusal::field("messages", why));
        };
        let arguments = function.get("arguments").and_then(Value::as_str);
        if let Some(Ok(object @ Value::Object(_))) = arguments.map(serde_json::from_str) {
            function.insert("arguments".to_owned(), object);
        }
    }
    if message.get("tool_calls").is_some_and(Value::is_null) {
        message.remove("tool_calls");
    }
    Ok(message.into())
}

/// The text of parts.
fn text(index: usize, parts: &[Value]) -> Result<String, Refusal> {
    let part = |part: &Value| match (part["type"].as_str(), part["text"].as_str()) {
        (Some("text" | "input_text" | "output_text"), Some(text)) => Ok(text.to_owned()),
        (Some(kind), _) => Err(Refusal::field(
            "messages",
            format!("message {index} has a part {kind:?}; only text is supported"),
        )),
        _ => Err(Refusal::field(
            "messages",
            format!("message {index} has a part without a type"),
        )),
    };
    parts.iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn parts_of_text_become_one_text() {
        let read = read(vec![
            json!({"role": "developer", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}),
            json!({"role": "assistant", "content": null, "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}}]}),
        ]);
        let read = read.unwrap();
        assert_eq!(read[0], json!({"role": "system", "content": "ab"}));
        assert_eq!(read[1]["content"], "");
        assert_eq!(read[1]["tool_calls"][0]["function"]["arguments"], json!({"x": 1}));
    }

    #[test]
    fn what_is_no_message_is_refused_by_its_number() {
        let said = |messages: Vec<Value>| read(messages).unwrap_err().to_string();
        assert!(said(vec![]).contains("there are none"));
        assert!(said(vec![json!("hello")]).contains("message 0 is no object"));
        assert!(said(vec![json!({"content": "x"})]).contains("message 0 has no role"));
        assert!(said(vec![json!({"role": "user", "content": 7})]).contains("message 0"));
        let image = json!({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]});
        assert!(said(vec![image]).contains("image_url"));
        for call in [
            json!(7),
            json!("f"),
            json!({"function": null}),
            json!({"function": "f"}),
        ] {
            let message = json!({"role": "assistant", "content": "", "tool_calls": [call]});
            assert!(said(vec![message]).contains("a call in message 0"));
        }
    }
}
