//! The input of a chat template.

use refrain_formats::{JsonObject, json_kind};
use serde_json::Value;

use crate::Error;

/// Messages, and everything else that a template may read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Conversation {
    /// Objects with `role`, `content` and whatever else the template reads.
    pub messages: Vec<Value>,
    /// Descriptions of the functions that the model may call.
    pub tools: Option<Vec<Value>>,
    /// Documents that the model should answer from.
    pub documents: Option<Vec<Value>>,
    /// Further variables, such as `enable_thinking`. They override special tokens of the same name.
    pub variables: JsonObject,
}

impl Conversation {
    /// A conversation of one user message, after a system message if one is given.
    pub fn from_prompt(system: Option<&str>, prompt: &str) -> Self {
        let message = |role: &str, content: &str| {
            let mut object = JsonObject::new();
            object.insert("role".to_owned(), role.into());
            object.insert("content".to_owned(), content.into());
            Value::Object(object)
        };
        let system = system.map(|content| message("system", content));
        Conversation {
            messages: system.into_iter().chain([message("user", prompt)]).collect(),
            ..Conversation::default()
        }
    }

    /// Parses a conversation from JSON: a list of messages, or an object with `messages` and optionally `tools`,
    /// `documents` and further variables.
    ///
    /// # Errors
    /// If the text is not JSON or not of that form.
    pub fn from_json(text: &str) -> Result<Self, Error> {
        let value: Value =
            serde_json::from_str(text).map_err(|error| Error::Messages(format!("not valid JSON: {error}")))?;
        let mut variables = match value {
            Value::Array(messages) => {
                check_messages(&messages)?;
                return Ok(Conversation {
                    messages,
                    ..Conversation::default()
                });
            }
            Value::Object(object) => object,
            other => {
                return Err(Error::Messages(format!(
                    "a {} is neither a list of messages nor an object with \"messages\"",
                    json_kind(&other)
                )));
            }
        };
        let mut list = |key: &str| match variables.shift_remove(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Array(items)) => Ok(Some(items)),
            Some(other) => Err(Error::Messages(format!(
                "\"{key}\" is a {}, not a list",
                json_kind(&other)
            ))),
        };
        let messages = list("messages")?.ok_or_else(|| Error::Messages("the object has no \"messages\"".to_owned()))?;
        let (tools, documents) = (list("tools")?, list("documents")?);
        check_messages(&messages)?;
        Ok(Conversation {
            messages,
            tools,
            documents,
            variables,
        })
    }
}

fn check_messages(messages: &[Value]) -> Result<(), Error> {
    match messages.iter().position(|message| !message.is_object()) {
        Some(index) => Err(Error::Messages(format!(
            "message {index} is a {}, not an object with role and content",
            json_kind(&messages[index])
        ))),
        None => Ok(()),
    }
}
