//! Methods of Python's strings, lists and dictionaries.

use super::calls::{CallArguments, Callable, required};
use super::compare;
use super::error::{RenderError, Try};
use super::value::{Dict, Items, ItemsBuilder, Value};

pub(super) mod split;
pub(super) mod text;

const OF_TEXTS: [&str; 43] = [
    "capitalize",
    "casefold",
    "center",
    "count",
    "endswith",
    "expandtabs",
    "find",
    "format",
    "index",
    "isalnum",
    "isalpha",
    "isascii",
    "isdecimal",
    "isdigit",
    "isidentifier",
    "islower",
    "isnumeric",
    "isprintable",
    "isspace",
    "istitle",
    "isupper",
    "join",
    "ljust",
    "lower",
    "lstrip",
    "partition",
    "removeprefix",
    "removesuffix",
    "replace",
    "rfind",
    "rindex",
    "rjust",
    "rpartition",
    "rsplit",
    "rstrip",
    "split",
    "splitlines",
    "startswith",
    "strip",
    "swapcase",
    "title",
    "upper",
    "zfill",
];

const OF_LISTS: [&str; 11] = [
    "append", "clear", "copy", "count", "extend", "index", "insert", "pop", "remove", "reverse", "sort",
];

const OF_DICTS: [&str; 11] = [
    "clear",
    "copy",
    "fromkeys",
    "get",
    "items",
    "keys",
    "pop",
    "popitem",
    "setdefault",
    "update",
    "values",
];

/// Whether a value has a method of this name.
pub(super) fn has(value: &Value, name: &str) -> bool {
    match value {
        Value::Text(_) => OF_TEXTS.contains(&name),
        Value::List(_) => OF_LISTS.contains(&name),
        Value::Tuple(_) => matches!(name, "count" | "index"),
        Value::Dict(_) => OF_DICTS.contains(&name),
        _ => false,
    }
}

pub(super) fn call(receiver: &Value, name: &str, arguments: CallArguments) -> Try<Value> {
    match receiver {
        Value::Text(text) => text::call(text, name, arguments),
        Value::List(items) | Value::Tuple(items) => of_items(receiver, items, name, arguments),
        Value::Dict(dict) => of_dict(receiver, dict, name, arguments),
        Value::Loop(state) => state.call(name, arguments),
        Value::Callable(callable) => match &**callable {
            Callable::Cycler(cycler) => cycler.call(name, arguments),
            _ => Err(no_method(receiver, name)),
        },
        other => Err(no_method(other, name)),
    }
}

fn no_method(receiver: &Value, name: &str) -> RenderError {
    let kind = receiver.kind();
    RenderError::invalid(format!("'{kind}' object has no method {name:?}"))
}

fn of_items(receiver: &Value, items: &Items, name: &str, arguments: CallArguments) -> Try<Value> {
    match name {
        "copy" => {
            arguments.none(name)?;
            Ok(receiver.clone())
        }
        "index" | "count" => {
            let [wanted] = arguments.bind(name, ["value"])?;
            let wanted = required(wanted, name)?;
            let mut found = 0;
            for (at, item) in items.iter().enumerate() {
                if compare::equal(item, &wanted)? {
                    found += 1;
                    if name == "index" {
                        return Ok(Value::count(at));
                    }
                }
            }
            match name {
                "count" => Ok(Value::count(found)),
                _ => Err(RenderError::invalid("the value is not in the list")),
            }
        }
        _ => Err(immutable("list", name)),
    }
}

fn of_dict(receiver: &Value, dict: &Dict, name: &str, arguments: CallArguments) -> Try<Value> {
    match name {
        "get" => {
            let [key, default] = arguments.bind(name, ["key", "default"])?;
            let key = super::value::DictKey::of(&required(key, name)?)?;
            Ok(dict.get(&key).cloned().or(default).unwrap_or(Value::None))
        }
        "fromkeys" => {
            let [keys, value] = arguments.bind(name, ["keys", "value"])?;
            let mut made = Dict::default();
            for key in required(keys, name)?.iterate()?.iter() {
                made.insert(key.clone(), value.clone().unwrap_or(Value::None))?;
            }
            Ok(made.into_value())
        }
        "copy" | "items" | "keys" | "values" => {
            arguments.none(name)?;
            Ok(match name {
                "copy" => receiver.clone(),
                "items" => items(dict)?,
                "keys" => ItemsBuilder::of(dict.keys().map(Ok))?.list(),
                _ => ItemsBuilder::of(dict.entries().iter().map(|(_, value)| Ok(value.clone())))?.list(),
            })
        }
        _ => Err(immutable("dict", name)),
    }
}

/// Returns the pairs of a dictionary.
pub(super) fn items(dict: &Dict) -> Try<Value> {
    let mut pairs = ItemsBuilder::new();
    for (key, value) in dict.entries() {
        pairs.push(pair(key, value)?)?;
    }
    Ok(pairs.list())
}

pub(super) fn pair(first: &Value, second: &Value) -> Try<Value> {
    let mut pair = ItemsBuilder::new();
    pair.push(first.clone())?;
    pair.push(second.clone())?;
    Ok(pair.tuple())
}

/// Only lists and dictionaries in variables can be changed, see [`super::changes`].
fn immutable(kind: &str, name: &str) -> RenderError {
    RenderError::invalid(format!(
        "only a {kind} in a variable can be changed: {name:?} is not allowed here"
    ))
}
