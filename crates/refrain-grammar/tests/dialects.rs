//! Each dialect's grammar: whatever it admits, the dialect's reader reads back as calls with valid arguments.

mod support;

use refrain_engine::TokenConstraint;
use refrain_grammar::{AnswerForm, CallableFunction, Grammar, GrammarCompiler, GrammarConstraint, SpecialTokens};
use refrain_text::dialects::{AnswerPiece, AnswerReader, Dialect, Functions};
use serde_json::{Value, json};
use support::{BYTES, Random, ends_of_text, name, special_tokens, tokens};

/// Number of walks through each grammar.
const WALKS: usize = 3;
/// Limit of the tokens of one walk. Longer ones are given up.
const MAX_TOKENS: usize = 300;
/// Tokens after which a walk prefers what closes something.
const LONG_TOKENS: usize = 60;

fn parameters() -> Value {
    json!({
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "deep": {"type": "object", "properties": {"a": {"type": "array", "items": {"$ref": "#/properties/days"}}}},
            "on": {"type": "boolean"},
            "unit": {"$ref": "#/$defs/unit"},
            "any": {},
        },
        "required": ["city", "days", "unit"],
        "$defs": {"unit": {"enum": ["C", "F"]}},
    })
}

/// A random text that a grammar admits; `None` if the walk is too long.
fn walk(
    mut constraint: GrammarConstraint,
    ends: &[Vec<u32>],
    special: &[String],
    random: &mut Random,
) -> Option<String> {
    let end = BYTES + special.len() as u32;
    let mut text = vec![];
    let mut planned: Vec<u32> = vec![];
    for step in 0..MAX_TOKENS {
        let allowed = support::allowed(&mut constraint, end + 1).unwrap();
        let is_readable = |id: &&u32| **id >= BYTES || (32..127).contains(*id) || **id == 10;
        let readable: Vec<u32> = allowed.iter().filter(is_readable).copied().collect();
        let closes = |id: &&u32| **id >= BYTES || b"\"}])>,<".contains(&(**id as u8));
        let closing: Vec<u32> = readable.iter().filter(closes).copied().collect();
        let prefers_closing = step > LONG_TOKENS || random.below(3) == 0;
        let tokens = match (closing.is_empty(), readable.is_empty()) {
            (false, _) if prefers_closing => closing,
            (_, false) => readable,
            _ => allowed.clone(),
        };
        let mut token = *tokens.get(random.below(tokens.len())).expect("some token is allowed");
        // Free text rarely ends by itself.
        if planned.is_empty() && !ends.is_empty() && random.below(4) == 0 {
            planned = ends[random.below(ends.len())].iter().rev().copied().collect();
        }
        match planned.pop() {
            Some(next) if allowed.contains(&next) => token = next,
            _ => planned.clear(),
        }
        match token.checked_sub(BYTES) {
            Some(number) if token != end => text.extend(special[number as usize].as_bytes()),
            None => text.push(token as u8),
            Some(_) => return Some(String::from_utf8_lossy(&text).into_owned()),
        }
        if constraint.accept(token).unwrap() {
            return Some(String::from_utf8_lossy(&text).into_owned());
        }
    }
    None
}

/// The calls and the text of an answer, which a limit may have cut off.
fn read(
    dialect: Dialect,
    functions: &[CallableFunction<'_>],
    answer: &str,
    is_cut: bool,
) -> (Vec<(String, String)>, String) {
    let tools: Vec<Value> = functions
        .iter()
        .map(|function| json!({"name": function.name, "parameters": function.parameters}))
        .collect();
    let mut reader = AnswerReader::new(dialect, Functions::of_tools(&tools), "");
    let mut pieces = reader.push(answer);
    pieces.extend(if is_cut { reader.cut_off() } else { reader.finish() });
    let (mut calls, mut text): (Vec<(String, String)>, String) = (vec![], String::new());
    for piece in pieces {
        match piece {
            AnswerPiece::Call { name, .. } => calls.push((name, String::new())),
            AnswerPiece::Arguments(piece) => calls.last_mut().expect("a name comes first").1 += &piece,
            AnswerPiece::Text(piece) => text += &piece,
            _ => {}
        }
    }
    (calls, text)
}

/// Checks that an answer cut anywhere has no marks in its text, and no arguments that the whole does not have.
fn check_cuts(
    dialect: Dialect,
    functions: &[CallableFunction<'_>],
    answer: &str,
    (calls, text): (&[(String, String)], &str),
) {
    for (at, _) in answer.char_indices() {
        let cut = &answer[..at];
        let (some_calls, some_text) = read(dialect, functions, cut, true);
        let name = name(&dialect);
        assert!(
            text.trim_start().starts_with(some_text.trim()),
            "{name}: {cut:?} leaves {some_text:?}"
        );
        assert!(some_calls.len() <= calls.len(), "{name}: {cut:?} has {some_calls:?}");
        for (some, whole) in some_calls.iter().zip(calls) {
            let is_part = some.0 == whole.0 && whole.1.starts_with(&some.1);
            assert!(is_part, "{name}: {cut:?} has {some:?} of {whole:?}");
        }
    }
}

/// The form of a text that is an argument, with letters that JSON escapes.
const INPUT: &str = r#"
start: first note? line+ "END" LF?
first: "say \"" WORD "\"" LF
line: ("+" | "-") /[a-c\\\t]{0,4}/ LF
WORD: "A".."C" | "quote"i
%import common (LF, C_COMMENT)
note: C_COMMENT LF
"#;

fn text_schema() -> Value {
    json!({
        "type": "object",
        "properties": {"input": {"type": "string"}},
        "required": ["input"],
        "additionalProperties": false,
    })
}

/// Checks that a call is one of [`parameters`], of [`INPUT`], or of no schema.
fn check_call(name: &str, arguments: &Value, answer: &str) {
    assert!(arguments.is_object(), "{answer:?}");
    if name == "stop" {
        return;
    }
    if name == "write" {
        let form = r#"^say "([ABC]|(?i:quote))"\n(/\*[^*]*\*+([^/*][^*]*\*+)*/\n)?([+-][a-c\\\t]{0,4}\n)+END\n?$"#;
        let input = arguments["input"].as_str().unwrap_or_default();
        assert!(
            regex::Regex::new(form).unwrap().is_match(input),
            "{answer:?}: {input:?}"
        );
        return;
    }
    assert_eq!(name, "get_weather", "{answer:?}");
    let city = arguments.get("city");
    assert!(city.is_some_and(Value::is_string), "{answer:?}: {arguments}");
    assert!(arguments["days"].is_number(), "{answer:?}: {arguments}");
    let unit = &arguments["unit"];
    assert!(unit == "C" || unit == "F", "{answer:?}: {arguments}");
}

/// Checks walks through the grammars of a dialect, with its marks as special tokens or as plain text.
fn check_dialect(dialect: Dialect, special: &[String]) {
    let (schema, open) = (parameters(), json!({}));
    let (text, input) = (text_schema(), Grammar::Lark(INPUT.to_owned()));
    let function = |name, schema, input| CallableFunction {
        name,
        parameters: Some(schema),
        strict: true,
        input,
    };
    let functions = [
        function("get_weather", &schema, None),
        function("stop", &open, None),
        function("write", &text, Some(&input)),
    ];
    let form =
        Grammar::JsonSchema(json!({"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}));
    let name = name(&dialect);
    let tokenizer = support::tokenizer(special);
    let compiler = GrammarCompiler::new(&tokenizer).unwrap();
    let ends = ends_of_text(&dialect);
    let ends: Vec<Vec<u32>> = ends.iter().map(|end| tokens(end, special)).collect();
    let mut random = Random(1);
    let mut finished = 0;
    for (several, text) in [(true, None), (false, Some(&form))] {
        let answer = AnswerForm {
            dialect: &dialect,
            functions: &functions,
            several,
            text,
        };
        let grammar = answer.grammar(&SpecialTokens::of(&tokenizer)).unwrap();
        let constraint = compiler.constraint(&grammar, None);
        let constraint = constraint.unwrap_or_else(|why| panic!("{why}: {grammar:?}"));
        for _ in 0..WALKS {
            let Some(answer) = walk(constraint.fork(), &ends, special, &mut random) else {
                continue;
            };
            finished += 1;
            let (calls, rest) = read(dialect, &functions, &answer, false);
            check_cuts(dialect, &functions, &answer, (&calls, &rest));
            if calls.is_empty() {
                let value: Option<Value> = serde_json::from_str(rest.trim()).ok();
                let is_of_form = value.is_some_and(|value| value["ok"].is_boolean());
                assert!(text.is_some() && is_of_form, "{name}: {answer:?}");
                continue;
            }
            assert!(rest.trim().is_empty(), "{name}: {answer:?} leaves {rest:?}");
            assert!(several || calls.len() == 1, "{name}: {answer:?}");
            for (called, arguments) in calls {
                let arguments = serde_json::from_str(&arguments).unwrap_or_else(|why| panic!("{answer:?}: {why}"));
                check_call(&called, &arguments, &answer);
            }
        }
    }
    assert!(finished > 0, "{name}: no walk ended");
}

#[test]
fn what_a_grammar_admits_is_read_back() {
    std::thread::scope(|scope| {
        for dialect in Dialect::all() {
            scope.spawn(move || {
                check_dialect(dialect, &special_tokens(&dialect));
                check_dialect(dialect, &[]);
            });
        }
    });
}
