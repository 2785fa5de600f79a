//! Finds what the references of a schema mean.

use std::collections::HashMap;

use serde_json::{Map, Value};

use crate::error::GrammarError;
use crate::limits::MAX_REFERENCES;

/// A schema within a document.
#[derive(Clone, Copy)]
pub(super) struct Place<'s> {
    pub schema: &'s Value,
    /// The resource that `#` means: the document, or the nearest schema with an `$id`.
    pub base: &'s Value,
}

impl<'s> Place<'s> {
    /// A schema inside this one.
    pub fn inner(self, schema: &'s Value) -> Place<'s> {
        let base = if id(schema).is_some() { schema } else { self.base };
        Place { schema, base }
    }

    /// Identifies the schema within its document.
    pub fn address(self) -> usize {
        std::ptr::from_ref(self.schema).addr()
    }
}

/// The names of a document's schemas.
pub(super) struct References<'s> {
    anchors: HashMap<&'s str, Place<'s>>,
    ids: Vec<(&'s str, Place<'s>)>,
}

impl<'s> References<'s> {
    pub fn of(root: &'s Value) -> References<'s> {
        let mut found = References {
            anchors: HashMap::new(),
            ids: vec![],
        };
        let start = Place {
            schema: root,
            base: root,
        };
        let mut places = vec![start];
        while let Some(place) = places.pop() {
            if let Value::Object(fields) = place.schema {
                for key in ["$anchor", "$dynamicAnchor"] {
                    if let Some(name) = fields.get(key).and_then(Value::as_str) {
                        found.anchors.entry(name).or_insert(place);
                    }
                }
                // Before draft 6, anchors were ids.
                let old = ["$id", "id"]
                    .into_iter()
                    .filter_map(|key| fields.get(key)?.as_str()?.strip_prefix('#'));
                for name in old {
                    found.anchors.entry(name).or_insert(place);
                }
                found.ids.extend(id(place.schema).map(|id| (id, place)));
                places.extend(fields.values().map(|value| place.inner(value)));
            } else if let Value::Array(items) = place.schema {
                places.extend(items.iter().map(|value| place.inner(value)));
            }
        }
        found
    }

    /// Returns what `reference` means; `None` for documents elsewhere, which are never fetched.
    ///
    /// # Errors
    /// If it names nothing in this document.
    pub fn resolve(&self, from: Place<'s>, reference: &str) -> Result<Option<Place<'s>>, GrammarError> {
        let (document, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let base = if document.is_empty() {
            Place {
                schema: from.base,
                base: from.base,
            }
        } else {
            let is_named = |id: &str| {
                let id = id.trim_end_matches('#');
                id == document || id.ends_with(&format!("/{document}")) || document.ends_with(&format!("/{id}"))
            };
            match self.ids.iter().find(|(id, _)| is_named(id)) {
                Some((_, place)) => *place,
                None => return Ok(None),
            }
        };
        let fragment = percent_encoding::percent_decode_str(fragment).decode_utf8_lossy();
        let found = if fragment.is_empty() || fragment == "/" {
            Some(base)
        } else if let Some(pointer) = fragment.strip_prefix('/') {
            follow(base, pointer)
        } else {
            self.anchors.get(fragment.as_ref()).copied()
        };
        let missing = || GrammarError::new(format!("the reference {reference:?} names nothing in the schema"));
        found.map(Some).ok_or_else(missing)
    }

    /// Follows schemas that are only references.
    ///
    /// # Errors
    /// If they lead back to themselves, or a reference names nothing.
    pub fn target(&self, mut from: Place<'s>, reference: &str) -> Result<Option<Place<'s>>, GrammarError> {
        let mut next = Some(reference.to_owned());
        for _ in 0..MAX_REFERENCES {
            let Some(current) = next else { return Ok(Some(from)) };
            let Some(place) = self.resolve(from, &current)? else {
                return Ok(None);
            };
            from = place;
            next = only_reference(place.schema).map(str::to_owned);
        }
        Err(GrammarError::new(format!(
            "the reference {reference:?} leads only to references"
        )))
    }
}

/// Follows a JSON pointer without its first slash.
fn follow<'s>(start: Place<'s>, pointer: &str) -> Option<Place<'s>> {
    pointer.split('/').try_fold(start, |place, key| {
        let key = key.replace("~1", "/").replace("~0", "~");
        let value = match place.schema {
            Value::Object(fields) => fields.get(&key)?,
            Value::Array(items) => items.get(key.parse::<usize>().ok()?)?,
            _ => return None,
        };
        Some(place.inner(value))
    })
}

fn id(schema: &Value) -> Option<&str> {
    schema
        .get("$id")?
        .as_str()
        .filter(|id| !id.is_empty() && !id.starts_with('#'))
}

/// The keyword of a reference, and what it refers to.
pub(super) fn reference(fields: &Map<String, Value>) -> Option<(&'static str, &str)> {
    ["$ref", "$dynamicRef", "$recursiveRef"]
        .into_iter()
        .find_map(|key| Some((key, fields.get(key)?.as_str()?)))
}

/// The reference of a schema that has no other keyword.
pub(super) fn only_reference(schema: &Value) -> Option<&str> {
    let fields = schema.as_object()?;
    let (key, target) = reference(fields)?;
    let others = fields
        .iter()
        .filter(|(name, value)| name.as_str() != key && super::is_assertion(name, value));
    (others.count() == 0).then_some(target)
}
