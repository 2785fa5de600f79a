//! Values that a schema lists, and numbers.

use serde_json::{Number, Value};

use super::Preparation;
use super::keywords::{Fields, wrong};
use crate::error::GrammarError;
use crate::limits::MAX_ENUM_VALUES;

/// Limit of the numbers that the library compares exactly: larger ones are rounded, and some end the process.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;
/// Limit of the numbers of which the library writes all digits.
const MIN_EXACT: f64 = 1e-15;

/// What `enum` and `const` leave.
pub(super) enum Listed {
    /// The schema lists no values.
    Nothing,
    Values(Vec<Value>),
    /// The values cannot be enforced, only their types.
    Types(Vec<&'static str>),
}

/// Returns a number that the library compares exactly, and no other.
pub(super) fn exact(value: &Value) -> Option<f64> {
    let number = value.as_f64()?;
    let is_in_range = number == 0.0 || (MIN_EXACT..=MAX_EXACT).contains(&number.abs());
    // Integers beyond 2^53 are rounded.
    let whole = (value.as_i64().map(i128::from)).or_else(|| value.as_u64().map(i128::from));
    (is_in_range && whole.is_none_or(|whole| whole == number as i128)).then_some(number)
}

fn is_writable(value: &Value) -> bool {
    match value {
        Value::Number(number) => exact(value).is_some() && has_its_digits(number),
        Value::Array(items) => items.iter().all(is_writable),
        Value::Object(fields) => fields.values().all(is_writable),
        _ => true,
    }
}

/// Whether a number is the same as a float: long decimals and integers beyond 2^53 are not.
fn has_its_digits(number: &Number) -> bool {
    let text = number.to_string();
    text.bytes().filter(u8::is_ascii_digit).count() <= 16
}

/// The name of a value's type.
pub(super) fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

impl<'s> Preparation<'s> {
    /// Returns the values that a schema of these types lists by `enum` and `const`.
    pub(super) fn listed(
        &mut self,
        schema: &Fields<'s>,
        types: &[&'static str],
        path: &str,
    ) -> Result<Listed, GrammarError> {
        let constant = schema.get("const");
        let listed = schema.get("enum");
        let mut values: Vec<Value> = match (listed, constant) {
            (Some(Value::Array(values)), None) => values.clone(),
            (Some(Value::Array(values)), Some(constant)) => {
                values.iter().filter(|value| *value == constant).cloned().collect()
            }
            (other, constant) => {
                if other.is_some() {
                    return Err(wrong("enum", "a list").at(path));
                }
                match constant {
                    Some(constant) => vec![constant.clone()],
                    None => return Ok(Listed::Nothing),
                }
            }
        };
        self.counts.enum_values += values.len();
        if self.counts.enum_values > MAX_ENUM_VALUES {
            let why = format!("the schema lists more than {MAX_ENUM_VALUES} values by enum");
            return Err(GrammarError::new(why));
        }
        values.retain(|value| has_type(value, types) && is_in_range(value, schema));
        if values.iter().all(is_writable) {
            return Ok(Listed::Values(values));
        }
        self.ignore(path, if listed.is_some() { "enum" } else { "const" });
        let mut types: Vec<&'static str> = values.iter().map(type_of).collect();
        types.sort_unstable();
        types.dedup();
        Ok(Listed::Types(types))
    }
}

fn has_type(value: &Value, types: &[&'static str]) -> bool {
    let is_whole = value.as_f64().is_some_and(|number| number.fract() == 0.0);
    let name = type_of(value);
    types.is_empty()
        || types.contains(&name)
        || name == "integer" && types.contains(&"number")
        || is_whole && types.contains(&"integer")
}

/// Whether a listed value has the length or size that the schema demands.
fn is_in_range(value: &Value, schema: &Fields<'_>) -> bool {
    let bound = |key: &str| schema.get(key).and_then(Value::as_f64);
    let is_between = |size: f64, [min, max]: [&str; 2]| {
        bound(min).is_none_or(|min| size >= min) && bound(max).is_none_or(|max| size <= max)
    };
    match value {
        Value::String(text) => is_between(text.chars().count() as f64, ["minLength", "maxLength"]),
        Value::Array(items) => is_between(items.len() as f64, ["minItems", "maxItems"]),
        Value::Number(number) => {
            let number = number.as_f64().unwrap_or(0.0);
            is_between(number, ["minimum", "maximum"])
                && bound("exclusiveMinimum").is_none_or(|min| number > min)
                && bound("exclusiveMaximum").is_none_or(|max| number < max)
        }
        _ => true,
    }
}

/// Whether it is plain that no value matches both schemas: by their types, or by a property that tells them apart.
pub(super) fn are_disjoint(a: &Value, b: &Value) -> bool {
    let (Some(left), Some(right)) = (a.as_object(), b.as_object()) else {
        return *a == Value::Bool(false) || *b == Value::Bool(false);
    };
    let values = |schema: &serde_json::Map<String, Value>| match (schema.get("const"), schema.get("enum")) {
        (Some(value), _) => Some(vec![value.clone()]),
        (None, Some(Value::Array(values))) => Some(values.clone()),
        _ => None,
    };
    let types = |schema: &serde_json::Map<String, Value>| -> Option<Vec<String>> {
        let name = |name: &str| if name == "integer" { "number" } else { name }.to_owned();
        match (values(schema), schema.get("type")) {
            (Some(values), _) => Some(values.iter().map(|value| name(type_of(value))).collect()),
            (None, Some(Value::String(one))) => Some(vec![name(one)]),
            (None, Some(Value::Array(names))) => Some(names.iter().filter_map(Value::as_str).map(name).collect()),
            _ => schema.contains_key("properties").then(|| vec!["object".to_owned()]),
        }
    };
    if let (Some(left), Some(right)) = (values(left), values(right)) {
        return left.iter().all(|value| !right.contains(value));
    }
    let (Some(left_types), Some(right_types)) = (types(left), types(right)) else {
        return false;
    };
    if left_types.iter().all(|name| !right_types.contains(name)) {
        return true;
    }
    let is_object = |types: &[String]| types.iter().all(|name| name == "object");
    let is_required = |schema: &serde_json::Map<String, Value>, key: &str| {
        let names = schema.get("required").and_then(Value::as_array);
        names.is_some_and(|names| names.iter().any(|name| name == key))
    };
    let properties = left.get("properties").and_then(Value::as_object).into_iter().flatten();
    is_object(&left_types)
        && is_object(&right_types)
        && properties.into_iter().any(|(key, property)| {
            let other = right.get("properties").and_then(|properties| properties.get(key));
            is_required(left, key)
                && is_required(right, key)
                && other.is_some_and(|other| are_disjoint(property, other))
        })
}
