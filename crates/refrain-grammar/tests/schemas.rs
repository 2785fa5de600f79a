//! What schemas admit: references, open and closed objects, and keywords that cannot be enforced.

mod support;

use refrain_grammar::{Grammar, GrammarCompiler};
use serde_json::{Value, json};

/// Checks what a schema admits and refuses, and which keywords it reports.
struct Cases(GrammarCompiler);

impl Cases {
    fn new() -> Cases {
        Cases(support::compiler())
    }

    fn check(&self, schema: Value, admitted: &[&str], refused: &[&str], ignored: &[&str]) {
        let grammar = Grammar::JsonSchema(schema.clone());
        for text in admitted {
            assert!(support::admits(&self.0, &grammar, text), "{schema} must admit {text}");
        }
        for text in refused {
            assert!(!support::admits(&self.0, &grammar, text), "{schema} must refuse {text}");
        }
        let constraint = self.0.constraint(&grammar, None).unwrap();
        let reported: Vec<String> = constraint.ignored().iter().map(ToString::to_string).collect();
        assert_eq!(reported, ignored, "{schema}");
    }

    fn error(&self, schema: Value) -> String {
        let grammar = Grammar::JsonSchema(schema.clone());
        self.0
            .constraint(&grammar, None)
            .err()
            .unwrap_or_else(|| panic!("{schema} must be refused"))
            .to_string()
    }
}

#[test]
fn references_mean_what_they_name() {
    let cases = Cases::new();
    let list = json!({"type": "object", "properties": {"next": {"$ref": "#"}}});
    cases.check(
        list,
        &[r#"{"next": {"next": {}}}"#, "{}"],
        &[r#"{"next": 1}"#, r#"{"other": 1}"#],
        &[],
    );
    let sibling = json!({"properties": {"a": {"type": "integer"}, "b": {"$ref": "#/properties/a"}}});
    cases.check(sibling, &[r#"{"a": 1, "b": 2}"#], &[r#"{"b": "x"}"#, "1"], &[]);
    let escaped = json!({"$ref": "#/$defs/a~1b~0c%25", "$defs": {"a/b~c%": {"type": "boolean"}}});
    cases.check(escaped, &["true"], &["1"], &[]);
    let anchored =
        json!({"items": {"$ref": "#it"}, "type": "array", "definitions": {"x": {"$anchor": "it", "type": "null"}}});
    cases.check(anchored, &["[null]"], &["[1]"], &[]);
    let by_id = json!({"$id": "https://e.x/root.json", "$ref": "item.json",
        "$defs": {"i": {"$id": "item.json", "$ref": "#/$defs/inner", "$defs": {"inner": {"type": "integer"}}}}});
    cases.check(by_id, &["12"], &["true"], &[]);
    let remote = json!({"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:9/x.json"}}});
    assert_eq!(
        cases.error(remote),
        "/properties/a: $ref names \"http://127.0.0.1:9/x.json\", which is in another document; none is fetched"
    );
    assert_eq!(
        cases.error(json!({"$ref": "#/$defs/none"})),
        "the reference \"#/$defs/none\" names nothing in the schema"
    );
    assert!(cases.error(json!({"$ref": "#"})).contains("leads only to references"));
}

#[test]
fn keywords_that_cannot_be_enforced_are_reported() {
    let cases = Cases::new();
    for (keyword, value) in [
        ("propertyNames", json!({"pattern": "^a"})),
        ("not", json!({"required": ["b"]})),
        ("dependentRequired", json!({"a": ["b"]})),
        ("if", json!({"required": ["a"]})),
    ] {
        let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}, keyword: value});
        cases.check(schema, &[r#"{"a": 1}"#], &[r#"{"a": "x"}"#], &[keyword]);
    }
    cases.check(
        json!({"type": "array", "uniqueItems": true, "items": {"type": "integer"}}),
        &["[1, 1]"],
        &["[true]"],
        &["uniqueItems"],
    );
    cases.check(json!({"type": "array", "uniqueItems": false}), &["[]"], &["1"], &[]);
    cases.check(
        json!({"type": "string", "format": "iri"}),
        &[r#""x""#],
        &["1"],
        &["format"],
    );
    cases.check(json!({"type": "integer", "format": "int32"}), &["3"], &["\"3\""], &[]);
    cases.check(
        json!({"type": "string", "pattern": "(?=a)b"}),
        &[r#""x""#],
        &["1"],
        &["pattern"],
    );
    cases.check(
        json!({"type": "integer", "multipleOf": 1_000_003}),
        &["2"],
        &["true"],
        &["multipleOf"],
    );
    cases.check(
        json!({"type": "string", "maxLength": 50_000_000}),
        &[r#""x""#],
        &["1"],
        &["maxLength"],
    );
    cases.check(
        json!({"oneOf": [{"type": "integer"}, {"type": "number"}]}),
        &["1", "1.5"],
        &["true"],
        &["oneOf"],
    );
    cases.check(
        json!({"oneOf": [{"type": "integer"}, {"type": "string"}]}),
        &["1"],
        &["true"],
        &[],
    );
    let tagged = |name: &str| json!({"type": "object", "properties": {"kind": {"const": name}}, "required": ["kind"]});
    cases.check(
        json!({"oneOf": [tagged("a"), tagged("b")]}),
        &[r#"{"kind": "b"}"#],
        &[r#"{"kind": "c"}"#],
        &[],
    );
    cases.check(
        json!({"type": "integer", "default": 1, "x-note": 1, "x-guidance": {"lenient": true}}),
        &["1"],
        &["true"],
        &[],
    );
    cases.check(json!({"type": "float"}), &["1.5"], &[], &["type"]);
    let overlapping =
        json!({"type": "object", "patternProperties": {"^a": {"type": "integer"}, "b$": {"type": "string"}}});
    cases.check(
        overlapping,
        &[r#"{"ac": 1}"#, r#"{"x": 1}"#],
        &[r#"{"ac": true}"#],
        &["patternProperties"],
    );
}

#[test]
fn schemas_that_are_invalid_are_refused() {
    let cases = Cases::new();
    for (schema, why) in [
        (
            json!({"type": "strnig"}),
            "\"strnig\" is no type; types are null, boolean, integer, number, string, array, object",
        ),
        (
            json!({"type": ["string", 7]}),
            "7 is no type; types are null, boolean, integer, number, string, array, object",
        ),
        (
            json!({"type": "string", "pattern": "("}),
            "invalid regular expression: unclosed group",
        ),
        (json!({"type": "string", "pattern": 1}), "pattern must be a string"),
        (
            json!({"type": "string", "minLength": -1}),
            "minLength must be an integer from 0 on",
        ),
        (
            json!({"type": "array", "maxItems": 1.5}),
            "maxItems must be an integer from 0 on",
        ),
        (
            json!({"type": "object", "minProperties": "1"}),
            "minProperties must be an integer from 0 on",
        ),
        (json!({"type": "integer", "minimum": "1"}), "minimum must be a number"),
        (
            json!({"type": "integer", "multipleOf": 0}),
            "multipleOf must be a number above 0",
        ),
        (json!({"enum": "a"}), "enum must be a list"),
        (json!({"anyOf": {}}), "anyOf must be a list of schemas"),
        (json!({"properties": []}), "properties must be an object"),
        (json!({"required": "a"}), "required must be a list of names"),
        (json!({"$ref": 7}), "$ref must be a string"),
    ] {
        assert_eq!(cases.error(schema.clone()), why, "{schema}");
        let within = json!({"type": "array", "items": schema});
        assert_eq!(cases.error(within), format!("/items: {why}"), "{schema}");
    }
}

#[test]
fn null_is_an_absent_keyword() {
    let cases = Cases::new();
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer", "enum": null}, "b": null},
        "required": null, "additionalProperties": null, "$defs": null, "anyOf": null});
    cases.check(schema, &["{}", r#"{"a": 1, "b": []}"#], &[r#"{"c": 1}"#], &[]);
    cases.check(json!({"const": null}), &["null"], &["1"], &[]);
    cases.check(
        json!({"type": "STRING", "nullable": true}),
        &["null", "\"a\""],
        &["1"],
        &[],
    );
}

#[test]
fn objects_are_closed_unless_the_schema_opens_them() {
    let cases = Cases::new();
    let integer = json!({"a": {"type": "integer"}});
    cases.check(
        json!({"type": "object", "properties": integer}),
        &["{}", r#"{"a": 1}"#],
        &[r#"{"b": 1}"#],
        &[],
    );
    let open = json!({"type": "object", "properties": integer, "additionalProperties": true});
    cases.check(open, &[r#"{"a": 1, "b": []}"#], &[r#"{"a": "x"}"#], &[]);
    let typed = json!({"type": "object", "properties": integer, "additionalProperties": {"type": "string"}});
    cases.check(typed, &[r#"{"b": "x"}"#], &[r#"{"b": 1}"#], &[]);
    cases.check(json!({"type": "object"}), &[r#"{"any": 1}"#], &["[]"], &[]);
    cases.check(json!({}), &["1", r#"{"any": 1}"#, "[]"], &["x"], &[]);
    cases.check(
        json!({"type": "object", "properties": {}}),
        &["{}"],
        &[r#"{"a": 1}"#],
        &[],
    );
    cases.check(
        json!({"type": "object", "required": ["z"], "properties": integer}),
        &[r#"{"z": [1]}"#],
        &["{}"],
        &[],
    );
}

#[test]
fn combined_objects_are_closed_together() {
    let cases = Cases::new();
    let definitions = json!({"base": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}});
    let all = json!({"allOf": [{"$ref": "#/$defs/base"}, {"properties": {"b": {"type": "string"}}, "required": ["b"]}],
        "$defs": definitions});
    cases.check(
        all,
        &[r#"{"a": 1, "b": "x"}"#],
        &[r#"{"a": 1}"#, r#"{"a": 1, "b": "x", "c": 1}"#],
        &[],
    );
    let beside = json!({"$ref": "#/$defs/base", "properties": {"b": {"type": "string"}}, "$defs": definitions});
    cases.check(
        beside,
        &[r#"{"a": 1}"#, r#"{"a": 1, "b": "x"}"#],
        &[r#"{"a": 1, "c": 1}"#],
        &[],
    );
    let any = json!({"type": "object", "properties": {"c": {"type": "null"}}, "required": ["c"], "anyOf": [
        {"properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"properties": {"b": {"type": "string"}}}]});
    cases.check(
        any,
        &[r#"{"c": null, "a": 1}"#, r#"{"c": null, "b": "x"}"#, r#"{"c": null}"#],
        &[
            r#"{"a": 1}"#,
            r#"{"c": null, "a": 1, "b": "x"}"#,
            r#"{"c": null, "d": 1}"#,
        ],
        &[],
    );
    let either = json!({"type": "object", "properties": {"a": {}, "b": {}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]});
    cases.check(
        either,
        &[r#"{"a": 1}"#, r#"{"b": 1}"#, r#"{"a": 1, "b": 1}"#],
        &["{}", r#"{"a": 1, "c": 1}"#],
        &[],
    );
}

#[test]
fn contradictions_admit_no_value() {
    let cases = Cases::new();
    let contradictions = [
        json!(false),
        json!({"enum": []}),
        json!({"type": "string", "enum": [1]}),
        json!({"const": "a", "enum": ["b"]}),
        json!({"type": "string", "minLength": 3, "maxLength": 2}),
        json!({"type": "string", "minLength": 3, "pattern": "^a$"}),
        json!({"type": "integer", "minimum": 0.2, "maximum": 0.8}),
        json!({"type": "number", "minimum": 2, "maximum": 1}),
        json!({"type": "array", "minItems": 2, "maxItems": 1}),
        json!({"type": "object", "properties": {"a": false}, "required": ["a"]}),
        json!({"type": "object", "additionalProperties": false, "required": ["a"]}),
        json!({"allOf": [{"type": "string"}, {"type": "integer"}]}),
        json!({"anyOf": []}),
    ];
    for schema in contradictions {
        assert_eq!(cases.error(schema.clone()), "the schema admits no value", "{schema}");
    }
    assert_eq!(cases.error(json!(12)), "a JSON schema must be an object");
    assert_eq!(
        cases.error(json!({"items": [3]})),
        "a JSON schema must be an object at /items/0"
    );
}

#[test]
fn schemas_that_require_themselves_are_refused() {
    let cases = Cases::new();
    let node = json!({"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}}, "required": ["n"]});
    let list = json!({"type": "array", "items": {"$ref": "#/$defs/n"}, "minItems": 1});
    let either = json!({"anyOf": [list, node]});
    for endless in [&node, &list, &either] {
        let schema = json!({"$ref": "#/$defs/n", "$defs": {"n": endless}});
        assert_eq!(cases.error(schema), "the schema admits no value that ends", "{endless}");
    }
    let ends = json!({"anyOf": [node, {"type": "null"}]});
    let schema = json!({"$ref": "#/$defs/n", "$defs": {"n": ends}});
    cases.check(schema, &["null", r#"{"n": null}"#], &["1"], &[]);
    let empty = json!({"type": "array", "items": {"$ref": "#/$defs/n"}});
    cases.check(
        json!({"$ref": "#/$defs/n", "$defs": {"n": empty}}),
        &["[]", "[[]]"],
        &["1"],
        &[],
    );
}

#[test]
fn long_numbers_stay_as_they_are() {
    let cases = Cases::new();
    let long = "123456789012345678901234567890";
    cases.check(json!({"type": "integer"}), &[long], &["1.5"], &[]);
    cases.check(
        json!({"type": "number"}),
        &[long, "0.12345678901234567890123"],
        &["x"],
        &[],
    );
    let bounded = json!({"type": "integer", "minimum": 0, "maximum": u64::MAX});
    cases.check(bounded, &["18446744073709551615"], &["-1"], &["maximum"]);
    // 2^53 + 1, which no float is.
    let odd = 9_007_199_254_740_993_i64;
    let beyond = json!({"type": "integer", "minimum": odd, "maximum": odd});
    cases.check(beyond, &["9007199254740993"], &["true"], &["minimum", "maximum"]);
    let below = json!({"type": "integer", "exclusiveMinimum": -odd, "maximum": 0});
    cases.check(below, &["0"], &["1"], &["exclusiveMinimum"]);
    cases.check(
        json!({"enum": [1, 18_446_744_073_709_551_615u64]}),
        &["18446744073709551615"],
        &["\"1\""],
        &["enum"],
    );
    cases.check(json!({"enum": [0.1, 2, -3]}), &["0.1", "2", "-3"], &["0.2"], &[]);
}

#[test]
fn listed_values_and_tuples() {
    let cases = Cases::new();
    cases.check(
        json!({"type": "string", "enum": ["a", 1, "b"]}),
        &["\"a\"", "\"b\""],
        &["1"],
        &[],
    );
    cases.check(
        json!({"enum": ["a", null, {"x": [1]}]}),
        &["null", r#"{"x": [1]}"#],
        &[r#"{"x": [2]}"#],
        &[],
    );
    cases.check(
        json!({"items": [{"type": "integer"}, {"type": "string"}], "additionalItems": false, "minItems": 2}),
        &[r#"[1, "x"]"#],
        &["[1]", r#"[1, "x", 1]"#],
        &[],
    );
    cases.check(
        json!({"type": "number", "minimum": 1, "exclusiveMinimum": true}),
        &["1.5"],
        &["1"],
        &[],
    );
    let one = json!({"type": "object", "properties": {"a": {}, "b": {}}, "minProperties": 1, "maxProperties": 1});
    cases.check(one, &[r#"{"a": 1}"#], &["{}", r#"{"a": 1, "b": 1}"#], &[]);
    let two = json!({"type": "object", "properties": {"a": {}, "b": {}, "c": {}}, "minProperties": 2});
    cases.check(two, &[r#"{"a": 1, "b": 1}"#], &[r#"{"d": 1}"#], &["minProperties"]);
}

#[test]
fn recursive_schemas_beside_other_keywords_are_not_refused() {
    let cases = Cases::new();
    let node = json!({"type": "object", "properties": {"v": {"type": "integer"},
        "next": {"allOf": [{"$ref": "#/$defs/node"}], "description": "the next"}}});
    let schema = json!({"$ref": "#/$defs/node", "$defs": {"node": node}});
    cases.check(schema, &[r#"{"v": 1, "next": {"v": 2}}"#], &[r#"{"next": 1}"#], &[]);
    let within = json!({"type": "object", "properties": {"a": {"$ref": "#", "minProperties": 1}}});
    cases.check(
        within,
        &[r#"{"a": {"a": {}}}"#],
        &[r#"{"a": 1}"#],
        &["minProperties at /properties/a"],
    );
}
