//! `map`, `select`, `reject` and their attribute forms.

use super::sequences::Attributes;
use crate::template::calls::{CallArguments, required, text as text_of};
use crate::template::error::Try;
use crate::template::predicates;
use crate::template::value::{ItemsBuilder, TemplateText, Value};

pub(super) fn apply(name: &str, value: &Value, arguments: CallArguments) -> Try<Value> {
    // Jinja treats none as empty here, and nowhere else.
    let value = match value {
        Value::None => &Value::Undefined,
        value => value,
    };
    match name {
        "map" => map(value, arguments),
        _ => select(name, value, arguments),
    }
}

/// `map(filter, …)` and `map(attribute=…, default=…)`
fn map(value: &Value, mut arguments: CallArguments) -> Try<Value> {
    let items = value.iterate()?;
    let mut mapped = ItemsBuilder::new();
    if arguments.positional.is_empty() {
        let [attribute, default] = arguments.bind("map", ["attribute", "default"])?;
        let attributes = Attributes::new(Some(required(attribute, "map")?))?;
        for item in items.iter() {
            mapped.push(match (attributes.of(item)?, &default) {
                (Value::Undefined, Some(default)) => default.clone(),
                (found, _) => found,
            })?;
        }
    } else {
        let filter = text_of(arguments.take_first(), "map")?;
        for item in items.iter() {
            mapped.push(super::apply(&filter, item.clone(), arguments.copy()?)?)?;
        }
    }
    Ok(mapped.list())
}

/// `select(test, …)`, `selectattr(attribute, test, …)` and their opposites. Without a test, the item's truth
/// decides.
fn select(name: &str, value: &Value, mut arguments: CallArguments) -> Try<Value> {
    let attributes = if name.ends_with("attr") {
        Attributes::new(Some(required(arguments.take_first(), name)?))?
    } else {
        Attributes::new(None)?
    };
    let test: Option<TemplateText> = match arguments.take_first() {
        Some(test) => Some(text_of(Some(test), name)?),
        None => None,
    };
    let wanted = name.starts_with("select");
    let mut kept = ItemsBuilder::new();
    for item in value.iterate()?.iter() {
        let tested = attributes.of(item)?;
        let holds = match &test {
            Some(test) => predicates::holds(test, &tested, arguments.copy()?)?,
            None => tested.is_true(),
        };
        if holds == wanted {
            kept.push(item.clone())?;
        }
    }
    Ok(kept.list())
}
