//! The keywords of objects.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use super::closing::{Outer, Scope};
use super::keywords::{Fields, wrong};
use super::references::Place;
use super::{Preparation, patterns, pointer};
use crate::error::GrammarError;
use crate::limits::MAX_OPTIONAL_PROPERTIES;

/// Limit of optional properties for which "one of them" is enforced: each is a sequence of its own.
const MAX_ALTERNATIVES: usize = 32;
/// Limit of the patterns of properties that are compared with each other.
const MAX_PATTERNS: usize = 8;

impl<'s> Preparation<'s> {
    /// Prepares the keywords of objects. Returns whether some object matches them.
    pub(super) fn object_keywords(
        &mut self,
        place: Place<'s>,
        schema: &Fields<'s>,
        scope: &Scope,
        path: &str,
        out: &mut Map<String, Value>,
    ) -> Result<bool, GrammarError> {
        let required = self.required(schema, path)?;
        let mut properties = Map::new();
        let declared = mapping(schema, "properties", path)?;
        for (key, value) in declared.into_iter().flatten() {
            let path = format!("{path}/properties/{}", pointer(key));
            let value = self.schema(place.inner(value), &Outer::default(), &path)?;
            if value == Value::Bool(false) && required.contains(&key.as_str()) {
                return Ok(false);
            }
            properties.insert(key.clone(), value);
        }
        let (patterns, is_reduced) = self.patterns(place, schema, path)?;
        let unevaluated = schema
            .get("unevaluatedProperties")
            .filter(|value| **value != Value::Bool(false));
        let stated = schema.get("additionalProperties").or(unevaluated);
        let mut additional = match stated {
            Some(value) => {
                let path = format!("{path}/additionalProperties");
                self.schema(place.inner(value), &Outer::default(), &path)?
            }
            None => {
                let is_described = declared.is_some() || !patterns.is_empty() || !scope.own.names.is_empty();
                Value::Bool(!is_described || scope.own.is_open)
            }
        };
        if is_reduced {
            additional = Value::Bool(true);
        }
        let is_closed = additional == Value::Bool(false);
        if is_closed && stated.is_none() {
            for name in &scope.own.names {
                properties.entry(name).or_insert(Value::Bool(true));
            }
        } else if is_closed && patterns.is_empty() && required.iter().any(|name| !properties.contains_key(*name)) {
            return Ok(false);
        }
        if is_closed && patterns.is_empty() {
            properties.retain(|_, value| *value != Value::Bool(false));
        }
        self.count_properties(properties.len())?;
        let names: HashSet<&str> = required.iter().copied().collect();
        let optional = properties.keys().filter(|key| !names.contains(key.as_str())).count();
        if optional > MAX_OPTIONAL_PROPERTIES {
            let why = format!("an object has more than {MAX_OPTIONAL_PROPERTIES} optional properties");
            return Err(GrammarError::new(why).at(path));
        }
        let is_alone = scope.groups.is_empty() && !scope.own.is_open;
        let is_exact = is_alone && is_closed && patterns.is_empty();
        if !self.sizes(schema, [required.len(), optional], is_exact, path, out)? {
            return Ok(false);
        }
        for (key, map) in [("properties", properties), ("patternProperties", patterns)] {
            if !map.is_empty() {
                out.insert(key.to_owned(), Value::Object(map));
            }
        }
        if additional != Value::Bool(true) {
            out.insert("additionalProperties".to_owned(), additional);
        }
        if !required.is_empty() {
            out.insert("required".to_owned(), json!(required));
        }
        Ok(true)
    }

    fn required(&mut self, schema: &Fields<'s>, path: &str) -> Result<Vec<&'s str>, GrammarError> {
        let listed = match schema.get("required") {
            None => return Ok(vec![]),
            // In draft 3, a property says by a flag that it is required.
            Some(Value::Bool(_)) => {
                self.ignore(path, "required");
                return Ok(vec![]);
            }
            Some(value) => value.as_array(),
        };
        let names: Option<Vec<&str>> = listed.and_then(|listed| listed.iter().map(Value::as_str).collect());
        let names = names.ok_or_else(|| wrong("required", "a list of names").at(path))?;
        let mut seen = HashSet::new();
        Ok(names.into_iter().filter(|name| seen.insert(*name)).collect())
    }

    /// Prepares `patternProperties`. Returns whether some cannot be enforced.
    fn patterns(
        &mut self,
        place: Place<'s>,
        schema: &Fields<'s>,
        path: &str,
    ) -> Result<(Map<String, Value>, bool), GrammarError> {
        let mut kept = Map::new();
        let declared = mapping(schema, "patternProperties", path)?;
        let mut is_reduced = false;
        for (pattern, value) in declared.into_iter().flatten() {
            let path_of = format!("{path}/patternProperties/{}", pointer(pattern));
            let value = self.schema(place.inner(value), &Outer::default(), &path_of)?;
            let is_compilable = patterns::is_compilable(pattern).map_err(|why| why.at(path))?;
            let mut all: Vec<&str> = kept.keys().map(String::as_str).collect();
            all.push(pattern);
            if is_compilable && all.len() <= MAX_PATTERNS && patterns::are_disjoint(&all) {
                kept.insert(pattern.clone(), value);
            } else {
                self.ignore(path, "patternProperties");
                is_reduced = true;
            }
        }
        Ok((kept, is_reduced))
    }

    /// Prepares `minProperties` and `maxProperties`. Returns whether an object can have so many. The library enforces
    /// them where all properties are required, and "one of the optional ones".
    fn sizes(
        &mut self,
        schema: &Fields<'s>,
        [required, optional]: [usize; 2],
        is_exact: bool,
        path: &str,
        out: &mut Map<String, Value>,
    ) -> Result<bool, GrammarError> {
        let (min, mut max) = (
            self.count(schema, "minProperties", path)?,
            self.count(schema, "maxProperties", path)?,
        );
        let (total, required, min) = ((required + optional) as u64, required as u64, min.unwrap_or(0));
        if max.is_some_and(|max| max < min || max < required) || is_exact && min > total {
            return Ok(false);
        }
        if is_exact {
            max = max.filter(|max| *max < total);
        }
        let min = Some(min).filter(|min| *min > required);
        let more = min.map_or(0, |min| min - required);
        let is_one = more <= 1 && max.is_none_or(|max| max - required == 1);
        let is_enforced = optional == 0 || is_exact && is_one && optional <= MAX_ALTERNATIVES;
        for (key, value) in [("minProperties", min), ("maxProperties", max)] {
            match value {
                Some(value) if is_enforced => drop(out.insert(key.to_owned(), json!(value))),
                Some(_) => self.ignore(path, key),
                None => {}
            }
        }
        Ok(true)
    }
}

/// Reads a keyword that maps names to schemas.
///
/// # Errors
/// If it is no object.
fn mapping<'s>(schema: &Fields<'s>, key: &str, path: &str) -> Result<Option<&'s Map<String, Value>>, GrammarError> {
    match schema.get(key) {
        None => Ok(None),
        Some(Value::Object(fields)) => Ok(Some(fields)),
        Some(_) => Err(wrong(key, "an object").at(path)),
    }
}
