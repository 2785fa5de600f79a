//! `refrain run` with `--json-schema` and `--grammar`.

use std::fs;

use serde_json::{Value, json};

use crate::support::run;

fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {"colour": {"enum": ["red", "green"]}, "count": {"type": "integer", "minimum": 10, "maximum": 99}},
        "required": ["colour", "count"],
        "additionalProperties": false,
    })
}

fn check(text: &str) {
    let answer: Value = serde_json::from_str(text).expect(text);
    assert!(answer["colour"] == "red" || answer["colour"] == "green", "{text}");
    assert!(
        (10..=99).contains(&answer["count"].as_i64().expect("a number")),
        "{text}"
    );
}

#[test]
fn output_matches_a_schema_given_inline_or_in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("schema.json");
    fs::write(&file, schema().to_string()).unwrap();
    let (typed, file) = (schema().to_string(), file.to_str().unwrap().to_owned());
    let ask = |option: &str, value: &str, more: &[&str]| {
        run(&[&["run", "demo", "Say something.", option, value, "-q"], more].concat()).done()
    };
    check(&ask("--json-schema", &typed, &["--temp", "0"]));
    check(&ask("-j", &file, &["--temp", "1.5", "--seed", "4"]));
    check(&ask("--json-schema-file", &file, &["--raw"]));
    let output: Value = serde_json::from_str(&ask("-j", &typed, &["--json"])).unwrap();
    check(output["text"].as_str().unwrap());
    assert_eq!(output["finish"], "stop");
    // Any JSON, cut off by the token limit.
    assert!(!ask("-j", "{}", &["-n", "5"]).is_empty());
}

#[test]
fn output_matches_a_grammar() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("grammar.lark");
    fs::write(&file, "start: word (\", \" word)~2\nword: /[a-z]{2,4}/\n").unwrap();
    let text = run(&[
        "run",
        "demo",
        "Name three.",
        "--grammar",
        file.to_str().unwrap(),
        "-q",
        "--temp",
        "0",
    ])
    .done();
    let words: Vec<&str> = text.trim_end().split(", ").collect();
    assert_eq!(words.len(), 3, "{text}");
    assert!(words.iter().all(|word| (2..=4).contains(&word.len())), "{text}");
}

#[test]
fn rejects_invalid_formats_and_names_the_option() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (gbnf, wrong) = (write("a.gbnf", "root ::= \"a\""), write("a.lark", "start: missing"));
    for (option, value, code, words) in [
        ("--json-schema", "{\"type\":", 2, ["--json-schema", "invalid JSON"]),
        (
            "--json-schema",
            "{\"type\": \"string\", \"const\": 1}",
            2,
            ["--json-schema", "admits no value"],
        ),
        ("--json-schema", "[1]", 2, ["--json-schema", "object"]),
        ("--json-schema", "{\"type\": \"poem\"}", 2, ["--json-schema", "no type"]),
        ("--json-schema", "/nowhere.json", 1, ["cannot read", "/nowhere.json"]),
        ("--grammar", &gbnf, 2, ["--grammar", "GBNF"]),
        ("--grammar", &wrong, 2, ["--grammar", "missing"]),
        ("--grammar", "/nowhere.lark", 1, ["cannot read", "/nowhere.lark"]),
    ] {
        run(&["run", "demo", "Hi", option, value]).failed(code, &words);
    }
    let passed = run(&["run", "demo", "Hi", "-n", "4", "-j", "{\"type\": \"float\"}"]);
    assert!(passed.stderr.contains("not enforced: type"), "{passed:?}");
    passed.done();
    run(&["run", "demo", "Hi", "-j", "{}", "--grammar", &wrong]).failed(2, &["cannot be used with"]);
    run(&["run", "demo", "Hi", "-j", "{}", "--verify"]).failed(2, &["cannot be used with"]);
}
