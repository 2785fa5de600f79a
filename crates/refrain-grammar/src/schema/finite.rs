//! Whether a schema admits a value that ends: one that requires itself does not.

use std::collections::HashSet;

use serde_json::{Map, Value};

/// Whether a prepared schema admits a value that ends.
pub(super) fn is_finite(root: &Map<String, Value>, definitions: &Map<String, Value>) -> bool {
    let mut finite = HashSet::new();
    loop {
        let before = finite.len();
        // Definitions come behind those that refer to them.
        for (name, schema) in definitions.iter().rev() {
            if !finite.contains(name.as_str()) && ends(schema, &finite) {
                finite.insert(name.as_str());
            }
        }
        if finite.len() == before {
            return object_ends(root, &finite);
        }
    }
}

/// Whether a schema admits a value that ends, where the definitions of these names do.
fn ends(schema: &Value, finite: &HashSet<&str>) -> bool {
    match schema {
        Value::Object(fields) => object_ends(fields, finite),
        other => *other != Value::Bool(false),
    }
}

fn object_ends(schema: &Map<String, Value>, finite: &HashSet<&str>) -> bool {
    let members = |key: &str| schema.get(key).and_then(Value::as_array);
    let reference = schema.get("$ref").and_then(Value::as_str);
    let is_named = |reference: &str| {
        let name = reference.strip_prefix("#/$defs/");
        name.is_none_or(|name| finite.contains(name))
    };
    if !reference.is_none_or(is_named)
        || !members("allOf").is_none_or(|all| all.iter().all(|one| ends(one, finite)))
        || !members("anyOf").is_none_or(|any| any.iter().any(|one| ends(one, finite)))
    {
        return false;
    }
    let type_ends = |name: &Value| match name.as_str() {
        Some("object") => required_end(schema, finite),
        Some("array") => items_end(schema, finite),
        _ => true,
    };
    match schema.get("type") {
        Some(Value::Array(names)) => names.iter().any(type_ends),
        Some(name) => type_ends(name),
        None => true,
    }
}

/// Whether all required properties have values that end.
fn required_end(schema: &Map<String, Value>, finite: &HashSet<&str>) -> bool {
    let mut required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
    let property = |name: &Value| {
        let declared = schema.get("properties").and_then(|all| all.get(name.as_str()?));
        declared.or(schema.get("additionalProperties"))
    };
    required.all(|name| property(name).is_none_or(|value| ends(value, finite)))
}

/// Whether as many items as a list needs have values that end.
fn items_end(schema: &Map<String, Value>, finite: &HashSet<&str>) -> bool {
    let count = schema.get("minItems").and_then(Value::as_u64).unwrap_or(0) as usize;
    let first = schema.get("prefixItems").and_then(Value::as_array);
    let first = first.map(Vec::as_slice).unwrap_or_default();
    let rest = schema.get("items").filter(|_| count > first.len());
    first.iter().take(count).all(|item| ends(item, finite)) && rest.is_none_or(|item| ends(item, finite))
}
