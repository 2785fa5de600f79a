//! What the preparation writes.

use serde_json::json;

use super::prepare;

#[test]
fn annotations_are_dropped_and_references_are_named() {
    let schema = json!({
        "title": "T", "description": "d", "$schema": "urn:unknown", "examples": [1],
        "type": "object",
        "properties": {"title": {"$ref": "#/definitions/A B", "description": "x"}, "again": {"$ref": "#/definitions/A B"}},
        "definitions": {"A B": {"type": "string", "default": "q"}, "unused": {"type": "integer"}},
    });
    let prepared = prepare(&schema).unwrap();
    let expected = json!({
        "type": "object",
        "properties": {"title": {"$ref": "#/$defs/d0"}, "again": {"$ref": "#/$defs/d0"}},
        "additionalProperties": false,
        "$defs": {"d0": {"type": "string"}},
    });
    assert_eq!(prepared.schema, expected);
    assert!(prepared.ignored.is_empty());
    assert_eq!(prepared.properties, 2);
}
