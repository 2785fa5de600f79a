//! Calls that are JSON objects.

use serde_json::Value;

use super::call::{CallBody, CallHead, Outcome, is_name};
use super::json::{Compactor, ValueScanner, compact, leading_value};
use super::marks::{Found, at_front};
use super::values::Functions;

/// The keys under which objects have the function's name, its arguments and the call's id.
const NAME_KEYS: [&str; 3] = ["name", "tool_name", "function"];
const ARGUMENT_KEYS: [&str; 3] = ["arguments", "parameters", "args"];
const ID_KEYS: [&str; 2] = ["id", "tool_call_id"];

/// Reads the head of an object with name and arguments, perhaps the first of a list. `name_is_key`: the object's one
/// key is the name.
pub(super) fn object_head(text: &str, name_is_key: bool) -> Outcome<CallHead> {
    let object = text.strip_prefix('[').map_or(text, str::trim_start);
    let Some(members) = object.strip_prefix('{') else {
        return if object.is_empty() {
            Outcome::Incomplete
        } else {
            Outcome::Other
        };
    };
    let mut reader = ObjectReader {
        rest: members,
        name: None,
        id: None,
        arguments: None,
        name_is_key,
    };
    loop {
        match reader.member() {
            Member::Taken => {}
            Member::Head(body) => {
                let Some(name) = reader.name else { return Outcome::Other };
                let id = reader.id;
                return Outcome::Read(CallHead { name, id, body }, text.len() - reader.rest.len());
            }
            Member::Incomplete => return Outcome::Incomplete,
            Member::Other => return Outcome::Other,
        }
    }
}

/// What was found of a call so far.
struct ObjectReader<'t> {
    /// What is not read yet: behind the brace or a member.
    rest: &'t str,
    name: Option<String>,
    id: Option<String>,
    arguments: Option<String>,
    name_is_key: bool,
}

/// What reading a member led to.
enum Member {
    Taken,
    /// The head is complete; the rest is this.
    Head(CallBody),
    Incomplete,
    Other,
}

impl<'t> ObjectReader<'t> {
    fn member(&mut self) -> Member {
        self.rest = self.rest.trim_start();
        if let Some(behind) = self.rest.strip_prefix('}') {
            self.rest = behind;
            let arguments = self.arguments.take();
            return Member::Head(CallBody::Whole(arguments.unwrap_or_else(|| "{}".to_owned())));
        }
        if self.rest.is_empty() {
            return Member::Incomplete;
        }
        if !self.rest.starts_with('"') {
            return Member::Other;
        }
        let Some(key) = leading_value(self.rest) else {
            return Member::Incomplete;
        };
        let rest: &'t str = self.rest;
        let value = rest[key.len()..].trim_start();
        let value = match at_front(value, ":") {
            Found::Yes => value[1..].trim_start(),
            Found::Perhaps => return Member::Incomplete,
            Found::No => return Member::Other,
        };
        if value.is_empty() {
            return Member::Incomplete;
        }
        let Ok(key) = serde_json::from_str::<String>(key) else {
            return Member::Other;
        };
        let is_arguments = self.name_is_key || ARGUMENT_KEYS.contains(&key.as_str());
        if self.name_is_key {
            self.name = Some(key.clone());
        }
        if is_arguments && self.name.is_some() && value.starts_with('{') {
            self.rest = value;
            return Member::Head(CallBody::Json {
                scanner: ValueScanner::default(),
                compactor: Compactor::default(),
                in_object: true,
            });
        }
        self.take(&key, value, is_arguments)
    }

    /// Takes a member whose value is not handed out while it is written.
    fn take(&mut self, key: &str, text: &'t str, is_arguments: bool) -> Member {
        let Some(value) = leading_value(text) else {
            return Member::Incomplete;
        };
        self.rest = text[value.len()..].trim_start();
        let as_text = || {
            serde_json::from_str::<Value>(value)
                .ok()
                .and_then(|value| Some(value.as_str()?.to_owned()))
        };
        if is_arguments {
            self.arguments = Some(match as_text() {
                // Arguments within a string, as OpenAI's interface has them.
                Some(text) if text.trim().is_empty() => "{}".to_owned(),
                Some(text) => compact(&text),
                None if value == "null" => "{}".to_owned(),
                None => compact(value),
            });
        } else if NAME_KEYS.contains(&key) {
            let Some(name) = as_text().filter(|name| is_name(name)) else {
                return Member::Other;
            };
            self.name = Some(name);
        } else if ID_KEYS.contains(&key) {
            self.id = as_text();
        }
        if let Some(behind) = self.rest.strip_prefix(',') {
            self.rest = behind;
        } else if !self.rest.is_empty() && !self.rest.starts_with('}') {
            return Member::Other;
        }
        Member::Taken
    }
}

/// Whether a text that ends too early is the beginning of a call of one of `functions`, as far as it goes.
pub(super) fn may_be_object(text: &str, functions: &Functions) -> bool {
    let object = text.trim_start_matches(|c: char| c.is_whitespace() || matches!(c, '[' | '{'));
    let Some(rest) = object.strip_prefix('"') else {
        return object.is_empty();
    };
    let mut keys = NAME_KEYS
        .into_iter()
        .chain(ARGUMENT_KEYS)
        .chain(ID_KEYS)
        .chain(["type"]);
    let Some((key, value)) = rest.split_once('"') else {
        return keys.any(|key| key.starts_with(rest));
    };
    let value = value.trim_start_matches(|c: char| c.is_whitespace() || c == ':');
    match value.strip_prefix('"') {
        Some(name) if NAME_KEYS.contains(&key) => match name.split_once('"') {
            Some((name, _)) => functions.contains(name),
            None => functions.begins(name),
        },
        _ => keys.any(|known| known == key),
    }
}
