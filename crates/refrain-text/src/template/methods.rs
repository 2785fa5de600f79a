//! Methods of Python's strings, lists and dictionaries.

use super::calls::{CallArguments, required};
use super::compare;
use super::failure::{Attempt, RenderError};
use super::value::{Datum, Dict, Gathered, Items};

pub(super) mod parts;
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
pub(super) fn has(value: &Datum, name: &str) -> bool {
    match value {
        Datum::Text(_) => OF_TEXTS.contains(&name),
        Datum::List(_) => OF_LISTS.contains(&name),
        Datum::Tuple(_) => matches!(name, "count" | "index"),
        Datum::Dict(_) => OF_DICTS.contains(&name),
        _ => false,
    }
}

pub(super) fn call(receiver: &Datum, name: &str, arguments: CallArguments) -> Attempt<Datum> {
    match receiver {
        Datum::Text(text) => text::call(text, name, arguments),
        Datum::List(items) | Datum::Tuple(items) => of_items(receiver, items, name, arguments),
        Datum::Dict(dict) => of_dict(receiver, dict, name, arguments),
        Datum::Loop(state) => state.call(name, arguments),
        other => Err(RenderError::invalid(format!(
            "'{}' object has no method {name:?}",
            other.kind()
        ))),
    }
}

fn of_items(receiver: &Datum, items: &Items, name: &str, arguments: CallArguments) -> Attempt<Datum> {
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
                        return Ok(Datum::count(at));
                    }
                }
            }
            match name {
                "count" => Ok(Datum::count(found)),
                _ => Err(RenderError::invalid("the value is not in the list")),
            }
        }
        _ => Err(unchangeable("list", name)),
    }
}

fn of_dict(receiver: &Datum, dict: &Dict, name: &str, arguments: CallArguments) -> Attempt<Datum> {
    match name {
        "get" => {
            let [key, default] = arguments.bind(name, ["key", "default"])?;
            let key = super::value::DictKey::of(&required(key, name)?)?;
            Ok(dict.get(&key).cloned().or(default).unwrap_or(Datum::None))
        }
        "fromkeys" => {
            let [keys, value] = arguments.bind(name, ["keys", "value"])?;
            let mut made = Dict::default();
            for key in required(keys, name)?.iterate()?.iter() {
                made.insert(key.clone(), value.clone().unwrap_or(Datum::None))?;
            }
            Ok(made.datum())
        }
        "copy" | "items" | "keys" | "values" => {
            arguments.none(name)?;
            Ok(match name {
                "copy" => receiver.clone(),
                "items" => items(dict)?,
                "keys" => Gathered::of(dict.keys().map(Ok))?.list(),
                _ => Gathered::of(dict.entries().iter().map(|(_, value)| Ok(value.clone())))?.list(),
            })
        }
        _ => Err(unchangeable("dict", name)),
    }
}

/// The pairs of a dictionary.
pub(super) fn items(dict: &Dict) -> Attempt<Datum> {
    let mut pairs = Gathered::new();
    for (key, value) in dict.entries() {
        pairs.push(pair(key, value)?)?;
    }
    Ok(pairs.list())
}

pub(super) fn pair(first: &Datum, second: &Datum) -> Attempt<Datum> {
    let mut pair = Gathered::new();
    pair.push(first.clone())?;
    pair.push(second.clone())?;
    Ok(pair.tuple())
}

/// As Jinja's sandbox says, in which `apply_chat_template` renders.
fn unchangeable(kind: &str, name: &str) -> RenderError {
    RenderError::invalid(format!("templates cannot change a {kind}, as {name:?} would"))
}
