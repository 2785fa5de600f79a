//! Jinja's tests, the predicates after `is`.

use super::calls::{CallArguments, integer, required};
use super::error::{RenderError, Try};
use super::syntax::{Operator, Relation};
use super::value::Value;
use super::{characters, compare, filters, operators, print};

/// The names of all tests.
pub(super) const NAMES: [&str; 38] = [
    "!=",
    "<",
    "<=",
    "==",
    ">",
    ">=",
    "boolean",
    "callable",
    "defined",
    "divisibleby",
    "eq",
    "equalto",
    "escaped",
    "even",
    "false",
    "filter",
    "float",
    "ge",
    "greaterthan",
    "gt",
    "in",
    "integer",
    "iterable",
    "le",
    "lessthan",
    "lower",
    "lt",
    "mapping",
    "ne",
    "none",
    "number",
    "odd",
    "sameas",
    "sequence",
    "string",
    "test",
    "true",
    "undefined",
];

/// Evaluates the test of this name.
pub(super) fn holds(name: &str, value: &Value, arguments: CallArguments) -> Try<bool> {
    let relation = match name {
        "eq" | "equalto" | "==" => Some(Relation::Equal),
        "ne" | "!=" => Some(Relation::Unequal),
        "lt" | "lessthan" | "<" => Some(Relation::Less),
        "le" | "<=" => Some(Relation::LessOrEqual),
        "gt" | "greaterthan" | ">" => Some(Relation::Greater),
        "ge" | ">=" => Some(Relation::GreaterOrEqual),
        "in" => Some(Relation::In),
        _ => None,
    };
    if relation.is_some() || matches!(name, "divisibleby" | "sameas") {
        let [other] = arguments.bind(name, ["other"])?;
        let other = required(other, name)?;
        return match (relation, name) {
            (Some(relation), _) => compare::holds(value, relation, &other),
            (None, "divisibleby") => is_multiple(value, &other),
            (None, _) => same(value, &other),
        };
    }
    arguments.none(name)?;
    Ok(match name {
        "boolean" => matches!(value, Value::Bool(_)),
        "callable" => matches!(value, Value::Callable(_) | Value::Loop(_) | Value::Undefined),
        "defined" => !matches!(value, Value::Undefined),
        "undefined" => matches!(value, Value::Undefined),
        "escaped" => false,
        "even" => !is_odd(value)?,
        "odd" => is_odd(value)?,
        "true" => matches!(value, Value::Bool(true)),
        "false" => matches!(value, Value::Bool(false)),
        "none" => matches!(value, Value::None),
        "number" => matches!(
            value,
            Value::Int(_) | Value::Float(_) | Value::Number(_) | Value::Bool(_)
        ),
        "integer" => value.kind() == "int",
        "float" => value.kind() == "float",
        "string" => matches!(value, Value::Text(_)),
        "mapping" => matches!(value, Value::Dict(_)),
        "iterable" | "sequence" => matches!(
            value,
            Value::Text(_) | Value::List(_) | Value::Tuple(_) | Value::Dict(_) | Value::Undefined
        ),
        "lower" => characters::is_lower(&print::display(value)?),
        "upper" => characters::is_upper(&print::display(value)?),
        "filter" => value.as_text().is_some_and(|name| filters::NAMES.contains(&&**name)),
        "test" => value.as_text().is_some_and(|name| NAMES.contains(&&**name)),
        other => return Err(RenderError::unknown("test", other)),
    })
}

fn is_odd(value: &Value) -> Try<bool> {
    Ok(!is_multiple(value, &Value::Int(2))?)
}

fn is_multiple(value: &Value, of: &Value) -> Try<bool> {
    if let (Value::Text(_), _) = (value, integer(Some(of.clone()), "divisibleby")?) {
        return Err(RenderError::invalid("a string cannot be a multiple of a number"));
    }
    let remainder = operators::binary(value, Operator::Remainder, of)?;
    compare::equal(&remainder, &Value::Int(0))
}

/// Whether two values are identical (`sameas`). Strings and numbers have no identity here and are compared by
/// value.
fn same(value: &Value, other: &Value) -> Try<bool> {
    use std::rc::Rc;

    Ok(match (value, other) {
        (Value::List(value), Value::List(other)) | (Value::Tuple(value), Value::Tuple(other)) => {
            Rc::ptr_eq(value, other)
        }
        (Value::Dict(value), Value::Dict(other)) => Rc::ptr_eq(value, other),
        _ => value.kind() == other.kind() && compare::equal(value, other)?,
    })
}
