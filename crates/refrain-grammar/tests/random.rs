//! Random schemas compile or are refused in plain words, and what they admit is JSON.

mod support;

use refrain_grammar::Grammar;
use serde_json::{Map, Value, json};
use support::Random;

/// Number of schemas.
const SCHEMAS: u64 = 250;
/// Limit of the tokens of one value.
const TOKENS: usize = 120;

/// Keywords with values, right and wrong.
fn keyword(random: &mut Random, depth: usize) -> (&'static str, Value) {
    let number = |random: &mut Random| {
        let all = [
            json!(0),
            json!(1),
            json!(3),
            json!(-2.5),
            json!(1e300),
            json!(i64::MIN),
            json!("x"),
            json!(null),
            json!(0.1),
        ];
        all[random.below(all.len())].clone()
    };
    let keys = ["a", "b", "c/d", "é"];
    let schemas = |random: &mut Random| -> Value { (0..random.below(4)).map(|_| schema(random, depth + 1)).collect() };
    let map = |random: &mut Random| -> Value {
        let all: Map<String, Value> = (0..random.below(4))
            .map(|at| (keys[at].to_owned(), schema(random, depth + 1)))
            .collect();
        Value::Object(all)
    };
    let types = [
        "null", "boolean", "integer", "number", "string", "array", "object", "any",
    ];
    let references = [
        "#",
        "#/$defs/a",
        "#/$defs/b",
        "#/properties/a",
        "#/items",
        "#x",
        "http://e.x/s",
    ];
    match random.below(24) {
        0..5 => ("type", json!(types[random.below(types.len())])),
        5 => ("type", json!([types[random.below(6)], types[random.below(6)]])),
        6 | 7 => ("properties", map(random)),
        8 => ("required", json!(keys[..random.below(4)])),
        9 => ("additionalProperties", schema(random, depth + 1)),
        10 => ("items", schema(random, depth + 1)),
        11 => ("prefixItems", schemas(random)),
        12 => ("anyOf", schemas(random)),
        13 => ("allOf", schemas(random)),
        14 => ("oneOf", schemas(random)),
        15 => ("$ref", json!(references[random.below(references.len())])),
        16 => (
            "enum",
            Value::from(&json!([1, "a", null, {"k": [true]}, 0.5]).as_array().unwrap()[..random.below(5)]),
        ),
        17 => (
            ["minimum", "maximum", "exclusiveMinimum", "multipleOf"][random.below(4)],
            number(random),
        ),
        18 => (
            ["minLength", "maxLength", "minItems", "maxItems"][random.below(4)],
            number(random),
        ),
        19 => (["minProperties", "maxProperties"][random.below(2)], number(random)),
        20 => ("pattern", json!(["^a+$", "[", "(?!a)b", "x{2,4}"][random.below(4)])),
        21 => ("format", json!(["date", "uuid", "none"][random.below(3)])),
        22 => ("patternProperties", json!({"^p": schema(random, depth + 1)})),
        _ => (
            ["not", "uniqueItems", "const", "nullable"][random.below(4)],
            number(random),
        ),
    }
}

fn schema(random: &mut Random, depth: usize) -> Value {
    if depth > 4 || random.below(12) == 0 {
        return [
            json!(true),
            json!(false),
            json!({}),
            json!(null),
            json!({"type": "integer"}),
        ][random.below(5)]
        .clone();
    }
    Value::Object(
        (0..random.below(5))
            .map(|_| keyword(random, depth))
            .map(|(key, value)| (key.to_owned(), value))
            .collect(),
    )
}

#[test]
fn random_schemas_compile_or_are_refused_in_plain_words() {
    let compiler = support::compiler();
    let (mut compiled, mut finished) = (0, 0);
    for seed in 0..SCHEMAS {
        let mut random = Random(seed);
        random.below(1);
        let mut made = schema(&mut random, 0);
        if let Value::Object(fields) = &mut made {
            fields.insert(
                "$defs".to_owned(),
                json!({"a": schema(&mut random, 2), "b": schema(&mut random, 2)}),
            );
        }
        let mut constraint = match compiler.constraint(&Grammar::JsonSchema(made.clone()), None) {
            Ok(constraint) => constraint,
            Err(why) => {
                let why = why.to_string();
                let is_plain = [
                    "admits no value",
                    "names nothing",
                    "leads only",
                    "too complex",
                    "back to itself",
                    "in another document",
                    "is no type",
                    "must be",
                    "invalid regular expression",
                ];
                assert!(is_plain.iter().any(|words| why.contains(words)), "{made}: {why}");
                continue;
            }
        };
        compiled += 1;
        let text = support::walk(&mut constraint, TOKENS, &mut random).unwrap_or_else(|why| panic!("{made}: {why}"));
        if text.len() < TOKENS / 2 {
            finished += 1;
            let parsed = serde_json::from_str::<Value>(&text);
            // Huge exponents are JSON, although no float has them.
            let is_json = parsed.map_or_else(|why| why.to_string().contains("out of range"), |_| true);
            assert!(is_json, "{made}: {text:?}");
        }
    }
    println!("{compiled} compiled, {finished} values ended");
    assert!(
        compiled > 50 && finished > 20,
        "{compiled} compiled, {finished} values ended"
    );
}
