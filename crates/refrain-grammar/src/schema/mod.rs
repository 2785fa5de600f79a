//! Prepares JSON schemas for llguidance's `%json`, which refuses many of them.
//!
//! - References become references to `$defs` of simple names.
//! - Annotations are dropped.
//! - Keywords that cannot be enforced are dropped and reported.
//! - Objects are closed unless the schema opens them, as in llama.cpp, Ollama and xgrammar.
//!
//! A prepared schema admits no value that the original refuses, except by ignored keywords.

mod closing;
mod combine;
mod finite;
mod keywords;
mod objects;
mod patterns;
mod references;
#[cfg(test)]
mod tests;
mod values;

use std::collections::{HashMap, VecDeque};
use std::fmt;

use serde_json::{Map, Value, json};

use crate::error::{GrammarError, NO_VALUE};
use crate::limits::{MAX_PROPERTIES, MAX_SCHEMA_NESTING, MAX_SCHEMAS, MAX_STEPS};
use closing::Outer;
use references::{Place, References};

/// A keyword of a schema that is not enforced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IgnoredKeyword {
    /// The function whose parameters the schema describes; `None` for the form of a text.
    pub function: Option<String>,
    /// JSON pointer to the schema that has the keyword; empty for the whole schema.
    pub path: String,
    /// The keyword, such as `uniqueItems`.
    pub keyword: String,
}

impl fmt::Display for IgnoredKeyword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let function = self.function.as_deref().unwrap_or_default();
        let at = if function.is_empty() && self.path.is_empty() {
            ""
        } else {
            " at "
        };
        write!(f, "{}{at}{function}{}", self.keyword, self.path)
    }
}

impl IgnoredKeyword {
    pub(crate) fn of_function(self, name: &str) -> IgnoredKeyword {
        IgnoredKeyword {
            function: Some(name.to_owned()),
            ..self
        }
    }
}

/// A schema that llguidance compiles.
#[derive(Debug)]
pub(crate) struct PreparedSchema {
    pub schema: Value,
    pub ignored: Vec<IgnoredKeyword>,
    /// Number of its properties, those of definitions included.
    pub properties: usize,
}

/// Keywords that describe values and refuse none, and those that hold definitions.
const ANNOTATIONS: [&str; 19] = [
    "title",
    "description",
    "default",
    "examples",
    "example",
    "readOnly",
    "writeOnly",
    "deprecated",
    "contentMediaType",
    "contentEncoding",
    "contentSchema",
    "$comment",
    "$schema",
    "$id",
    "$anchor",
    "$dynamicAnchor",
    "$recursiveAnchor",
    "$defs",
    "definitions",
];

/// Whether a keyword restricts values. Keywords that no draft knows restrict nothing, and `null` is an absent keyword.
fn is_assertion(keyword: &str, value: &Value) -> bool {
    let is_known = keywords::SUPPORTED.contains(&keyword) || keywords::UNSUPPORTED.contains(&keyword);
    is_known && (!value.is_null() || keyword == "const")
}

/// Prepares a schema.
///
/// # Errors
/// If it is no schema, exceeds a limit, or admits no value.
pub(crate) fn prepare(schema: &Value) -> Result<PreparedSchema, GrammarError> {
    prepare_part(schema, schema, "")
}

/// Prepares a part of a schema, at a path. References are resolved in the whole.
///
/// # Errors
/// As [`prepare`].
pub(crate) fn prepare_part(whole: &Value, part: &Value, path: &str) -> Result<PreparedSchema, GrammarError> {
    check_nesting(whole)?;
    let place = Place {
        schema: part,
        base: whole,
    };
    let mut preparation = Preparation {
        references: References::of(whole),
        names: HashMap::new(),
        paths: HashMap::new(),
        pending: VecDeque::new(),
        ignored: vec![],
        counts: Counts::default(),
    };
    let root = preparation.schema(place, &Outer::default(), path)?;
    let mut definitions = Map::new();
    while let Some(definition) = preparation.pending.pop_front() {
        let value = preparation.schema(definition.place, &definition.outer, &definition.path)?;
        definitions.insert(definition.name, value);
    }
    let mut root = match root {
        Value::Bool(false) => return Err(GrammarError::new(NO_VALUE)),
        Value::Object(root) => root,
        _ => Map::new(),
    };
    if !finite::is_finite(&root, &definitions) {
        return Err(GrammarError::new("the schema admits no value that ends"));
    }
    if !definitions.is_empty() {
        root.insert("$defs".to_owned(), Value::Object(definitions));
    }
    Ok(PreparedSchema {
        schema: Value::Object(root),
        ignored: preparation.ignored,
        properties: preparation.counts.properties,
    })
}

/// Returns the schema that a part of a schema refers to, if the part is only a reference, or else the part.
pub(crate) fn resolved<'s>(whole: &'s Value, part: &'s Value) -> &'s Value {
    let place = Place {
        schema: part,
        base: whole,
    };
    let target = references::only_reference(part)
        .and_then(|reference| References::of(whole).target(place, reference).ok().flatten());
    target.map_or(part, |target| target.schema)
}

/// Escapes a key for a JSON pointer.
pub(crate) fn pointer(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// # Errors
/// If values lie too deep in each other.
fn check_nesting(schema: &Value) -> Result<(), GrammarError> {
    // A schema in a schema lies two values deep.
    let mut level: Vec<&Value> = vec![schema];
    for _ in 0..2 * MAX_SCHEMA_NESTING + 2 {
        level = (level.into_iter())
            .flat_map(|value| -> Box<dyn Iterator<Item = &Value>> {
                match value {
                    Value::Object(fields) => Box::new(fields.values()),
                    Value::Array(items) => Box::new(items.iter()),
                    _ => Box::new(std::iter::empty()),
                }
            })
            .collect();
        if level.is_empty() {
            return Ok(());
        }
    }
    let why = format!("the schema nests more than {MAX_SCHEMA_NESTING} schemas in each other");
    Err(GrammarError::new(why))
}

/// A schema that is prepared, with its definitions.
struct Preparation<'s> {
    references: References<'s>,
    /// Names of definitions, by the address of the schema and what is known of the object around it.
    names: HashMap<(usize, Outer), String>,
    /// The first path of each schema, by its address.
    paths: HashMap<usize, String>,
    pending: VecDeque<Definition<'s>>,
    ignored: Vec<IgnoredKeyword>,
    counts: Counts,
}

struct Definition<'s> {
    name: String,
    place: Place<'s>,
    outer: Outer,
    path: String,
}

#[derive(Default)]
struct Counts {
    schemas: usize,
    properties: usize,
    enum_values: usize,
    multiples: u64,
    steps: usize,
}

impl<'s> Preparation<'s> {
    /// Prepares one schema. `true` admits any value, `false` none.
    fn schema(&mut self, place: Place<'s>, outer: &Outer, path: &str) -> Result<Value, GrammarError> {
        self.counts.schemas += 1;
        if self.counts.schemas > MAX_SCHEMAS {
            return Err(GrammarError::new(format!(
                "the schema has more than {MAX_SCHEMAS} schemas in it"
            )));
        }
        match place.schema {
            Value::Bool(admits) => Ok(Value::Bool(*admits)),
            Value::Null => Ok(Value::Bool(true)),
            Value::Object(fields) => {
                let path = self
                    .paths
                    .entry(place.address())
                    .or_insert_with(|| path.to_owned())
                    .clone();
                self.object(place, fields, outer, &path)
            }
            _ => {
                let position = if path.is_empty() {
                    String::new()
                } else {
                    format!(" at {path}")
                };
                Err(GrammarError::new(format!("a JSON schema must be an object{position}")))
            }
        }
    }

    fn object(
        &mut self,
        place: Place<'s>,
        fields: &'s Map<String, Value>,
        outer: &Outer,
        path: &str,
    ) -> Result<Value, GrammarError> {
        let fields: Vec<(&'s str, &'s Value)> = (fields.iter())
            .filter(|(key, value)| !ANNOTATIONS.contains(&key.as_str()) && is_assertion(key, value))
            .map(|(key, value)| (key.as_str(), value))
            .collect();
        let mut schema = keywords::Fields::new(fields);
        self.drop_unsupported(&mut schema, path);
        let is_nullable = schema.take("nullable") == Some(&Value::Bool(true));
        let is_own_first = schema.begins_with_own();
        let parts = self.parts(place, &mut schema, path)?;
        let scope = self.scope(place, &schema, &parts, outer)?;
        let own = self.own(place, &schema, &scope, path)?;
        let combined = self.combined(own, is_own_first, parts, &scope)?;
        Ok(if is_nullable && combined.is_object() {
            json!({"anyOf": [combined, {"type": "null"}]})
        } else {
            combined
        })
    }

    /// Returns a reference to the definition of a schema.
    fn definition(&mut self, place: Place<'s>, outer: &Outer, path: &str) -> Value {
        let number = self.names.len();
        let entry = self.names.entry((place.address(), outer.clone()));
        let name = entry.or_insert_with(|| {
            let name = format!("d{number}");
            self.pending.push_back(Definition {
                name: name.clone(),
                place,
                outer: outer.clone(),
                path: path.to_owned(),
            });
            name
        });
        json!({"$ref": format!("#/$defs/{name}")})
    }

    fn ignore(&mut self, path: &str, keyword: &str) {
        let ignored = IgnoredKeyword {
            function: None,
            path: path.to_owned(),
            keyword: keyword.to_owned(),
        };
        // Definitions that several objects extend are prepared several times.
        if !self.ignored.contains(&ignored) {
            self.ignored.push(ignored);
        }
    }

    /// Counts one step of work.
    fn step(&mut self) -> Result<(), GrammarError> {
        self.counts.steps += 1;
        if self.counts.steps > MAX_STEPS {
            return Err(GrammarError::new(
                "the schema combines too many schemas by allOf, anyOf and references",
            ));
        }
        Ok(())
    }

    fn count_properties(&mut self, count: usize) -> Result<(), GrammarError> {
        self.counts.properties += count;
        if self.counts.properties > MAX_PROPERTIES {
            let why = format!("the schema has more than {MAX_PROPERTIES} properties");
            return Err(GrammarError::new(why));
        }
        Ok(())
    }
}
