//! Tests: what stands behind `is`.

use super::calls::{CallArguments, integer, required};
use super::failure::{Attempt, RenderError};
use super::syntax::{Operator, Relation};
use super::value::Datum;
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

/// Whether the test of this name holds for a value.
pub(super) fn holds(name: &str, value: &Datum, arguments: CallArguments) -> Attempt<bool> {
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
        "boolean" => matches!(value, Datum::Bool(_)),
        "callable" => matches!(value, Datum::Callable(_) | Datum::Loop(_) | Datum::Undefined),
        "defined" => !matches!(value, Datum::Undefined),
        "undefined" => matches!(value, Datum::Undefined),
        "escaped" => false,
        "even" => !is_odd(value)?,
        "odd" => is_odd(value)?,
        "true" => matches!(value, Datum::Bool(true)),
        "false" => matches!(value, Datum::Bool(false)),
        "none" => matches!(value, Datum::None),
        "number" => matches!(value, Datum::Int(_) | Datum::Float(_) | Datum::Bool(_)),
        "integer" => matches!(value, Datum::Int(_)),
        "float" => matches!(value, Datum::Float(_)),
        "string" => matches!(value, Datum::Text(_)),
        "mapping" => matches!(value, Datum::Dict(_)),
        "iterable" | "sequence" => matches!(
            value,
            Datum::Text(_) | Datum::List(_) | Datum::Tuple(_) | Datum::Dict(_) | Datum::Undefined
        ),
        "lower" => characters::is_lower(&print::display(value)?),
        "upper" => characters::is_upper(&print::display(value)?),
        "filter" => value.as_text().is_some_and(|name| filters::NAMES.contains(&&**name)),
        "test" => value.as_text().is_some_and(|name| NAMES.contains(&&**name)),
        other => return Err(RenderError::unknown("test", other)),
    })
}

fn is_odd(value: &Datum) -> Attempt<bool> {
    Ok(!is_multiple(value, &Datum::Int(2))?)
}

fn is_multiple(value: &Datum, of: &Datum) -> Attempt<bool> {
    if let (Datum::Text(_), _) = (value, integer(Some(of.clone()), "divisibleby")?) {
        return Err(RenderError::invalid("a string is no multiple of a number"));
    }
    let remainder = operators::binary(value, Operator::Remainder, of)?;
    compare::equal(&remainder, &Datum::Int(0))
}

/// Whether two values are one. Strings and numbers have no identity here: they are compared.
fn same(value: &Datum, other: &Datum) -> Attempt<bool> {
    use std::rc::Rc;

    Ok(match (value, other) {
        (Datum::List(value), Datum::List(other)) | (Datum::Tuple(value), Datum::Tuple(other)) => {
            Rc::ptr_eq(value, other)
        }
        (Datum::Dict(value), Datum::Dict(other)) => Rc::ptr_eq(value, other),
        _ => value.kind() == other.kind() && compare::equal(value, other)?,
    })
}
