//! Bodies of requests: received within limits of time and memory, and read as JSON.

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::header::CONTENT_ENCODING;
use futures_util::StreamExt;
use refrain_text::exact;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::blocking;
use crate::connections::Connection;
use crate::error::Refusal;
use crate::record::RequestRecord;

/// Bodies of more bytes are parsed on blocking threads.
const MAX_INLINE_BYTES: usize = 64 << 10;
/// Maximum memory of large bodies that are parsed, or parsed and not yet tokenized, in bytes. A body that needs more
/// alone is refused.
const MAX_PARSED_BYTES: usize = 400 << 20;
/// Memory that a parsed value takes, and what a list or an object takes beside its values. Measured with bodies of
/// 16 MB: 115 bytes for a number, 400 for a list with one number.
const VALUE_BYTES: usize = 120;
const CONTAINER_BYTES: usize = 280;
/// Levels of objects that are searched for the field that is wrong.
const MAX_SEARCH_DEPTH: usize = 3;
/// Objects with more fields are not searched: each field takes as long as reading the whole body.
const MAX_SEARCHED_FIELDS: usize = 64;

/// Longer strings are not quoted in errors.
const MAX_QUOTED_BYTES: usize = 100;

static PARSED: Semaphore = Semaphore::const_new(MAX_PARSED_BYTES);

/// The room that a body takes. It is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct BodyRoom {
    _received: Option<OwnedSemaphorePermit>,
    _parsed: Option<tokio::sync::SemaphorePermit<'static>>,
}

/// A body of JSON, whatever its content type is: `curl -d` sends that of forms.
pub(crate) struct Body<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Send + 'static> FromRequest<S> for Body<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, _: &S) -> Result<Self, Refusal> {
        let Some(connection) = request.extensions().get::<Connection>().cloned() else {
            return Err(Refusal::Silence);
        };
        let encoding = request.headers().get(CONTENT_ENCODING).cloned();
        let received = tokio::time::timeout(connection.timeout, receive(request, &connection)).await;
        let (bytes, received) = received.map_err(|_| Refusal::TooSlow(connection.timeout))??;
        connection.state.body_received();
        if let Some(encoding) = encoding.filter(|encoding| encoding != "identity") {
            let encoding = String::from_utf8_lossy(encoding.as_bytes()).into_owned();
            return Err(Refusal::field(
                "content-encoding",
                format!("{encoding:?} is not supported; send the body as it is"),
            ));
        }
        if bytes.len() <= MAX_INLINE_BYTES {
            hold(received, None);
            return parse(&bytes).map(Body);
        }
        let wanted = parsed_bytes(&bytes);
        if wanted > MAX_PARSED_BYTES {
            return Err(Refusal::TooManyValues);
        }
        let parsed = PARSED.acquire_many(wanted as u32).await.map_err(|_| Refusal::Silence)?;
        let body = blocking::run(bytes.len(), move || parse(&bytes)).await?;
        hold(received, Some(parsed));
        body.map(Body)
    }
}

/// Returns how much memory a body takes at most once it is parsed, in bytes.
fn parsed_bytes(body: &[u8]) -> usize {
    let (mut values, mut containers) = (1, 0);
    let (mut is_string, mut is_escaped) = (false, false);
    for byte in body {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = is_string,
            b'"' => is_string = !is_string,
            _ if is_string => {}
            b',' | b':' => values += 1,
            b'[' | b'{' => containers += 1,
            _ => {}
        }
    }
    // The text itself, and a copy of it.
    2 * body.len() + values * VALUE_BYTES + containers * CONTAINER_BYTES
}

/// Keeps the room of the present request's body until its tokens are there, or its response begins.
fn hold(received: Option<OwnedSemaphorePermit>, parsed: Option<tokio::sync::SemaphorePermit<'static>>) {
    let room = BodyRoom {
        _received: received,
        _parsed: parsed,
    };
    RequestRecord::current().hold_body(room);
}

/// Receives a whole body, if there is room for it beside those of other requests.
async fn receive(
    request: Request,
    connection: &Connection,
) -> Result<(Vec<u8>, Option<OwnedSemaphorePermit>), Refusal> {
    let mut stream = request.into_body().into_data_stream();
    let mut bytes = vec![];
    let mut room: Option<OwnedSemaphorePermit> = None;
    while let Some(piece) = stream.next().await {
        let piece: Bytes = piece.map_err(|error| Refusal::Malformed(error.to_string()))?;
        if bytes.len() + piece.len() > connection.max_body_bytes {
            return Err(Refusal::TooLarge(connection.max_body_bytes));
        }
        let more = connection.room.clone().try_acquire_many_owned(piece.len() as u32);
        let more = more.map_err(|_| Refusal::NoRoom)?;
        match &mut room {
            Some(room) => room.merge(more),
            None => room = Some(more),
        }
        bytes.extend_from_slice(&piece);
    }
    Ok((bytes, room))
}

/// Fields with messages, whose numbers keep all their digits.
const EXACT_FIELDS: [&str; 3] = ["messages", "input", "items"];
/// Fields with options of their own. Nulls in them count as absent, too.
const OPTION_FIELDS: [&str; 4] = ["options", "stream_options", "structured_outputs", "reasoning"];

/// Parses a body. A field that is null counts as absent.
///
/// # Errors
/// What is wrong with it, in the words of JSON, with the name of the field.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    let text = std::str::from_utf8(bytes).map_err(|_| Refusal::Malformed("the body is not UTF-8".to_owned()))?;
    // Some programs write a byte order mark at the beginning.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut body =
        exact::parse(text).map_err(|error| Refusal::Malformed(format!("the body is not valid JSON: {error}")))?;
    if let Value::Object(fields) = &mut body {
        fields.retain(|_, value| !value.is_null());
        for (name, value) in fields {
            if let Some(options) = value.as_object_mut().filter(|_| OPTION_FIELDS.contains(&name.as_str())) {
                options.retain(|_, value| !value.is_null());
            }
            if !EXACT_FIELDS.contains(&name.as_str()) {
                exact::round(value);
            }
        }
    }
    if bytes.len() <= MAX_INLINE_BYTES {
        return from_value(body);
    }
    T::deserialize(body).map_err(|error| explain::<T>(&Value::Null, &error.to_string()))
}

/// Reads a value, such as fields that an interface collected.
///
/// # Errors
/// As [`Body`] reports them.
pub(crate) fn from_value<T: DeserializeOwned>(value: Value) -> Result<T, Refusal> {
    T::deserialize(&value).map_err(|error| explain::<T>(&value, &error.to_string()))
}

/// Names a value in an error.
pub(crate) fn kind(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) if text.len() <= MAX_QUOTED_BYTES => format!("the string {value}"),
        Value::String(_) => "a string".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

/// Returns what is wrong with a body that is valid JSON.
fn explain<T: DeserializeOwned>(body: &Value, error: &str) -> Refusal {
    let error = without_position(error);
    let is_list = body.is_array() && (error.contains("struct ") || error.contains("a map"));
    if is_list || !(body.is_object() || body.is_null() || body.is_array()) {
        return Refusal::Malformed("the body must be a JSON object".to_owned());
    }
    if let Some(field) = error
        .strip_prefix("missing field `")
        .and_then(|rest| rest.split('`').next())
    {
        return Refusal::Invalid {
            message: format!("{field} is required"),
            field: Some(field.to_owned()),
        };
    }
    // Fields that are read one by one name themselves.
    let named = error
        .split_once(": ")
        .filter(|(name, _)| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'));
    if let Some((name, why)) = named {
        return Refusal::field(name.to_owned(), why);
    }
    let field = wrong_field::<T>(body);
    let message = match (&field, expected(error)) {
        (Some(field), Some(expected)) => format!("{field} must be {expected}"),
        (None, Some(expected)) => format!("a field of the body must be {expected}"),
        (Some(field), None) if !error.contains(field.as_str()) => format!("{field}: {error}"),
        _ => error.to_owned(),
    };
    Refusal::Invalid { field, message }
}

/// Finds the field whose absence changes the error.
///
/// The library does not name fields of flattened structures.
fn wrong_field<T: DeserializeOwned>(body: &Value) -> Option<String> {
    let error_of = |body: &Value| T::deserialize(body).err().map(|error| error.to_string());
    let whole = error_of(body)?;
    let mut path: Vec<String> = vec![];
    for _ in 0..MAX_SEARCH_DEPTH {
        let pointer: String = path.iter().map(|name| format!("/{name}")).collect();
        let fields = body.pointer(&pointer)?.as_object()?;
        if fields.len() > MAX_SEARCHED_FIELDS {
            break;
        }
        let names: Vec<String> = fields.keys().cloned().collect();
        let error_without = |name: &String| {
            let mut rest = body.clone();
            let object = rest.pointer_mut(&pointer).and_then(Value::as_object_mut);
            object.and_then(|object| object.remove(name.as_str()));
            error_of(&rest)
        };
        let mut wrong = names.iter().filter_map(|name| {
            let error = error_without(name);
            let is_missed = error
                .as_ref()
                .is_some_and(|error| error.contains(&format!("missing field `{name}`")));
            (error.as_ref() != Some(&whole)).then_some((is_missed, name))
        });
        // Without a required field the error is another one, whether the field was wrong or not.
        let first = wrong.next();
        let other = first
            .filter(|(is_missed, _)| *is_missed)
            .and_then(|_| wrong.find(|(is_missed, _)| !is_missed));
        let Some((_, name)) = other.or(first) else { break };
        path.push(name.clone());
        let is_object = |value: &Value| value.as_object().is_some_and(|object| !object.is_empty());
        if !body.pointer(&format!("{pointer}/{name}")).is_some_and(is_object) {
            break;
        }
    }
    (!path.is_empty()).then(|| path.join("."))
}

/// An error without the line and column.
fn without_position(error: &str) -> &str {
    error.split(" at line ").next().unwrap_or(error)
}

/// What a value must be, in the words of JSON.
fn expected(error: &str) -> Option<String> {
    let is_type = error.starts_with("invalid type") || error.starts_with("invalid value");
    let (_, expected) = error.split_once(", expected ").filter(|_| is_type)?;
    let expected = match expected {
        "usize" | "u8" | "u16" | "u32" | "u64" => "an integer of at least 0",
        "isize" | "i8" | "i16" | "i32" | "i64" => "an integer",
        "f32" | "f64" => "a number",
        "a string" | "string" | "str" | "a borrowed string" => "a string",
        "a sequence" => "a list",
        "a map" => "an object",
        "a boolean" => "true or false",
        other if other.starts_with("struct ") => "an object",
        other => other,
    };
    Some(expected.to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[allow(dead_code)]
    struct Example {
        messages: Vec<Value>,
        stream_options: Option<StreamOptions>,
        #[serde(flatten)]
        sampling: Sampling,
    }

    #[derive(Debug, Deserialize)]
    #[allow(dead_code)]
    struct Sampling {
        temperature: Option<f32>,
        n: Option<usize>,
        logit_bias: Option<BTreeMap<String, f32>>,
    }

    #[derive(Debug, Deserialize)]
    #[allow(dead_code)]
    struct StreamOptions {
        include_usage: Option<bool>,
    }

    #[test]
    fn errors_name_the_field_and_what_it_must_be() {
        let message = |body: &str| parse::<Example>(body.as_bytes()).unwrap_err().to_string();
        for (body, expected) in [
            (r#"{"messages": 7}"#, "messages must be a list"),
            (r#"{"messages": "x"}"#, "messages must be a list"),
            (
                r#"{"messages": [], "temperature": "hot"}"#,
                "temperature must be a number",
            ),
            (r#"{"messages": [], "n": -1}"#, "n must be an integer of at least 0"),
            (r#"{"messages": [], "n": 1.5}"#, "n must be an integer of at least 0"),
            (
                r#"{"messages": [], "logit_bias": {"5": "x"}}"#,
                "logit_bias.5 must be a number",
            ),
            (
                r#"{"messages": [], "stream_options": {"include_usage": 1}}"#,
                "stream_options.include_usage must be true or false",
            ),
            (
                r#"{"messages": [], "stream_options": 5}"#,
                "stream_options must be an object",
            ),
            ("{}", "messages is required"),
            ("[]", "the body must be a JSON object"),
            ("7", "the body must be a JSON object"),
        ] {
            assert_eq!(message(body), expected, "{body}");
        }
        assert_eq!(message("\u{feff}{}"), "messages is required");
        assert!(message("{").contains("EOF"));
        assert!(message("").contains("EOF"));
    }

    #[test]
    fn nulls_are_absent_and_numbers_of_messages_keep_their_digits() {
        let body = r#"{"messages": [98765432109876543210, null], "n": null, "temperature": 0.50000000000000000000000001,
            "stream_options": {"include_usage": null}}"#;
        let example: Example = parse(body.as_bytes()).unwrap();
        assert_eq!(exact::literal(&example.messages[0]), Some("98765432109876543210"));
        assert_eq!(
            (&example.messages[1], example.sampling.temperature),
            (&Value::Null, Some(0.5))
        );
    }

    #[test]
    fn memory_of_a_body_follows_its_values() {
        let of = |body: &str| parsed_bytes(body.as_bytes()) - 2 * body.len();
        assert_eq!(of("[1, 2, 3]"), 3 * VALUE_BYTES + CONTAINER_BYTES);
        assert_eq!(of(r#"{"a": "[1, {2}]"}"#), 2 * VALUE_BYTES + CONTAINER_BYTES);
        assert_eq!(of(r#"["\",["]"#), VALUE_BYTES + CONTAINER_BYTES);
        let lists = format!("[{}[1]]", "[1],".repeat(3_000_000));
        assert!(of(&lists) > MAX_PARSED_BYTES);
    }

    #[test]
    fn bodies_of_many_fields_are_explained_without_a_search() {
        let fields: String = (0..=MAX_SEARCHED_FIELDS).map(|n| format!("\"x{n}\": 1, ")).collect();
        let body = format!(r#"{{{fields} "messages": [], "n": "x"}}"#);
        let message = parse::<Example>(body.as_bytes()).unwrap_err().to_string();
        assert_eq!(message, "a field of the body must be an integer of at least 0");
    }

    #[test]
    fn large_bodies_are_explained_without_a_search() {
        let body = format!(r#"{{"messages": ["{}"], "n": "x"}}"#, "x".repeat(MAX_INLINE_BYTES));
        let message = parse::<Example>(body.as_bytes()).unwrap_err().to_string();
        assert_eq!(message, "a field of the body must be an integer of at least 0");
    }
}
