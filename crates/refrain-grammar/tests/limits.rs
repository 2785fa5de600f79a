//! No grammar ends the process, and none takes more time than its limit: it compiles, or is refused in plain words.

mod support;

use std::time::{Duration, Instant};

use refrain_grammar::{AnswerForm, CallableFunction, Cancellation, Grammar, GrammarCompiler, SpecialTokens};
use refrain_text::dialects::Dialect;
use serde_json::{Map, Value, json};

/// Stack of a thread that takes tokens, in bytes: half of what the engine's has.
const SMALL_STACK: usize = 1 << 20;
/// Limit of a compilation and 50 masks, in a build that is not optimised, on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

fn properties(count: usize, required: usize, schema: &Value) -> Value {
    let names: Vec<String> = (0..count).map(|number| format!("p{number}")).collect();
    let all: Map<String, Value> = names.iter().map(|name| (name.clone(), schema.clone())).collect();
    json!({"type": "object", "properties": all, "required": names[..required]})
}

fn nested(count: usize) -> Value {
    (0..count).fold(
        json!({"type": "string"}),
        |inner, _| json!({"type": "object", "properties": {"a": inner}, "required": ["a"]}),
    )
}

fn chain(rules: usize) -> String {
    let next = |number: usize| format!("r{number}: \"a\" r{} | \"b\" r{}", number + 1, number + 1);
    let all: Vec<String> = (0..rules).map(next).collect();
    format!("start: r0\n{}\nr{rules}: \"z\"", all.join("\n"))
}

fn reference_chain(count: usize) -> Value {
    let definition = |number: usize| {
        let schema = json!({"type": "object", "properties": {"a": {"$ref": format!("#/$defs/d{}", number + 1)}}});
        (format!("d{number}"), schema)
    };
    let mut all: Map<String, Value> = (0..count).map(definition).collect();
    all.insert(format!("d{count}"), json!({"type": "string"}));
    json!({"$ref": "#/$defs/d0", "$defs": all})
}

/// Compiles a grammar and takes 50 tokens on a thread with little stack. Returns the first error.
fn survives(compiler: &GrammarCompiler, grammar: &Grammar) -> Result<(), String> {
    let mut constraint = compiler.constraint(grammar, None).map_err(|why| why.to_string())?;
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(SMALL_STACK);
        let walk = move || support::walk(&mut constraint, 50, &mut support::Random(7)).map(drop);
        thread.spawn_scoped(scope, walk).unwrap().join().unwrap()
    })
}

fn large_schemas_and_rules() -> Vec<(&'static str, Grammar)> {
    let text = json!({"type": "string"});
    let closed = |n: usize, r: usize| Grammar::JsonSchema(properties(n, r, &text));
    let schema = Grammar::JsonSchema;
    vec![
        ("2,600 optional properties", closed(2_600, 0)),
        ("3,000 required properties", closed(3_000, 3_000)),
        ("2,150 properties", closed(2_150, 10)),
        ("references of 5,000", schema(reference_chain(5_000))),
        ("references of 20,000", schema(reference_chain(20_000))),
        ("300 schemas in each other", schema(nested(300))),
        ("2,000 required properties", closed(2_000, 2_000)),
        ("1,000 optional properties", closed(1_000, 0)),
        ("references of 4,000", schema(reference_chain(4_000))),
        ("60 schemas in each other", schema(nested(60))),
        ("300 chained rules", Grammar::Lark(chain(300))),
        ("500 chained rules", Grammar::Lark(chain(500))),
        ("20,000 chained rules", Grammar::Lark(chain(20_000))),
        (
            "3,000 required properties in Lark",
            Grammar::Lark(format!("start: %json {}", properties(3_000, 3_000, &text))),
        ),
        (
            "left recursion",
            Grammar::Lark("start: a\na: a \"x\" | a a | \"y\"".to_owned()),
        ),
        (
            "ambiguity",
            Grammar::Lark("start: s\ns: s s s | s s | \"a\" | ".to_owned()),
        ),
        ("a rule that is missing", Grammar::Lark("start: foo".to_owned())),
        (
            "a rule a million times",
            Grammar::Lark("start: \"a\"{1000000}".to_owned()),
        ),
    ]
}

fn long_patterns_and_lists() -> Vec<(&'static str, Grammar)> {
    let schema = Grammar::JsonSchema;
    let regex = |pattern: String| Grammar::Regex(pattern);
    vec![
        ("a? 5,000 times", regex("a?".repeat(5_000))),
        ("unicode classes", regex("\\p{L}?".repeat(2_500))),
        ("groups", regex(format!("{}a{}", "(".repeat(5_000), ")?".repeat(5_000)))),
        ("a thousand thousands", regex("(a{1000}){1000}".to_owned())),
        ("exponential automaton", regex("(a|b)*a(a|b){25}".to_owned())),
        (
            "120,000 words",
            regex((0..120_000).map(|n| format!("w{n}")).collect::<Vec<_>>().join("|")),
        ),
        (
            "100,000 choices",
            Grammar::Choice((0..100_000).map(|n| format!("word {n}")).collect()),
        ),
        (
            "100,000 values",
            schema(json!({"enum": (0..100_000).map(|n| format!("v{n}")).collect::<Vec<_>>()})),
        ),
    ]
}

fn hard_schemas() -> Vec<(&'static str, Grammar)> {
    let schema = Grammar::JsonSchema;
    let alternatives = |key: usize| -> Vec<Value> {
        (0..4)
            .map(|k| json!({"type": "object", "properties": {format!("a{key}{k}"): {"type": "string"}}}))
            .collect()
    };
    let all: Vec<Value> = (0..10).map(|key| json!({"anyOf": alternatives(key)})).collect();
    let tree = |name: &str| json!({"type": "object", "properties": {"c": {"$ref": format!("#/$defs/{name}")}}});
    vec![
        ("combinations", schema(json!({"allOf": all}))),
        ("a reference to itself", schema(json!({"$ref": "#"}))),
        (
            "references in a circle",
            schema(
                json!({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
            "$ref": "#/$defs/a"}),
            ),
        ),
        (
            "two trees at once",
            schema(json!({"allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}],
            "$defs": {"a": tree("a"), "b": tree("b")}})),
        ),
        (
            "a divisor of four billion",
            schema(json!({"type": "integer", "multipleOf": 4_000_000_007u64})),
        ),
        (
            "many divisors",
            schema(properties(100, 0, &json!({"type": "integer", "multipleOf": 997}))),
        ),
        (
            "a billion items",
            schema(json!({"type": "array", "items": {"type": "integer"}, "minItems": 1_000_000_000})),
        ),
        ("the least integer", schema(json!({"const": i64::MIN}))),
        (
            "a range of all integers",
            schema(json!({"type": "integer", "minimum": i64::MIN, "maximum": u64::MAX})),
        ),
        (
            "a range of all floats",
            schema(json!({"type": "number", "minimum": -1e308, "maximum": 1e308})),
        ),
        (
            "an automaton of a pattern",
            schema(json!({"type": "string", "pattern": "^(a|b)*a(a|b){28}$"})),
        ),
    ]
}

fn bombs() -> Vec<(&'static str, Grammar)> {
    [large_schemas_and_rules(), long_patterns_and_lists(), hard_schemas()].concat()
}

#[test]
fn no_grammar_ends_the_process_or_takes_long() {
    let compiler = support::compiler();
    for (name, grammar) in bombs() {
        let start = Instant::now();
        let outcome = survives(&compiler, &grammar);
        let took = start.elapsed();
        println!("{name}: {took:.2?} {outcome:?}");
        assert!(took < LIMIT, "{name} took {took:?}");
        let why = outcome.err().unwrap_or_default();
        for raw in ["limits.", "panic", "backtrace", "fuel", "<non-verbose", "Earley"] {
            assert!(!why.contains(raw), "{name}: {why}");
        }
    }
}

#[test]
fn many_optional_properties_work_or_are_refused_at_once() {
    let compiler = support::compiler();
    let schema = |count: usize| Grammar::JsonSchema(properties(count, 0, &json!({"type": "integer"})));
    assert!(support::admits(&compiler, &schema(600), r#"{"p3": 1, "p599": 2}"#));
    let refused = compiler.constraint(&schema(1_001), None).err().unwrap().to_string();
    assert_eq!(refused, "an object has more than 1000 optional properties");
    let refused = compiler
        .constraint(&Grammar::Regex("a?".repeat(5_000)), None)
        .err()
        .unwrap()
        .to_string();
    assert_eq!(refused, "the regular expression has more than 500 optional parts");
}

#[test]
fn annotations_do_not_count() {
    let described = json!({"type": "string", "description": "x".repeat(10_000), "examples": ["y".repeat(1_000)]});
    let grammar = Grammar::JsonSchema(properties(50, 0, &described));
    assert!(grammar.lark().unwrap().len() < 5_000);
}

#[test]
fn a_cancelled_compilation_returns_at_once() {
    let compiler = support::compiler();
    let cancellation = Cancellation::default();
    drop(cancellation.cancel_on_drop());
    let cancelled = compiler
        .cancellable_constraint(&Grammar::JsonObject, None, &cancellation)
        .err()
        .unwrap();
    assert!(cancelled.is_cancelled() && !cancelled.is_busy(), "{cancelled}");
}

#[test]
fn compilations_wait_for_each_other() {
    let compiler = support::compiler();
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| assert!(compiler.constraint(&Grammar::JsonObject, None).is_ok()));
        }
    });
}

#[test]
fn errors_name_the_function() {
    let schema = json!({"type": "object", "properties": {"a": {"$ref": "#/missing"}}});
    let functions = [CallableFunction {
        name: "search",
        parameters: Some(&schema),
        strict: false,
        input: None,
    }];
    for dialect in Dialect::all() {
        let form = AnswerForm {
            dialect: &dialect,
            functions: &functions,
            several: false,
            text: None,
        };
        let refused = form
            .grammar(&SpecialTokens::default())
            .map(drop)
            .map_err(|why| why.to_string());
        // Some dialects write any value as text.
        if let Err(why) = refused {
            assert_eq!(
                why,
                r##"the parameters of "search": the reference "#/missing" names nothing in the schema"##
            );
        }
    }
}
