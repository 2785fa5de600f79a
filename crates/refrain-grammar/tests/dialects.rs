//! Each dialect's grammar: whatever it admits, the dialect's reader reads back as calls with valid arguments.

mod support;

use refrain_engine::TokenConstraint;
use refrain_grammar::{AnswerForm, CallableFunction, Grammar, GrammarCompiler, GrammarConstraint, SpecialTokens};
use refrain_text::dialects::{AnswerPiece, AnswerReader, Dialect, Functions};
use serde_json::{Value, json};
use support::{BYTES, Random};

/// Walks through each grammar.
const WALKS: usize = 6;
/// Limit of the tokens of one walk. Longer ones are given up.
const MAX_TOKENS: usize = 600;
/// Tokens after which a walk prefers what closes something.
const PATIENCE_TOKENS: usize = 60;

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

/// The name of a dialect's notation.
fn name(dialect: &Dialect) -> &'static str {
    let format = dialect.messages.map(|format| format.name);
    dialect
        .calls
        .map(|notation| notation.name)
        .or(format)
        .expect("each has calls or messages")
}

/// The marks of a dialect that look like special tokens.
fn special_tokens(dialect: &Dialect) -> Vec<String> {
    let mut found = vec![];
    for mark in dialect.marks() {
        for piece in mark.split_inclusive('>') {
            let start = piece.find("<|").or(piece.find("<｜"));
            let token = start.map(|start| &piece[start..]);
            found.extend(
                token
                    .filter(|token| token.ends_with("|>") || token.ends_with("｜>"))
                    .map(str::to_owned),
            );
        }
        if mark.starts_with('[') && mark.ends_with(']') && !mark.contains("[>") {
            found.push(mark.to_owned());
        }
    }
    found.sort();
    found.dedup();
    found
}

/// A random text that a grammar admits; `None` if the walk is too long.
fn walk(mut constraint: GrammarConstraint, special: &[String], random: &mut Random) -> Option<String> {
    let end = BYTES + special.len() as u32;
    let mut text = vec![];
    for step in 0..MAX_TOKENS {
        let allowed = support::allowed(&mut constraint, end + 1).unwrap();
        let is_readable = |id: &&u32| **id >= BYTES || (32..127).contains(*id) || **id == 10;
        let readable: Vec<u32> = allowed.iter().filter(is_readable).copied().collect();
        let closes = |id: &&u32| **id >= BYTES || b"\"}])>,<".contains(&(**id as u8));
        let closing: Vec<u32> = readable.iter().filter(closes).copied().collect();
        let prefers_closing = step > PATIENCE_TOKENS || random.below(3) == 0;
        let tokens = match (closing.is_empty(), readable.is_empty()) {
            (false, _) if prefers_closing => closing,
            (_, false) => readable,
            _ => allowed,
        };
        let token = *tokens.get(random.below(tokens.len())).expect("some token is allowed");
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

/// The calls and the text of an answer.
fn read(dialect: Dialect, functions: &[CallableFunction<'_>], answer: &str) -> (Vec<(String, Value)>, String) {
    let tools: Vec<Value> = functions
        .iter()
        .map(|function| json!({"name": function.name, "parameters": function.parameters}))
        .collect();
    let mut reader = AnswerReader::new(dialect, Functions::of_tools(&tools), "");
    let mut pieces = reader.push(answer);
    pieces.extend(reader.finish());
    let (mut calls, mut text): (Vec<(String, String)>, String) = (vec![], String::new());
    for piece in pieces {
        match piece {
            AnswerPiece::Call { name, .. } => calls.push((name, String::new())),
            AnswerPiece::Arguments(piece) => calls.last_mut().expect("a name comes first").1 += &piece,
            AnswerPiece::Text(piece) => text += &piece,
            _ => {}
        }
    }
    let parsed = |(name, arguments): (String, String)| {
        let arguments = serde_json::from_str(&arguments);
        (name, arguments.unwrap_or_else(|why| panic!("{answer:?}: {why}")))
    };
    (calls.into_iter().map(parsed).collect(), text)
}

/// Checks that a call is one of [`parameters`], or of no schema.
fn check_call(name: &str, arguments: &Value, answer: &str) {
    assert!(arguments.is_object(), "{answer:?}");
    if name == "stop" {
        return;
    }
    assert_eq!(name, "get_weather", "{answer:?}");
    assert!(
        arguments["city"].is_string() && arguments["days"].is_number(),
        "{answer:?}: {arguments}"
    );
    assert!(
        arguments["unit"] == "C" || arguments["unit"] == "F",
        "{answer:?}: {arguments}"
    );
}

#[test]
fn what_a_grammar_admits_is_read_back() {
    let schema = parameters();
    let open = json!({});
    let functions = [
        CallableFunction {
            name: "get_weather",
            parameters: Some(&schema),
        },
        CallableFunction {
            name: "stop",
            parameters: Some(&open),
        },
    ];
    let form =
        Grammar::JsonSchema(json!({"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}));
    let mut random = Random(1);
    for dialect in Dialect::all() {
        let special = special_tokens(&dialect);
        for special in [&special[..], &[]] {
            let tokenizer = support::tokenizer(special);
            let compiler = GrammarCompiler::new(&tokenizer).unwrap();
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
                    let Some(answer) = walk(constraint.fork(), special, &mut random) else {
                        continue;
                    };
                    finished += 1;
                    let (calls, rest) = read(dialect, &functions, &answer);
                    if calls.is_empty() {
                        let value: Option<Value> = serde_json::from_str(rest.trim()).ok();
                        let is_of_form = value.is_some_and(|value| value["ok"].is_boolean());
                        assert!(text.is_some() && is_of_form, "{}: {answer:?}", name(&dialect));
                        continue;
                    }
                    assert!(rest.trim().is_empty(), "{}: {answer:?} leaves {rest:?}", name(&dialect));
                    assert!(several || calls.len() == 1, "{}: {answer:?}", name(&dialect));
                    calls
                        .iter()
                        .for_each(|(called, arguments)| check_call(called, arguments, &answer));
                }
            }
            assert!(finished > 0, "{}: no walk ended", name(&dialect));
        }
    }
}
