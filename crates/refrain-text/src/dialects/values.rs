//! Arguments that a model wrote as plain text, turned into JSON by the schema of the function.

use serde_json::Value;

use super::json::{compact, is_json, quoted};
use super::literal::python_value;

/// The functions that a model may call, with the JSON schemas of their arguments.
#[derive(Debug, Clone, Default)]
pub struct Functions(Vec<(String, Value)>);

/// The deepest chain of references and alternatives that is followed in a schema.
const MAX_DEPTH: usize = 16;

impl Functions {
    /// Functions by name and JSON schema of their arguments; `null` where a function has none.
    pub fn new(functions: impl IntoIterator<Item = (String, Value)>) -> Functions {
        Functions(functions.into_iter().collect())
    }

    /// Functions of a chat request: objects with `name` and `parameters`, perhaps within `function`.
    pub fn of_tools(tools: &[Value]) -> Functions {
        let functions = tools.iter().filter_map(|tool| {
            let function = tool.get("function").unwrap_or(tool);
            let name = function.get("name")?.as_str()?;
            let schema = function.get("parameters").or(function.get("input_schema"));
            Some((name.to_owned(), schema.cloned().unwrap_or(Value::Null)))
        });
        Functions::new(functions)
    }

    /// Whether no function is offered.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a function of this name is offered.
    pub fn contains(&self, name: &str) -> bool {
        self.0.iter().any(|(known, _)| known == name)
    }

    /// Whether the name of a function that is offered begins so.
    pub(super) fn begins(&self, beginning: &str) -> bool {
        self.0.iter().any(|(name, _)| name.starts_with(beginning))
    }

    fn schema(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, schema)| schema)
    }

    /// Returns the argument `key` of `function`, written as `text`, as JSON.
    ///
    /// A string stays as it is where the schema wants strings alone. Elsewhere the text is read as JSON, then as a
    /// Python literal; what is neither is a string.
    pub(super) fn typed(&self, function: &str, key: &str, text: &str) -> String {
        let raw = text
            .trim()
            .strip_prefix("<![CDATA[")
            .and_then(|text| text.strip_suffix("]]>"));
        if let Some(raw) = raw {
            return quoted(raw);
        }
        let schema = self.schema(function);
        let property = schema.and_then(|schema| property(schema, key));
        let types = property.map_or(Types::ANY, |property| {
            types(schema.unwrap_or(&Value::Null), property, 0)
        });
        typed(text, types)
    }
}

/// Returns the JSON of a value that was written as `text`, by JSON if it is that, as a string else.
pub(super) fn untyped(text: &str) -> String {
    typed(text, Types::ANY)
}

/// A part of the schema of a function's arguments, which may not be there.
#[derive(Debug, Clone, Copy)]
pub(super) struct SchemaNode<'s> {
    root: &'s Value,
    schema: Option<&'s Value>,
}

impl<'s> SchemaNode<'s> {
    /// The schema of a function's arguments.
    pub fn of(functions: &'s Functions, name: &str) -> SchemaNode<'s> {
        let schema = functions.schema(name);
        SchemaNode {
            root: schema.unwrap_or(&Value::Null),
            schema,
        }
    }

    fn with(self, schema: Option<&'s Value>) -> SchemaNode<'s> {
        let mut schema = schema;
        for _ in 0..MAX_DEPTH {
            let Some(place) = schema.and_then(|schema| schema.get("$ref")?.as_str()) else {
                break;
            };
            schema = place.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer));
        }
        SchemaNode { schema, ..self }
    }

    /// Whether it is an object's that names this property.
    pub fn has_property(self, key: &str) -> bool {
        self.schema.is_some_and(|schema| property(schema, key).is_some())
    }

    /// The schema of a property.
    pub fn property(self, key: &str) -> SchemaNode<'s> {
        self.with(self.schema.and_then(|schema| property(schema, key)))
    }

    /// The schema of a list's items.
    pub fn items(self) -> SchemaNode<'s> {
        self.with(self.schema.and_then(|schema| schema.get("items")))
    }

    /// Returns the JSON of a value that was written as `text`. Nothing is an empty string, list or object where the
    /// schema wants one, and null elsewhere.
    pub fn typed(self, text: &str) -> String {
        let types = self.schema.map_or(Types::ANY, |schema| types(self.root, schema, 0));
        if !text.is_empty() || types.text && !types.other {
            return typed(text, types);
        }
        let kind = self.schema.and_then(|schema| schema.get("type")?.as_str());
        match kind {
            Some("array") => "[]",
            Some("object") => "{}",
            _ => "null",
        }
        .to_owned()
    }
}

/// What a schema admits.
#[derive(Debug, Clone, Copy)]
struct Types {
    text: bool,
    other: bool,
}

impl Types {
    const ANY: Types = Types {
        text: true,
        other: true,
    };
    const NONE: Types = Types {
        text: false,
        other: false,
    };

    fn or(self, more: Types) -> Types {
        Types {
            text: self.text || more.text,
            other: self.other || more.other,
        }
    }
}

fn typed(text: &str, types: Types) -> String {
    if types.other {
        let value = text.trim();
        if is_json(value) && (!types.text || !value.starts_with('"')) {
            return compact(value);
        }
        let is_literal = value.starts_with(['{', '[', '(']) || matches!(value, "True" | "False" | "None");
        if let Some(json) = is_literal.then(|| python_value(value)).flatten() {
            return json;
        }
    }
    quoted(text)
}

fn property<'s>(schema: &'s Value, key: &str) -> Option<&'s Value> {
    let properties = schema.get("properties")?;
    properties.get(key)
}

/// The types of a schema: by `type`, `const`, `enum`, alternatives and references.
fn types(root: &Value, schema: &Value, depth: usize) -> Types {
    if depth > MAX_DEPTH {
        return Types::ANY;
    }
    let of_name = |name: &str| Types {
        text: name == "string",
        other: name != "string",
    };
    let of_value = |value: &Value| Types {
        text: value.is_string(),
        other: !value.is_string(),
    };
    if let Some(value) = schema.get("const") {
        return of_value(value);
    }
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        return values.iter().map(of_value).fold(Types::NONE, Types::or);
    }
    match schema.get("type") {
        Some(Value::String(name)) => return of_name(name),
        Some(Value::Array(names)) => {
            let names = names.iter().filter_map(Value::as_str);
            return names.map(of_name).fold(Types::NONE, Types::or);
        }
        _ => {}
    }
    for alternatives in ["anyOf", "oneOf", "allOf"] {
        if let Some(schemas) = schema.get(alternatives).and_then(Value::as_array) {
            let each = schemas.iter().map(|schema| types(root, schema, depth + 1));
            return each.fold(Types::NONE, Types::or);
        }
    }
    if let Some(place) = schema.get("$ref").and_then(Value::as_str) {
        let target = place.strip_prefix('#').and_then(|pointer| root.pointer(pointer));
        return target.map_or(Types::ANY, |target| types(root, target, depth + 1));
    }
    Types::ANY
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_schema_decides_what_a_text_is() {
        let schema = json!({
            "properties": {
                "text": {"type": "string"},
                "count": {"type": "integer"},
                "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                "flag": {"type": ["boolean", "null"]},
                "point": {"$ref": "#/$defs/point"},
                "kind": {"enum": ["1", "2"]},
            },
            "$defs": {"point": {"type": "object"}},
        });
        let functions = Functions::new([("f".to_owned(), schema)]);
        let typed = |key, text| functions.typed("f", key, text);
        assert_eq!(typed("text", "3"), "\"3\"");
        assert_eq!(typed("text", "\"a\""), "\"\\\"a\\\"\"");
        assert_eq!(typed("count", "123456789012345678901"), "123456789012345678901");
        assert_eq!(typed("count", "many"), "\"many\"");
        assert_eq!(typed("maybe", "null"), "null");
        assert_eq!(typed("maybe", "x"), "\"x\"");
        assert_eq!(typed("flag", "True"), "true");
        assert_eq!(typed("point", "{'a': [1, None]}"), r#"{"a":[1,null]}"#);
        assert_eq!(typed("kind", "1"), "\"1\"");
        assert_eq!(typed("unknown", "[1]"), "[1]");
        assert_eq!(typed("unknown", "\"a\""), "\"\\\"a\\\"\"");
        assert_eq!(functions.typed("g", "x", "1.50"), "1.50");
    }

    #[test]
    fn endless_references_are_any_type() {
        let schema = json!({"properties": {"a": {"$ref": "#/properties/a"}}});
        let functions = Functions::new([("f".to_owned(), schema)]);
        assert_eq!(functions.typed("f", "a", "1"), "1");
    }
}
