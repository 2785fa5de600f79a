//! `map`, and what keeps some of the items.

use super::sequences::Attributes;
use crate::template::calls::{CallArguments, required, text as text_of};
use crate::template::failure::Attempt;
use crate::template::tests;
use crate::template::value::{Datum, Gathered, TemplateText};

pub(super) fn apply(name: &str, value: &Datum, arguments: CallArguments) -> Attempt<Datum> {
    // Jinja takes what is none for empty here, and nowhere else.
    let value = match value {
        Datum::None => &Datum::Undefined,
        value => value,
    };
    match name {
        "map" => map(value, arguments),
        _ => select(name, value, arguments),
    }
}

/// `map(filter, …)` and `map(attribute=…, default=…)`
fn map(value: &Datum, mut arguments: CallArguments) -> Attempt<Datum> {
    let items = value.iterate()?;
    let mut mapped = Gathered::new();
    if arguments.positional.is_empty() {
        let [attribute, default] = arguments.bind("map", ["attribute", "default"])?;
        let attributes = Attributes::new(Some(required(attribute, "map")?))?;
        for item in items.iter() {
            mapped.push(match (attributes.of(item)?, &default) {
                (Datum::Undefined, Some(default)) => default.clone(),
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

/// `select(test, …)`, `selectattr(attribute, test, …)` and their opposites; without a test, what is true.
fn select(name: &str, value: &Datum, mut arguments: CallArguments) -> Attempt<Datum> {
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
    let mut kept = Gathered::new();
    for item in value.iterate()?.iter() {
        let looked_at = attributes.of(item)?;
        let holds = match &test {
            Some(test) => tests::holds(test, &looked_at, arguments.copy()?)?,
            None => looked_at.is_true(),
        };
        if holds == wanted {
            kept.push(item.clone())?;
        }
    }
    Ok(kept.list())
}
