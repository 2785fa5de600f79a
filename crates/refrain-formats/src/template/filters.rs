//! Filters and tests that differ between the engine and Jinja.

use minijinja::filters;
use minijinja::value::{ArgType, Kwargs, Tuple, ValueKind};
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
    environment.add_filter("wordcount", |text: &Value| {
        json::display(text).split_whitespace().count()
    });
    environment.add_filter("truncate", truncate);
    environment.add_filter("indent", indent);
    environment.add_filter("reversed", reversed);
    environment.add_filter("center", |value: &Value, width: Option<usize>| {
        methods::justify("center", &json::display(value), width.unwrap_or(80), None)
    });
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

/// What `value[::-1]` gives.
fn reversed(value: &Value) -> Result<Value, Error> {
    if let Some(text) = value.as_str() {
        return Ok(Value::from(text.chars().rev().collect::<String>()));
    }
    let mut items: Vec<Value> = value.try_iter()?.collect();
    items.reverse();
    Ok(match value.downcast_object_ref::<Tuple>() {
        Some(_) => Value::from(Tuple::new(items)),
        None => Value::from(items),
    })
}

/// `truncate(text, length=255, killwords=False, end='...', leeway=5)`.
fn truncate(
    value: &Value,
    length: Option<usize>,
    kill_words: Option<bool>,
    end: Option<&str>,
    leeway: Option<usize>,
) -> String {
    let text = json::display(value);
    let (length, end) = (length.unwrap_or(255), end.unwrap_or("..."));
    if text.chars().count() <= length.saturating_add(leeway.unwrap_or(5)) {
        return text;
    }
    let kept = length.saturating_sub(end.chars().count());
    let kept: String = text.chars().take(kept).collect();
    let whole = match kill_words.unwrap_or(false) {
        true => &kept,
        false => kept.rsplit_once(' ').map_or(kept.as_str(), |(whole, _)| whole),
    };
    format!("{whole}{end}")
}

/// `indent(text, width=4, first=False, blank=False)`, where `width` may be the text to put first. A line end at the end
/// begins a line of its own, which is a blank one.
fn indent(
    value: &Value,
    width: Option<Value>,
    first: Option<bool>,
    blank: Option<bool>,
    options: Kwargs,
) -> Result<String, Error> {
    let width = named(width, "width", &options)?.unwrap_or(Value::from(4));
    let first = named(first, "first", &options)?.unwrap_or(false);
    let blank = named(blank, "blank", &options)?.unwrap_or(false);
    options.assert_all_used()?;
    let put_first = match width.as_str() {
        Some(text) => text.to_owned(),
        None => " ".repeat(i64::try_from(width)?.clamp(0, 1000) as usize),
    };
    let text = json::display(value) + "\n";
    let mut indented = String::new();
    for (number, line) in methods::split_lines(&text, false).into_iter().enumerate() {
        if number > 0 {
            indented.push('\n');
        }
        let wanted = if number == 0 { first } else { blank || !line.is_empty() };
        if wanted {
            indented.push_str(&put_first);
        }
        indented.push_str(line);
    }
    Ok(indented)
}

/// What is no number becomes the default of 0.
fn int(
    state: &State,
    value: &Value,
    default: Option<Value>,
    base: Option<u32>,
    options: Kwargs,
) -> Result<Value, Error> {
    let default = named(default, "default", &options)?.unwrap_or(Value::from(0));
    filters::int(state, value, Some(default), base, options)
}

/// What is no number becomes the default of 0.0.
fn float(state: &State, value: &Value, default: Option<Value>, options: Kwargs) -> Result<Value, Error> {
    let default = named(default, "default", &options)?.unwrap_or(Value::from(0.0));
    filters::float(state, value, Some(default), options)
}

/// An argument that may be given by its name.
fn named<'a, T>(given: Option<T>, name: &'a str, options: &'a Kwargs) -> Result<Option<T>, Error>
where
    Option<T>: ArgType<'a, Output = Option<T>>,
{
    match given {
        Some(value) => Ok(Some(value)),
        None => options.get::<Option<T>>(name),
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
