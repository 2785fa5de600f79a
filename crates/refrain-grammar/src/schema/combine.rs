//! Schemas that hold together or instead of each other: `$ref`, `allOf`, `anyOf` and `oneOf`.

use serde_json::{Value, json};

use super::closing::Scope;
use super::keywords::{Fields, wrong};
use super::references::{Place, only_reference};
use super::{Preparation, values};
use crate::error::GrammarError;

/// One of the schemas that a schema combines.
pub(super) struct Part<'s> {
    /// The schema, or what its reference means.
    pub place: Place<'s>,
    path: String,
    is_reference: bool,
}

/// Schemas that a schema combines.
pub(super) enum Group<'s> {
    /// It holds too.
    All(Part<'s>),
    /// One of them holds too.
    Any(Vec<Part<'s>>),
}

impl<'s> Group<'s> {
    pub fn parts(&self) -> &[Part<'s>] {
        match self {
            Group::All(part) => std::slice::from_ref(part),
            Group::Any(parts) => parts,
        }
    }
}

impl<'s> Preparation<'s> {
    /// Takes the keywords that combine schemas, and returns what they combine.
    pub(super) fn parts(
        &mut self,
        place: Place<'s>,
        schema: &mut Fields<'s>,
        path: &str,
    ) -> Result<Vec<Group<'s>>, GrammarError> {
        let mut groups = vec![];
        let mut has_recursive = false;
        for key in ["$ref", "$dynamicRef", "$recursiveRef"] {
            let Some(value) = schema.take(key) else { continue };
            let reference = value.as_str().ok_or_else(|| wrong(key, "a string").at(path))?;
            let target = self.references.target(place, reference)?;
            let elsewhere = || {
                let why = format!("{key} names {reference:?}, which is in another document; none is fetched");
                GrammarError::new(why).at(path)
            };
            let target = target.ok_or_else(elsewhere)?;
            if !schema.is_empty() && self.reaches(target, place.address())? {
                // The library cannot combine a schema with others while it is still being compiled.
                for other in schema.drain() {
                    self.ignore(path, other);
                }
            }
            has_recursive = schema.get("allOf").is_some() && self.reaches(target, target.address())?;
            groups.push(Group::All(Part {
                place: target,
                path: path_of(reference).unwrap_or_else(|| format!("{path}/{key}")),
                is_reference: true,
            }));
        }
        if let Some(members) = self.members(place, schema, "allOf", path)? {
            let is_alone = members.len() == 1 && groups.is_empty() && schema.is_empty();
            for part in members {
                let is_recursive = !is_alone && part.is_reference && self.reaches(part.place, part.place.address())?;
                if is_recursive && (has_recursive || self.reaches(part.place, place.address())?) {
                    self.ignore(&part.path, "$ref");
                    continue;
                }
                has_recursive |= is_recursive;
                groups.push(Group::All(part));
            }
        }
        for key in ["anyOf", "oneOf"] {
            if let Some(members) = self.members(place, schema, key, path)? {
                if key == "oneOf" && !self.are_disjoint(&members) {
                    self.ignore(path, key);
                }
                groups.push(Group::Any(members));
            }
        }
        Ok(groups)
    }

    /// Takes a list of schemas.
    fn members(
        &mut self,
        place: Place<'s>,
        schema: &mut Fields<'s>,
        key: &str,
        path: &str,
    ) -> Result<Option<Vec<Part<'s>>>, GrammarError> {
        let Some(value) = schema.take(key) else { return Ok(None) };
        let Value::Array(members) = value else {
            return Err(wrong(key, "a list of schemas").at(path));
        };
        let mut parts = vec![];
        for (number, member) in members.iter().enumerate() {
            let mut part = Part {
                place: place.inner(member),
                path: format!("{path}/{key}/{number}"),
                is_reference: false,
            };
            if let Some(reference) = only_reference(member)
                && let Some(target) = self.references.target(part.place, reference)?
            {
                part.place = target;
                part.is_reference = true;
                part.path = path_of(reference).unwrap_or(part.path);
            }
            parts.push(part);
        }
        Ok(Some(parts))
    }

    /// Whether no value matches two of these.
    fn are_disjoint(&mut self, parts: &[Part<'s>]) -> bool {
        // Long lists take quadratic time.
        parts.len() <= 100
            && parts.iter().enumerate().all(|(at, part)| {
                let others = &parts[at + 1..];
                others
                    .iter()
                    .all(|other| values::are_disjoint(part.place.schema, other.place.schema))
            })
    }

    /// Combines a schema's own keywords with its parts.
    pub(super) fn combined(
        &mut self,
        own: Value,
        is_own_first: bool,
        groups: Vec<Group<'s>>,
        scope: &Scope,
    ) -> Result<Value, GrammarError> {
        let mut all = vec![];
        for (group, outer) in groups.into_iter().zip(&scope.groups) {
            let mut alternatives = vec![];
            let (is_any, parts) = match group {
                Group::All(part) => (false, vec![part]),
                Group::Any(parts) => (true, parts),
            };
            for part in parts {
                let value = if part.is_reference && part.place.schema.is_object() {
                    self.definition(part.place, outer, &part.path)
                } else {
                    self.schema(part.place, outer, &part.path)?
                };
                alternatives.push(value);
            }
            alternatives.retain(|value| *value != Value::Bool(false));
            all.push(match alternatives.len() {
                0 => Value::Bool(false),
                _ if is_any && alternatives.contains(&Value::Bool(true)) => Value::Bool(true),
                1 => alternatives.remove(0),
                _ => json!({"anyOf": alternatives}),
            });
        }
        let at = if is_own_first { 0 } else { all.len() };
        all.insert(at, own);
        if all.contains(&Value::Bool(false)) {
            return Ok(Value::Bool(false));
        }
        all.retain(|value| *value != Value::Bool(true));
        Ok(match all.len() {
            0 => Value::Bool(true),
            1 => all.remove(0),
            _ => json!({"allOf": all}),
        })
    }
}

/// The path that a reference within the document names.
fn path_of(reference: &str) -> Option<String> {
    let pointer = reference.strip_prefix('#')?;
    (pointer.is_empty() || pointer.starts_with('/')).then(|| pointer.trim_end_matches('/').to_owned())
}
