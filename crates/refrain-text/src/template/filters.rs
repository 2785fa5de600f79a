//! Filters: Jinja's, with transformers' version of `tojson`.

use super::budget::{enter_level, spend, spend_on_bytes};
use super::calls::CallArguments;
use super::error::{RenderError, Try};
use super::methods;
use super::print;
use super::value::{ItemsBuilder, Value};

mod numbers;
mod pretty;
mod selections;
mod sequences;
mod texts;

/// The names of all filters.
pub(super) const NAMES: [&str; 47] = [
    "abs",
    "attr",
    "batch",
    "capitalize",
    "center",
    "count",
    "d",
    "default",
    "dictsort",
    "e",
    "escape",
    "first",
    "float",
    "forceescape",
    "format",
    "groupby",
    "indent",
    "int",
    "items",
    "join",
    "last",
    "length",
    "list",
    "lower",
    "map",
    "max",
    "min",
    "pprint",
    "reject",
    "rejectattr",
    "replace",
    "reverse",
    "round",
    "safe",
    "select",
    "selectattr",
    "slice",
    "sort",
    "string",
    "sum",
    "title",
    "tojson",
    "trim",
    "truncate",
    "unique",
    "upper",
    "wordcount",
];

/// Applies the filter of this name to a value.
pub(super) fn apply(name: &str, value: Value, arguments: CallArguments) -> Try<Value> {
    // `map` recurses into filters.
    let _level = enter_level()?;
    spend(1)?;
    if let Some(text) = value.as_text() {
        spend_on_bytes(text.len())?;
    }
    match name {
        "tojson" => print::to_json(&value, arguments),
        "pprint" => {
            arguments.none(name)?;
            pretty::pprint(&value)
        }
        "default" | "d" => {
            let [default, boolean] = arguments.bind(name, ["default_value", "boolean"])?;
            let missing = if boolean.is_some_and(|boolean| boolean.is_true()) {
                !value.is_true()
            } else {
                matches!(value, Value::Undefined)
            };
            if missing {
                default.map_or_else(|| Value::text(""), Ok)
            } else {
                Ok(value)
            }
        }
        "length" | "count" => {
            arguments.none(name)?;
            Ok(Value::count(value.length()?))
        }
        "string" | "safe" => {
            arguments.none(name)?;
            Ok(Value::Text(print::display(&value)?))
        }
        "list" => {
            arguments.none(name)?;
            Ok(Value::List(value.iterate()?))
        }
        "items" => {
            arguments.none(name)?;
            match &value {
                Value::Undefined => Ok(ItemsBuilder::new().list()),
                Value::Dict(dict) => methods::items(dict),
                other => Err(RenderError::invalid(format!(
                    "items takes a dictionary, not '{}'",
                    other.kind()
                ))),
            }
        }
        "abs" | "int" | "float" | "round" | "sum" => numbers::apply(name, &value, arguments),
        "map" | "select" | "reject" | "selectattr" | "rejectattr" => selections::apply(name, &value, arguments),
        "attr" | "batch" | "dictsort" | "first" | "groupby" | "join" | "last" | "max" | "min" | "reverse" | "slice"
        | "sort" | "unique" => sequences::apply(name, &value, arguments),
        other => texts::apply(other, &value, arguments),
    }
}
