//! The keywords of one schema.

use llguidance::derivre::{ExprRef, RegexAst, RegexBuilder};
use serde_json::{Map, Number, Value, json};

use super::closing::{Outer, Scope};
use super::references::Place;
use super::values::{Listed, is_exact};
use super::{Preparation, pointer};
use crate::error::GrammarError;
use crate::limits::{MAX_COUNT, MAX_MULTIPLE, MAX_MULTIPLES, MAX_OPTIONAL_PROPERTIES};
use crate::regex::{self, RegexProblem};

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
/// Limit of optional properties for which "one of them" is enforced: each is a sequence of its own.
const MAX_ALTERNATIVES: usize = 32;
/// Limit of the patterns of properties that are compared with each other.
const MAX_PATTERNS: usize = 8;

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
        let mut types = self.types(schema, path);
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
                "number" | "integer" => self.number_keywords(schema, path, &mut keywords),
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
    fn types(&mut self, schema: &Fields<'s>, path: &str) -> Vec<&'static str> {
        let names: Vec<&Value> = match schema.get("type") {
            None => return vec![],
            Some(Value::Array(names)) => names.iter().collect(),
            Some(name) => vec![name],
        };
        let known = |name: &&Value| {
            let name = name.as_str()?.to_ascii_lowercase();
            TYPES.into_iter().find(|known| *known == name)
        };
        let types: Vec<&'static str> = names.iter().filter_map(known).collect();
        if types.len() < names.len() && !names.iter().any(|name| *name == "any") {
            self.ignore(path, "type");
        }
        // The unknown one could be anything.
        if types.len() < names.len() { vec![] } else { types }
    }

    fn object_keywords(
        &mut self,
        place: Place<'s>,
        schema: &Fields<'s>,
        scope: &Scope,
        path: &str,
        out: &mut Map<String, Value>,
    ) -> Result<bool, GrammarError> {
        let required = self.required(schema, path);
        let mut properties = Map::new();
        let declared = self.mapping(schema, "properties", path);
        for (key, value) in declared.into_iter().flatten() {
            let path = format!("{path}/properties/{}", pointer(key));
            let value = self.schema(place.inner(value), &Outer::default(), &path)?;
            if value == Value::Bool(false) && required.contains(&key.as_str()) {
                return Ok(false);
            }
            properties.insert(key.clone(), value);
        }
        let (patterns, is_reduced) = self.patterns(place, schema, path)?;
        let stated = schema
            .get("additionalProperties")
            .or(schema.get("unevaluatedProperties"));
        let stated =
            stated.filter(|value| !value.is_null() && schema.get("unevaluatedProperties") != Some(&json!(false)));
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
        let optional = properties
            .keys()
            .filter(|key| !required.contains(&key.as_str()))
            .count();
        if optional > MAX_OPTIONAL_PROPERTIES {
            let why = format!("an object has more than {MAX_OPTIONAL_PROPERTIES} optional properties");
            return Err(GrammarError::new(why));
        }
        let is_alone = scope.groups.is_empty() && !scope.own.is_open;
        let is_exact = is_alone && is_closed && patterns.is_empty();
        if !self.sizes(schema, required.len(), optional, is_exact, path, out) {
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

    fn required(&mut self, schema: &Fields<'s>, path: &str) -> Vec<&'s str> {
        let Some(value) = schema.get("required") else {
            return vec![];
        };
        let listed = value.as_array().map(Vec::as_slice).unwrap_or_default();
        let mut seen = std::collections::HashSet::new();
        let names: Vec<&str> = listed.iter().filter_map(Value::as_str).collect();
        if names.len() < listed.len() || !value.is_array() {
            self.ignore(path, "required");
        }
        names.into_iter().filter(|name| seen.insert(*name)).collect()
    }

    /// Reads a keyword that maps names to schemas.
    fn mapping(&mut self, schema: &Fields<'s>, key: &str, path: &str) -> Option<&'s Map<String, Value>> {
        let value = schema.get(key)?;
        if !value.is_object() {
            self.ignore(path, key);
        }
        value.as_object()
    }

    /// Prepares `patternProperties`. Returns whether some cannot be enforced.
    fn patterns(
        &mut self,
        place: Place<'s>,
        schema: &Fields<'s>,
        path: &str,
    ) -> Result<(Map<String, Value>, bool), GrammarError> {
        let mut patterns = Map::new();
        let declared = self.mapping(schema, "patternProperties", path);
        let mut is_reduced = false;
        for (pattern, value) in declared.into_iter().flatten() {
            let path_of = format!("{path}/patternProperties/{}", pointer(pattern));
            let value = self.schema(place.inner(value), &Outer::default(), &path_of)?;
            let mut all: Vec<&str> = patterns.keys().map(String::as_str).collect();
            all.push(pattern);
            if is_compilable(pattern)? && all.len() <= MAX_PATTERNS && are_disjoint(&all) {
                patterns.insert(pattern.clone(), value);
            } else {
                self.ignore(path, "patternProperties");
                is_reduced = true;
            }
        }
        Ok((patterns, is_reduced))
    }

    /// Prepares `minProperties` and `maxProperties`. Returns whether an object can have so many. The library enforces
    /// them where all properties are required, and "one of the optional ones".
    fn sizes(
        &mut self,
        schema: &Fields<'s>,
        required: usize,
        optional: usize,
        is_exact: bool,
        path: &str,
        out: &mut Map<String, Value>,
    ) -> bool {
        let [min, max] = ["minProperties", "maxProperties"].map(|key| self.count(schema, key, path));
        let total = (required + optional) as u64;
        let (required, min, mut max) = (required as u64, min.unwrap_or(0), max);
        if max.is_some_and(|max| max < min || max < required) || is_exact && min > total {
            return false;
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
        true
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
        let [min, max] = ["minItems", "maxItems"].map(|key| self.count(schema, key, path));
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
        let [min, max] = ["minLength", "maxLength"].map(|key| self.count(schema, key, path));
        if max.is_some_and(|max| max < min.unwrap_or(0)) {
            return Ok(false);
        }
        insert_counts(out, [("minLength", min), ("maxLength", max)]);
        if let Some(pattern) = schema.get("pattern") {
            match pattern.as_str() {
                Some(text) if is_compilable(text).map_err(|why| why.about(path))? => {
                    out.insert("pattern".to_owned(), pattern.clone());
                }
                _ => self.ignore(path, "pattern"),
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

    fn number_keywords(&mut self, schema: &Fields<'s>, path: &str, out: &mut Map<String, Value>) -> bool {
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
                value => Some(value),
            };
            match value.and_then(Value::as_f64).filter(|bound| is_exact(*bound)) {
                Some(bound) => drop(bounds.insert(key.to_owned(), json_number(bound))),
                None => self.ignore(path, key),
            }
        }
        if let Some(value) = schema.get("multipleOf") {
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
        !is_empty
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

    /// Reads a number of items, properties or characters.
    fn count(&mut self, schema: &Fields<'s>, key: &str, path: &str) -> Option<u64> {
        let value = schema.get(key)?;
        let whole = value
            .as_f64()
            .filter(|count| count.fract() == 0.0 && (0.0..=MAX_COUNT as f64).contains(count));
        if whole.is_none() {
            self.ignore(path, key);
        }
        whole.map(|count| count as u64)
    }
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

/// Whether the library compiles a regular expression of a schema.
///
/// # Errors
/// If it exceeds a limit.
fn is_compilable(pattern: &str) -> Result<bool, GrammarError> {
    match regex::check(pattern) {
        Ok(()) => {
            let pattern = llguidance::regex_to_lark(pattern, "dw");
            Ok(RegexBuilder::new().mk_regex_for_serach(&pattern).is_ok())
        }
        Err(RegexProblem::Invalid(_)) => Ok(false),
        Err(RegexProblem::TooLarge(why)) => Err(GrammarError::new(why)),
    }
}

/// Whether no text matches two of these regular expressions. The library compiles no others beside each other.
fn are_disjoint(patterns: &[&str]) -> bool {
    const FUEL: u64 = 10_000;
    let mut builder = RegexBuilder::new();
    let made = patterns
        .iter()
        .map(|pattern| builder.mk_regex_for_serach(&llguidance::regex_to_lark(pattern, "dw")));
    let made: Vec<ExprRef> = made.filter_map(Result::ok).collect();
    let Some((last, others)) = made.split_last() else {
        return false;
    };
    others.iter().all(|other| {
        let both = RegexAst::And(vec![RegexAst::ExprRef(*other), RegexAst::ExprRef(*last)]);
        let regex = builder.mk(&both).and_then(|both| builder.to_regex_limited(both, FUEL));
        regex.is_ok_and(|mut regex| regex.always_empty())
    })
}
