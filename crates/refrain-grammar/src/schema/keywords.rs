//! The keywords of one schema.

use serde_json::{Map, Number, Value, json};

use super::closing::{Outer, Scope};
use super::references::Place;
use super::values::{Listed, exact};
use super::{Preparation, patterns};
use crate::error::GrammarError;
use crate::limits::{MAX_COUNT, MAX_MULTIPLE, MAX_MULTIPLES};

/// Keywords that are enforced, at least in part.
pub(super) const SUPPORTED: [&str; 31] = [
    "$ref",
    "$dynamicRef",
    "$recursiveRef",
    "allOf",
    "anyOf",
    "oneOf",
    "type",
    "nullable",
    "enum",
    "const",
    "properties",
    "additionalProperties",
    "patternProperties",
    "required",
    "minProperties",
    "maxProperties",
    "items",
    "prefixItems",
    "additionalItems",
    "minItems",
    "maxItems",
    "minLength",
    "maxLength",
    "pattern",
    "format",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "unevaluatedProperties",
];
/// Keywords that cannot be enforced.
pub(super) const UNSUPPORTED: [&str; 13] = [
    "not",
    "if",
    "then",
    "else",
    "propertyNames",
    "uniqueItems",
    "contains",
    "minContains",
    "maxContains",
    "dependentRequired",
    "dependentSchemas",
    "dependencies",
    "unevaluatedItems",
];
/// Formats of strings that the library knows.
const FORMATS: [&str; 10] = [
    "date-time",
    "time",
    "date",
    "duration",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "uuid",
    "uri",
];
const TYPES: [&str; 7] = ["null", "boolean", "integer", "number", "string", "array", "object"];
/// Names of types of programming languages, which tools of agents have. They are no types of JSON schemas, and ignored.
const FOREIGN_TYPES: [&str; 24] = [
    "any", "bool", "bytes", "char", "date", "datetime", "decimal", "dict", "double", "enum", "file", "float",
    "function", "int", "list", "long", "map", "none", "numeric", "set", "str", "text", "tuple", "union",
];
/// Keywords that imply a type where none is given.
const IMPLIED: [(&str, &[&str]); 4] = [
    (
        "object",
        &[
            "properties",
            "required",
            "additionalProperties",
            "patternProperties",
            "minProperties",
            "maxProperties",
        ],
    ),
    (
        "array",
        &["items", "prefixItems", "additionalItems", "minItems", "maxItems"],
    ),
    ("string", &["pattern", "format", "minLength", "maxLength"]),
    (
        "number",
        &[
            "minimum",
            "maximum",
            "exclusiveMinimum",
            "exclusiveMaximum",
            "multipleOf",
        ],
    ),
];
/// The keywords of a schema, in its order.
pub(super) struct Fields<'s>(Vec<(&'s str, &'s Value)>);

impl<'s> Fields<'s> {
    pub fn new(fields: Vec<(&'s str, &'s Value)>) -> Fields<'s> {
        Fields(fields)
    }

    pub fn get(&self, key: &str) -> Option<&'s Value> {
        self.0.iter().find(|(name, _)| *name == key).map(|(_, value)| *value)
    }

    pub fn take(&mut self, key: &str) -> Option<&'s Value> {
        let at = self.0.iter().position(|(name, _)| *name == key)?;
        Some(self.0.remove(at).1)
    }

    /// Takes all keywords, and returns their names.
    pub fn drain(&mut self) -> Vec<&'s str> {
        self.0.drain(..).map(|(name, _)| name).collect()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the first keyword combines no schemas.
    pub fn begins_with_own(&self) -> bool {
        let combining = ["$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf"];
        let own = self
            .0
            .iter()
            .position(|(name, _)| !combining.contains(name) && *name != "type");
        let combined = self.0.iter().position(|(name, _)| combining.contains(name));
        own <= combined || combined.is_none()
    }
}

impl<'s> Preparation<'s> {
    /// Takes the keywords that cannot be enforced, and reports them.
    pub(super) fn drop_unsupported(&mut self, schema: &mut Fields<'s>, path: &str) {
        let has = |key: &str| schema.get(key).is_some();
        let (has_if, has_contains) = (has("if"), has("contains"));
        for key in UNSUPPORTED {
            let Some(value) = schema.take(key) else { continue };
            let is_harmless = match key {
                "uniqueItems" => *value == Value::Bool(false),
                "then" | "else" => !has_if,
                "minContains" | "maxContains" => !has_contains,
                "propertyNames" | "if" | "contains" | "unevaluatedItems" => *value == Value::Bool(true),
                _ => false,
            };
            if !is_harmless {
                self.ignore(path, key);
            }
        }
    }

    /// Prepares the keywords of a schema that combine no schemas.
    pub(super) fn own(
        &mut self,
        place: Place<'s>,
        schema: &Fields<'s>,
        scope: &Scope,
        path: &str,
    ) -> Result<Value, GrammarError> {
        let mut types = self.types(schema, path)?;
        match self.listed(schema, &types, path)? {
            Listed::Values(values) if values.is_empty() => return Ok(Value::Bool(false)),
            Listed::Values(values) => return Ok(json!({"enum": values})),
            Listed::Types(listed) => types = listed,
            Listed::Nothing => {}
        }
        if types.is_empty() {
            let implied = IMPLIED
                .iter()
                .filter(|(_, keys)| keys.iter().any(|key| schema.get(key).is_some()));
            types.extend(implied.map(|(name, _)| *name));
        }
        if types.is_empty() {
            return Ok(Value::Bool(true));
        }
        let mut keywords = Map::new();
        let mut admitted = vec![];
        for name in types {
            let admits = match name {
                "object" => self.object_keywords(place, schema, scope, path, &mut keywords)?,
                "array" => self.array_keywords(place, schema, path, &mut keywords)?,
                "string" => self.string_keywords(schema, path, &mut keywords)?,
                "number" | "integer" => self.number_keywords(schema, path, &mut keywords)?,
                _ => true,
            };
            if admits {
                admitted.push(name);
            }
        }
        let kind = match admitted.as_slice() {
            [] => return Ok(Value::Bool(false)),
            [one] => json!(one),
            several => json!(several),
        };
        let mut own = Map::from_iter([("type".to_owned(), kind)]);
        own.append(&mut keywords);
        Ok(Value::Object(own))
    }

    /// The types that a schema names. Names of other languages' types are ignored.
    ///
    /// # Errors
    /// If one is no type at all.
    fn types(&mut self, schema: &Fields<'s>, path: &str) -> Result<Vec<&'static str>, GrammarError> {
        let names: Vec<&Value> = match schema.get("type") {
            None => return Ok(vec![]),
            Some(Value::Array(names)) => names.iter().collect(),
            Some(name) => vec![name],
        };
        let known = |name: &&Value| {
            let name = name.as_str()?.to_ascii_lowercase();
            TYPES.into_iter().find(|known| *known == name)
        };
        let is_foreign = |name: &Value| {
            let name = name.as_str().map(str::to_ascii_lowercase);
            name.is_some_and(|name| FOREIGN_TYPES.contains(&name.as_str()))
        };
        if let Some(name) = names.iter().find(|name| known(name).is_none() && !is_foreign(name)) {
            let why = format!("{name} is no type; types are {}", TYPES.join(", "));
            return Err(GrammarError::new(why).at(path));
        }
        let types: Vec<&'static str> = names.iter().filter_map(known).collect();
        if types.len() < names.len() && !names.iter().any(|name| *name == "any") {
            self.ignore(path, "type");
        }
        // The unknown one could be anything.
        Ok(if types.len() < names.len() { vec![] } else { types })
    }

    fn array_keywords(
        &mut self,
        place: Place<'s>,
        schema: &Fields<'s>,
        path: &str,
        out: &mut Map<String, Value>,
    ) -> Result<bool, GrammarError> {
        let (prefix, rest) = match schema.get("items") {
            Some(Value::Array(items)) => (Some(("items", items)), schema.get("additionalItems")),
            other => {
                let prefix = schema.get("prefixItems").and_then(Value::as_array);
                (prefix.map(|items| ("prefixItems", items)), other)
            }
        };
        let mut first = vec![];
        if let Some((key, items)) = prefix {
            for (number, item) in items.iter().enumerate() {
                let path = format!("{path}/{key}/{number}");
                first.push(self.schema(place.inner(item), &Outer::default(), &path)?);
            }
        }
        let rest = match rest {
            Some(value) => self.schema(place.inner(value), &Outer::default(), &format!("{path}/items"))?,
            None => Value::Bool(true),
        };
        let (min, max) = (
            self.count(schema, "minItems", path)?,
            self.count(schema, "maxItems", path)?,
        );
        let least = min.unwrap_or(0);
        if max.is_some_and(|max| max < least) || rest == Value::Bool(false) && least > first.len() as u64 {
            return Ok(false);
        }
        if !first.is_empty() {
            out.insert("prefixItems".to_owned(), Value::Array(first));
        }
        if rest != Value::Bool(true) {
            out.insert("items".to_owned(), rest);
        }
        insert_counts(out, [("minItems", min), ("maxItems", max)]);
        Ok(true)
    }

    fn string_keywords(
        &mut self,
        schema: &Fields<'s>,
        path: &str,
        out: &mut Map<String, Value>,
    ) -> Result<bool, GrammarError> {
        let (min, max) = (
            self.count(schema, "minLength", path)?,
            self.count(schema, "maxLength", path)?,
        );
        if max.is_some_and(|max| max < min.unwrap_or(0)) {
            return Ok(false);
        }
        insert_counts(out, [("minLength", min), ("maxLength", max)]);
        if let Some(pattern) = schema.get("pattern") {
            match pattern.as_str() {
                None => return Err(wrong("pattern", "a string").at(path)),
                Some(text) if patterns::is_compilable(text).map_err(|why| why.at(path))? => {
                    out.insert("pattern".to_owned(), pattern.clone());
                }
                Some(_) => self.ignore(path, "pattern"),
            }
        }
        if let Some(format) = schema.get("format") {
            if format.as_str().is_some_and(|name| FORMATS.contains(&name)) {
                out.insert("format".to_owned(), format.clone());
            } else {
                self.ignore(path, "format");
            }
        }
        Ok(true)
    }

    fn number_keywords(
        &mut self,
        schema: &Fields<'s>,
        path: &str,
        out: &mut Map<String, Value>,
    ) -> Result<bool, GrammarError> {
        let mut bounds = Map::new();
        for key in ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"] {
            let Some(value) = schema.get(key) else { continue };
            // In draft 4, these are flags of the bounds beside them.
            let value = match value {
                Value::Bool(false) => continue,
                Value::Bool(true) => schema.get(if key == "exclusiveMinimum" {
                    "minimum"
                } else {
                    "maximum"
                }),
                value if !value.is_number() => return Err(wrong(key, "a number").at(path)),
                value => Some(value),
            };
            match value.and_then(exact) {
                Some(bound) => drop(bounds.insert(key.to_owned(), json_number(bound))),
                None => self.ignore(path, key),
            }
        }
        if let Some(value) = schema.get("multipleOf") {
            if value.as_f64().is_none_or(|value| value <= 0.0) {
                return Err(wrong("multipleOf", "a number above 0").at(path));
            }
            match value.as_f64().and_then(|value| self.multiple(value)) {
                Some(multiple) => drop(bounds.insert("multipleOf".to_owned(), multiple)),
                None => self.ignore(path, "multipleOf"),
            }
        }
        let bound = |key: &str| bounds.get(key).and_then(Value::as_f64);
        let is_empty = bound("minimum")
            .zip(bound("maximum"))
            .is_some_and(|(min, max)| min > max);
        out.append(&mut bounds);
        Ok(!is_empty)
    }

    /// Returns a divisor that the library enforces.
    fn multiple(&mut self, value: f64) -> Option<Value> {
        let mut digits = value.abs();
        for _ in 0..10 {
            if digits.fract() == 0.0 {
                break;
            }
            digits *= 10.0;
        }
        let count = digits as u64;
        let is_small = digits.fract() == 0.0 && (1..=MAX_MULTIPLE).contains(&count);
        if !is_small || self.counts.multiples + count > MAX_MULTIPLES {
            return None;
        }
        self.counts.multiples += count;
        Some(json_number(value.abs()))
    }

    /// Reads a number of items, properties or characters. Very large ones are ignored.
    ///
    /// # Errors
    /// If it is no integer from 0 on.
    pub(super) fn count(&mut self, schema: &Fields<'s>, key: &str, path: &str) -> Result<Option<u64>, GrammarError> {
        let Some(value) = schema.get(key) else { return Ok(None) };
        let whole = value.as_f64().filter(|count| count.fract() == 0.0 && *count >= 0.0);
        let whole = whole.ok_or_else(|| wrong(key, "an integer from 0 on").at(path))?;
        if whole > MAX_COUNT as f64 {
            self.ignore(path, key);
            return Ok(None);
        }
        Ok(Some(whole as u64))
    }
}

/// The error of a keyword with a value of the wrong type.
pub(super) fn wrong(keyword: &str, expected: &str) -> GrammarError {
    GrammarError::new(format!("{keyword} must be {expected}"))
}

fn insert_counts<const N: usize>(out: &mut Map<String, Value>, counts: [(&str, Option<u64>); N]) {
    for (key, count) in counts {
        if let Some(count) = count {
            out.insert(key.to_owned(), json!(count));
        }
    }
}

fn json_number(number: f64) -> Value {
    if number.fract() == 0.0 {
        return json!(number as i64);
    }
    Number::from_f64(number).map_or(Value::Null, Value::Number)
}
