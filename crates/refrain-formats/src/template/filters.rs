//! Filters and tests that differ between the engine and Jinja.

use minijinja::filters;
use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Environment, Error, State, Value};

use super::{json, methods};

pub(super) fn register(environment: &mut Environment<'_>) {
    environment.add_filter("tojson", json::filter);
    environment.add_filter("string", |value: &Value| json::display(value));
    environment.add_filter("trim", methods::trim);
    environment.add_filter("length", length);
    environment.add_filter("count", length);
    environment.add_filter("replace", replace);
    environment.add_filter("int", int);
    environment.add_filter("float", float);
    environment.add_test("sequence", is_sequence);
    environment.add_test("iterable", is_iterable);
    environment.add_test("number", is_number);
    environment.add_test("callable", |value: &Value| value.kind() == ValueKind::Plain);
}

/// What is undefined has no items.
fn length(value: &Value) -> Result<usize, Error> {
    match value.is_undefined() {
        true => Ok(0),
        false => filters::length(value),
    }
}

/// `replace(text, old, new, count=None)`.
fn replace(value: &Value, old: &Value, new: &Value, count: Option<usize>) -> String {
    let text = json::display(value);
    let (old, new) = (json::display(old), json::display(new));
    match count {
        Some(count) => text.replacen(&old, &new, count),
        None => text.replace(&old, &new),
    }
}

/// What is no number becomes the default of 0.
fn int(
    state: &State,
    value: &Value,
    default: Option<Value>,
    base: Option<u32>,
    options: Kwargs,
) -> Result<Value, Error> {
    let default = or_named(default, &options)?.unwrap_or(Value::from(0));
    filters::int(state, value, Some(default), base, options)
}

/// What is no number becomes the default of 0.0.
fn float(state: &State, value: &Value, default: Option<Value>, options: Kwargs) -> Result<Value, Error> {
    let default = or_named(default, &options)?.unwrap_or(Value::from(0.0));
    filters::float(state, value, Some(default), options)
}

fn or_named(default: Option<Value>, options: &Kwargs) -> Result<Option<Value>, Error> {
    match default {
        Some(default) => Ok(Some(default)),
        None => options.get("default"),
    }
}

/// Jinja takes everything that has a length and items for a sequence: strings and dictionaries too.
fn is_sequence(value: &Value) -> bool {
    matches!(
        value.kind(),
        ValueKind::Seq | ValueKind::Map | ValueKind::String | ValueKind::Undefined
    )
}

/// Unlike the engine, Jinja does not iterate over none.
fn is_iterable(value: &Value) -> bool {
    is_sequence(value) || value.kind() == ValueKind::Iterable
}

/// Truth values are numbers in Python.
fn is_number(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Number | ValueKind::Bool)
}
