//! Filters: Jinja's, and `tojson` as transformers has it.

use super::budget::{deeper, spend, spend_on_bytes};
use super::calls::CallArguments;
use super::failure::{Attempt, RenderError};
use super::methods;
use super::print;
use super::value::{Datum, Gathered};

mod numbers;
mod selections;
mod sequences;
mod texts;

/// The names of all filters.
pub(super) const NAMES: [&str; 46] = [
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

/// What the filter of this name makes of a value.
pub(super) fn apply(name: &str, value: Datum, arguments: CallArguments) -> Attempt<Datum> {
    // `map` applies filters too.
    let _level = deeper()?;
    spend(1)?;
    if let Some(text) = value.as_text() {
        spend_on_bytes(text.len())?;
    }
    match name {
        "tojson" => print::to_json(&value, arguments),
        "default" | "d" => {
            let [default, boolean] = arguments.bind(name, ["default_value", "boolean"])?;
            let missing = if boolean.is_some_and(|boolean| boolean.is_true()) {
                !value.is_true()
            } else {
                matches!(value, Datum::Undefined)
            };
            if missing {
                default.map_or_else(|| Datum::text(""), Ok)
            } else {
                Ok(value)
            }
        }
        "length" | "count" => {
            arguments.none(name)?;
            Ok(Datum::count(value.length()?))
        }
        "string" | "safe" => {
            arguments.none(name)?;
            Ok(Datum::Text(print::display(&value)?))
        }
        "list" => {
            arguments.none(name)?;
            Ok(Datum::List(value.iterate()?))
        }
        "items" => {
            arguments.none(name)?;
            match &value {
                Datum::Undefined => Ok(Gathered::new().list()),
                Datum::Dict(dict) => methods::items(dict),
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
