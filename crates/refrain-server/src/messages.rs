//! Messages as clients send them, turned into what chat templates expect.

use refrain_text::{Conversation, exact};
use serde_json::{Map, Value, json};

use crate::error::Refusal;
use crate::openai::new_call_id;
use crate::openai::tools::custom_arguments;

/// The fields by which clients and templates name the reasoning of an earlier answer.
const REASONING: [&str; 3] = ["reasoning_content", "reasoning", "thinking"];

/// Reads messages: text in one piece, arguments of calls as objects, one system message at the beginning, and
/// reasoning under all its names.
///
/// # Errors
/// If a value is not a message, or holds something that no template here takes.
pub(crate) fn read(messages: Vec<Value>) -> Result<Vec<Value>, Refusal> {
    if messages.is_empty() {
        return Err(Refusal::field("messages", "there are none"));
    }
    let read = |(index, message): (usize, Value)| match message {
        Value::Object(message) => one(index, message),
        _ => Err(Refusal::field("messages", format!("message {index} is no object"))),
    };
    let read: Result<Vec<_>, _> = messages.into_iter().enumerate().map(read).collect();
    Ok(with_one_system_message(read?))
}

/// Joins all system messages to one at the beginning: templates take no other.
fn with_one_system_message(messages: Vec<Value>) -> Vec<Value> {
    let is_system = |message: &Value| message["role"] == "system";
    if !messages.iter().skip(1).any(is_system) {
        return messages;
    }
    let (system, mut others): (Vec<Value>, Vec<Value>) = messages.into_iter().partition(is_system);
    let texts = system.iter().filter_map(|message| message["content"].as_str());
    let texts: Vec<&str> = texts.filter(|text| !text.is_empty()).collect();
    others.insert(0, json!({"role": "system", "content": texts.join("\n\n")}));
    others
}

fn one(index: usize, mut message: Map<String, Value>) -> Result<Value, Refusal> {
    match message.get("role").and_then(Value::as_str) {
        // OpenAI's newer name; templates know the older.
        Some("developer") => drop(message.insert("role".to_owned(), "system".into())),
        // OpenAI's older name of a tool's result.
        Some("function") => drop(message.insert("role".to_owned(), "tool".into())),
        Some(_) => {}
        None => return Err(Refusal::field("messages", format!("message {index} has no role"))),
    }
    let refusal = message.shift_remove("refusal").filter(Value::is_string);
    let mut reasoning = String::new();
    let content = match message.shift_remove("content") {
        Some(Value::Array(parts)) => text(index, &parts, &mut reasoning)?.into(),
        Some(Value::String(text)) => text.into(),
        Some(Value::Null) | None => refusal.unwrap_or_else(|| "".into()),
        Some(_) => {
            let why = format!("the content of message {index} is neither a string nor a list of parts");
            return Err(Refusal::field("messages", why));
        }
    };
    message.insert("content".to_owned(), content);
    if message["role"] == "assistant" {
        fill_reasoning(&mut message, reasoning);
        read_calls(index, &mut message)?;
    } else if message.get("tool_calls").is_some_and(is_nothing) {
        message.shift_remove("tool_calls");
    }
    Ok(message.into())
}

/// Whether a field is as good as absent.
fn is_nothing(value: &Value) -> bool {
    value.is_null() || value.as_array().is_some_and(Vec::is_empty)
}

/// Writes the reasoning of an earlier answer under all its names: templates and clients differ in them.
fn fill_reasoning(message: &mut Map<String, Value>, in_content: String) {
    let mut reasoning = None;
    for name in REASONING {
        if message
            .get(name)
            .is_some_and(|value| value.is_null() || value.is_string())
        {
            let text = message.shift_remove(name);
            reasoning = reasoning.or(text.filter(|text| text.as_str().is_some_and(|text| !text.is_empty())));
        }
    }
    let in_content = (!in_content.is_empty()).then(|| in_content.into());
    if let Some(reasoning) = reasoning.or(in_content) {
        for name in REASONING {
            message.insert(name.to_owned(), reasoning.clone());
        }
    }
}

/// Removes the reasoning of earlier answers that have both text and calls: the template of gpt-oss takes no such answer
/// with all three. Returns `None` if there is none.
pub(crate) fn without_disputed_reasoning(conversation: &Conversation) -> Option<Conversation> {
    let is_disputed = |message: &Value| {
        let has_text = message["content"].as_str().is_some_and(|text| !text.is_empty());
        has_text && message.get("tool_calls").is_some() && REASONING.iter().any(|name| message.get(name).is_some())
    };
    conversation.messages.iter().any(is_disputed).then(|| {
        let mut conversation = conversation.clone();
        for message in conversation.messages.iter_mut().filter(|message| is_disputed(message)) {
            let fields = message.as_object_mut().into_iter();
            fields.for_each(|fields| fields.retain(|name, _| !REASONING.contains(&name.as_str())));
        }
        conversation
    })
}

/// Reads the calls of an earlier answer. An empty list is none.
fn read_calls(index: usize, message: &mut Map<String, Value>) -> Result<(), Refusal> {
    // OpenAI's older field for a single call.
    let older = message.shift_remove("function_call").filter(Value::is_object);
    let calls = message.shift_remove("tool_calls").filter(|calls| !is_nothing(calls));
    let older = older.map(|function| json!([{"type": "function", "function": function}]));
    let Some(mut calls) = calls.or(older) else {
        return Ok(());
    };
    for call in calls.as_array_mut().into_iter().flatten() {
        if call["type"] == "custom" {
            let custom = call["custom"].take();
            let arguments = custom_arguments(custom["input"].as_str().unwrap_or_default());
            let function = json!({"name": custom["name"], "arguments": arguments});
            *call = json!({"id": call["id"], "type": "function", "function": function});
        }
        let Some(function) = call.get_mut("function").and_then(Value::as_object_mut) else {
            let why = format!("a call in message {index} has no function");
            return Err(Refusal::field("messages", why));
        };
        let arguments = arguments(function.get("arguments"));
        function.insert("arguments".to_owned(), arguments);
        if let Some(call) = call
            .as_object_mut()
            .filter(|call| !call.get("id").is_some_and(Value::is_string))
        {
            call.insert("id".to_owned(), new_call_id().into());
        }
    }
    message.insert("tool_calls".to_owned(), calls);
    Ok(())
}

/// Returns the arguments of a call as an object. Text that is not JSON stays.
fn arguments(given: Option<&Value>) -> Value {
    match given {
        None | Some(Value::Null) => json!({}),
        Some(Value::String(text)) if text.trim().is_empty() => json!({}),
        Some(Value::String(text)) => match exact::parse(text) {
            Ok(Value::Null) => json!({}),
            Ok(object @ Value::Object(_)) => object,
            _ => text.as_str().into(),
        },
        Some(other) => other.clone(),
    }
}

/// Joins the text of parts. Reasoning among them is appended to `reasoning`.
fn text(index: usize, parts: &[Value], reasoning: &mut String) -> Result<String, Refusal> {
    let mut joined = String::new();
    for part in parts {
        let Some(kind) = part["type"].as_str() else {
            let why = format!("message {index} has a part without a type");
            return Err(Refusal::field("messages", why));
        };
        let field = match kind {
            "text" | "input_text" | "output_text" | "summary_text" => "text",
            "refusal" => "refusal",
            "thinking" | "reasoning" | "reasoning_text" => {
                reasoning.push_str(&reasoning_text(index, kind, part)?);
                continue;
            }
            _ => {
                let why = format!("message {index} has a part {kind:?}; only text is supported");
                return Err(Refusal::field("messages", why));
            }
        };
        match part[field].as_str() {
            Some(text) => joined.push_str(text),
            None => {
                let why = format!("message {index} has a part {kind:?} whose {field} is no string");
                return Err(Refusal::field("messages", why));
            }
        }
    }
    Ok(joined)
}

/// Returns the text of a part with reasoning: a string, or parts of text as Mistral writes them.
fn reasoning_text(index: usize, kind: &str, part: &Value) -> Result<String, Refusal> {
    let value = ["thinking", "text", "reasoning"]
        .into_iter()
        .find_map(|field| part.get(field));
    match value {
        Some(Value::String(text)) => Ok(text.clone()),
        Some(Value::Array(parts)) => Ok(parts.iter().filter_map(|part| part["text"].as_str()).collect()),
        _ => {
            let why = format!("message {index} has a part {kind:?} without text");
            Err(Refusal::field("messages", why))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assistant(fields: Value) -> Value {
        let mut message = json!({"role": "assistant", "content": "a"});
        message
            .as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        read(vec![message]).unwrap().remove(0)
    }

    fn call(function: Value) -> Value {
        assistant(json!({"tool_calls": [{"id": "1", "type": "function", "function": function}]}))
    }

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
    fn missing_arguments_are_an_empty_object_and_an_empty_list_of_calls_is_none() {
        for arguments in [
            json!({"arguments": ""}),
            json!({"arguments": null}),
            json!({}),
            json!({"arguments": "null"}),
        ] {
            let mut function = json!({"name": "f"});
            function
                .as_object_mut()
                .unwrap()
                .extend(arguments.as_object().unwrap().clone());
            assert_eq!(call(function)["tool_calls"][0]["function"]["arguments"], json!({}));
        }
        for calls in [json!([]), Value::Null] {
            assert_eq!(assistant(json!({"tool_calls": calls})).get("tool_calls"), None);
        }
        let number = "123456789012345678901234567890123456789012";
        let exact = call(json!({"name": "f", "arguments": format!("{{\"id\": {number}}}")}));
        assert_eq!(
            exact::literal(&exact["tool_calls"][0]["function"]["arguments"]["id"]),
            Some(number)
        );
    }

    #[test]
    fn reasoning_has_all_its_names() {
        let thinking =
            json!([{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "a"}]);
        for fields in [
            json!({"thinking": "hm"}),
            json!({"reasoning": "hm", "reasoning_content": null}),
            json!({"reasoning_content": "hm", "thinking": ""}),
            json!({"content": thinking}),
        ] {
            let read = assistant(fields);
            assert!(
                REASONING.iter().all(|name| read[name] == "hm") && read["content"] == "a",
                "{read}"
            );
        }
        assert!(
            REASONING
                .iter()
                .all(|name| assistant(json!({"reasoning": ""})).get(name).is_none())
        );
    }

    #[test]
    fn reasoning_beside_text_and_calls_can_be_left_out() {
        let calls = json!([{"id": "1", "function": {"name": "f", "arguments": {}}}]);
        let of = |fields: Value| Conversation {
            messages: vec![assistant(fields)],
            ..Conversation::default()
        };
        let changed = without_disputed_reasoning(&of(json!({"tool_calls": calls, "reasoning": "hm"}))).unwrap();
        assert_eq!(changed.messages[0], of(json!({"tool_calls": calls})).messages[0]);
        for fields in [json!({"reasoning": "hm"}), json!({"tool_calls": calls})] {
            assert_eq!(without_disputed_reasoning(&of(fields)), None);
        }
    }

    #[test]
    fn refusals_are_text() {
        let part = assistant(json!({"content": [{"type": "refusal", "refusal": "no"}]}));
        let field = assistant(json!({"content": null, "refusal": "no"}));
        assert_eq!((&part["content"], &field["content"]), (&json!("no"), &json!("no")));
    }

    #[test]
    fn calls_of_older_clients_are_calls() {
        let read = read(vec![
            json!({"role": "assistant", "content": null, "function_call": {"name": "f", "arguments": "{}"}}),
            json!({"role": "function", "name": "f", "content": "7"}),
        ]);
        let read = read.unwrap();
        assert_eq!(
            read[0]["tool_calls"][0]["function"],
            json!({"name": "f", "arguments": {}})
        );
        assert_eq!(read[0]["tool_calls"][0]["id"].as_str().map(str::len), Some(9));
        assert_eq!((&read[1]["role"], &read[1]["content"]), (&json!("tool"), &json!("7")));
    }

    #[test]
    fn system_messages_are_joined_at_the_beginning() {
        let message = |role: &str, content: &str| json!({"role": role, "content": content});
        let given = vec![
            message("user", "q"),
            message("system", "a"),
            message("assistant", "x"),
            message("developer", "b"),
        ];
        let expected = [
            message("system", "a\n\nb"),
            message("user", "q"),
            message("assistant", "x"),
        ];
        assert_eq!(read(given).unwrap(), expected);
        let single = vec![message("system", ""), message("user", "q")];
        assert_eq!(read(single.clone()).unwrap(), single);
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
