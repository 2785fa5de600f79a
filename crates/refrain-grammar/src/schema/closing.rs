//! Which properties an object may have besides its own, so that it can be closed.
//!
//! Schemas that hold for one object at once (`allOf`, `$ref`, `anyOf` beside `properties`) are closed together: each
//! admits the properties that the others name.

use std::collections::HashSet;

use serde_json::Value;

use super::Preparation;
use super::combine::Group;
use super::keywords::Fields;
use super::references::{Place, reference};
use crate::error::GrammarError;

/// What other schemas say of the same object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Outer {
    /// Properties that they name.
    pub names: Vec<String>,
    /// Whether one of them admits further properties.
    pub is_open: bool,
}

impl Outer {
    fn extend(&mut self, other: &Outer) {
        for name in &other.names {
            if !self.names.contains(name) {
                self.names.push(name.clone());
            }
        }
        self.is_open |= other.is_open;
    }
}

/// What holds for the parts of a schema.
pub(super) struct Scope {
    /// For the schema's own keywords: all names, its own included.
    pub own: Outer,
    /// For each group of its parts.
    pub groups: Vec<Outer>,
}

impl<'s> Preparation<'s> {
    /// Returns what holds for a schema's own keywords and for each of its groups.
    pub(super) fn scope(
        &mut self,
        place: Place<'s>,
        schema: &Fields<'s>,
        groups: &[Group<'s>],
        outer: &Outer,
    ) -> Result<Scope, GrammarError> {
        let own = own_names(schema);
        let mut each = vec![];
        for group in groups {
            let mut names = Outer::default();
            let mut seen = HashSet::from([place.address()]);
            for part in group.parts() {
                self.names_of(part.place, &mut names, &mut seen)?;
            }
            each.push(names);
        }
        let mut all = own.clone();
        all.is_open = false;
        all.extend(outer);
        each.iter().for_each(|names| all.extend(names));
        let others = |at: usize| {
            let mut names = own.clone();
            names.extend(outer);
            let rest = each.iter().enumerate().filter(|(other, _)| *other != at);
            rest.for_each(|(_, other)| names.extend(other));
            if names.is_open {
                names.names.clear();
            }
            names
        };
        Ok(Scope {
            groups: (0..each.len()).map(others).collect(),
            own: all,
        })
    }

    /// Adds the names of a schema and of all that hold with it for one object.
    fn names_of(&mut self, place: Place<'s>, names: &mut Outer, seen: &mut HashSet<usize>) -> Result<(), GrammarError> {
        let mut places = vec![place];
        while let Some(place) = places.pop() {
            let Value::Object(fields) = place.schema else { continue };
            if !seen.insert(place.address()) {
                continue;
            }
            self.step()?;
            let fields_of = fields.iter().map(|(key, value)| (key.as_str(), value)).collect();
            names.extend(&own_names(&Fields::new(fields_of)));
            if let Some((_, target)) = reference(fields) {
                places.extend(self.references.target(place, target)?);
            }
            for key in ["oneOf", "anyOf", "allOf"] {
                let members = fields.get(key).and_then(Value::as_array).into_iter().flatten().rev();
                places.extend(members.map(|member| place.inner(member)));
            }
        }
        Ok(())
    }

    /// Whether a schema refers, directly or not, to a schema at an address.
    pub(super) fn reaches(&mut self, from: Place<'s>, address: usize) -> Result<bool, GrammarError> {
        let mut seen = HashSet::new();
        let mut places = vec![from];
        let mut is_start = true;
        while let Some(place) = places.pop() {
            if !std::mem::take(&mut is_start) && place.address() == address {
                return Ok(true);
            }
            if !seen.insert(place.address()) {
                continue;
            }
            self.step()?;
            match place.schema {
                Value::Object(fields) => {
                    if let Some((_, target)) = reference(fields) {
                        places.extend(self.references.target(place, target)?);
                    }
                    let inner = fields
                        .iter()
                        .filter(|(key, _)| !["$defs", "definitions"].contains(&key.as_str()));
                    places.extend(inner.map(|(_, value)| place.inner(value)));
                }
                Value::Array(items) => places.extend(items.iter().map(|value| place.inner(value))),
                _ => {}
            }
        }
        Ok(false)
    }
}

/// The names in a schema's own keywords, and whether it admits others.
fn own_names(schema: &Fields<'_>) -> Outer {
    let properties = schema.get("properties").and_then(Value::as_object);
    let required = schema.get("required").and_then(Value::as_array);
    let mut names: Vec<String> = properties.into_iter().flatten().map(|(key, _)| key.clone()).collect();
    let mut known: HashSet<String> = names.iter().cloned().collect();
    for name in required.into_iter().flatten().filter_map(Value::as_str) {
        if known.insert(name.to_owned()) {
            names.push(name.to_owned());
        }
    }
    let opens = |key: &str| !matches!(schema.get(key), None | Some(Value::Null | Value::Bool(false)));
    Outer {
        names,
        is_open: ["additionalProperties", "unevaluatedProperties", "patternProperties"]
            .into_iter()
            .any(opens),
    }
}
