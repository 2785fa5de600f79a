//! Calls that a model begins by itself in free text: unrestricted text, and well-formed calls.

mod support;

use refrain_engine::TokenConstraint;
use refrain_grammar::{AnswerForm, CallableFunction, GrammarCompiler, GrammarConstraint, SpecialTokens};
use refrain_text::Tokenizer;
use refrain_text::dialects::{AnswerPiece, AnswerReader, Dialect, Functions, Marks};
use serde_json::{Value, json};
use support::{BYTES, Random, ends_of_text, special_tokens, tokens};

const THINK: Marks = Marks {
    open: "<think>",
    close: "</think>",
};

/// Tokens of one walk through a call, at most.
const MAX_TOKENS: usize = 400;

fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city", "days"],
        "additionalProperties": false,
    })
}

fn dialect(name: &str) -> Dialect {
    let mut all = Dialect::all().into_iter();
    let is_named = |dialect: &Dialect| support::name(dialect) == name;
    all.find(is_named).unwrap_or_else(|| panic!("no dialect {name}"))
}

/// A constraint on free text with calls of `get_weather`, and its tokens.
struct Calls {
    tokenizer: Tokenizer,
    special: Vec<String>,
    constraint: GrammarConstraint,
}

impl Calls {
    fn new(dialect: Dialect, special: Vec<String>, strict: bool, several: bool) -> Option<Calls> {
        let schema = schema();
        let functions = ["get_weather", "get_time"].map(|name| CallableFunction {
            name,
            parameters: Some(&schema),
            strict,
            input: None,
        });
        let form = AnswerForm {
            dialect: &dialect,
            functions: &functions,
            several,
            text: None,
        };
        let tokenizer = support::tokenizer(&special);
        let grammar = form.call_grammar(&SpecialTokens::of(&tokenizer)).unwrap()?;
        let compiler = GrammarCompiler::new(&tokenizer).unwrap();
        let constraint = compiler.constraint(&grammar, None);
        Some(Calls {
            constraint: constraint.unwrap_or_else(|why| panic!("{why}: {grammar:?}")),
            special,
            tokenizer,
        })
    }

    /// Takes a text, token by token; each must be allowed. Returns whether the answer ends behind it.
    fn take(&mut self, text: &str) -> bool {
        let mut has_ended = false;
        for token in tokens(text, &self.special) {
            assert!(!has_ended, "{text:?} goes on behind the answer's end");
            assert!(self.allows(token), "{text:?}: token {token} is not allowed");
            has_ended = self.constraint.accept(token).unwrap();
        }
        has_ended
    }

    fn allows(&mut self, token: u32) -> bool {
        let count = BYTES + self.special.len() as u32 + 1;
        support::allowed(&mut self.constraint, count).unwrap().contains(&token)
    }

    fn allows_text(&mut self, text: &str) -> bool {
        self.allows(tokens(text, &self.special)[0])
    }

    fn end(&self) -> u32 {
        self.tokenizer.eos_ids()[0]
    }
}

#[test]
fn text_is_free_until_a_call_begins_and_behind_its_end() {
    let mut calls = Calls::new(dialect("hermes"), vec![], true, true).unwrap();
    for _ in 0..3 {
        assert!(!calls.constraint.restricts());
        calls.take("Let me see. {\"a\": <tool\nI use the <tool_call> mark.\n");
        assert!(!calls.constraint.restricts(), "a mention is no call");
        calls.take("<tool_call>");
        assert!(calls.constraint.restricts());
        let end = calls.end();
        assert!(!calls.allows(end) && !calls.allows_text("x"));
        calls.take("\n{\"name\": \"get_");
        assert!(!calls.allows_text("x"), "only functions that are offered are called");
        calls.take("weather\", \"arguments\": {\"city\": \"<tool_call> </tool_call>\", \"days\": ");
        assert!(!calls.allows_text("\""), "the schema is enforced");
        calls.take("3");
        calls.take("}}\n");
        assert!(!calls.take("</tool_call>"));
        assert!(!calls.constraint.restricts() && calls.allows(end));
    }
}

#[test]
fn marks_that_are_special_tokens_begin_calls_anywhere() {
    let mut calls = Calls::new(dialect("hermes"), vec!["<tool_call>".to_owned()], true, true).unwrap();
    calls.take("I use the <tool_call>");
    assert!(calls.constraint.restricts());
    let mut calls = Calls::new(dialect("mistral"), vec!["[TOOL_CALLS]".to_owned()], true, true).unwrap();
    for _ in 0..2 {
        calls.take("Yes [TOOL_CALLS]get_weather");
        assert!(!calls.allows_text("x"));
        calls.take("[ARGS]{\"city\": \"Rome\", \"days\": 1}");
        assert!(!calls.constraint.restricts());
    }
}

#[test]
fn one_call_ends_the_answer_where_no_more_are_allowed() {
    let mut calls = Calls::new(dialect("hermes"), vec![], true, false).unwrap();
    let call = "<tool_call>{\"name\": \"get_time\", \"arguments\": {\"city\": \"\", \"days\": 1}}</tool_call>";
    assert!(calls.take(call));
}

#[test]
fn arguments_of_functions_that_are_not_strict_are_any_object() {
    let mut calls = Calls::new(dialect("hermes"), vec![], false, true).unwrap();
    calls.take("<tool_call>{\"name\": \"get_time\", \"arguments\": {\"other\": [1, {\"x\": null}], \"days\": \"3\"");
    assert!(!calls.allows_text(")"));
    calls.take("}}</tool_call>");
    let mut calls = Calls::new(dialect("qwen-xml"), vec![], false, true).unwrap();
    calls.take(
        "<tool_call>\n<function=get_time>\n<parameter=other>\n</tool_call>\n</parameter>\n</function>\n</tool_call>",
    );
    assert!(!calls.constraint.restricts());
}

#[test]
fn no_call_begins_within_reasoning() {
    let hermes = dialect("hermes");
    let reasoning = Dialect {
        reasoning: Some(THINK),
        ..hermes
    };
    let mut calls = Calls::new(reasoning, vec![], true, true).unwrap();
    calls.take("<think>\n<tool_call>{?</think>\n");
    assert!(!calls.constraint.restricts());
    calls.take("<tool_call>{");
    assert!(calls.constraint.restricts());
    let mut without = Calls::new(hermes, vec![], true, true).unwrap();
    without.take("<think>\n<tool_call>");
    assert!(without.constraint.restricts());
}

#[test]
fn messages_with_calls_begin_by_their_header() {
    let harmony = dialect("harmony");
    let special = special_tokens(&harmony);
    let mut calls = Calls::new(harmony, special, true, true).unwrap();
    calls.take("<|channel|>analysis<|message|>Commentary to=functions.x<|end|><|start|>assistant");
    calls.take("<|channel|>commentary<|message|>I look.<|end|><|start|>assistant");
    assert!(!calls.constraint.restricts());
    calls.take("<|channel|>commentary to=functions.get_w");
    assert!(!calls.allows_text("x"));
    calls.take("eather <|constrain|>json<|message|>{\"city\": \"Rome\", \"days\": 1}");
    assert!(!calls.constraint.restricts());
    let llama = dialect("llama-3");
    let mut calls = Calls::new(llama, vec![], true, true).unwrap();
    calls.take("{\"name\": \"get_time\"");
    assert!(calls.constraint.restricts());
    let mut calls = Calls::new(llama, vec![], true, true).unwrap();
    calls.take("Or {\"name\": \"get_time\"} or {\"name\": \"Rome\"");
    assert!(!calls.constraint.restricts());
}

/// Walks through what a constraint allows behind `begin`, up to the call's end. Returns the whole text.
fn walk(calls: &mut Calls, begin: &str, ends: &[Vec<u32>], random: &mut Random) -> Option<String> {
    let end = calls.end();
    let mut planned: Vec<u32> = vec![];
    let mut text = begin.as_bytes().to_vec();
    for step in 0..MAX_TOKENS {
        if !calls.constraint.restricts() {
            return Some(String::from_utf8_lossy(&text).into_owned());
        }
        let allowed = support::allowed(&mut calls.constraint, end + 1).unwrap();
        assert!(
            !allowed.contains(&end),
            "a call is not complete: {}",
            String::from_utf8_lossy(&text)
        );
        let is_readable = |id: &&u32| **id >= BYTES || (32..127).contains(*id);
        let closes = |id: &&u32| **id >= BYTES || b"\"}])>,</".contains(&(**id as u8));
        let readable: Vec<u32> = allowed.iter().filter(is_readable).copied().collect();
        let closing: Vec<u32> = readable.iter().filter(closes).copied().collect();
        let from = match (closing.is_empty(), readable.is_empty()) {
            (false, _) if step > 30 || random.below(2) == 0 => closing,
            (_, false) => readable,
            _ => allowed.clone(),
        };
        let mut token = from[random.below(from.len())];
        // Free text rarely ends by itself.
        if planned.is_empty() && !ends.is_empty() && random.below(4) == 0 {
            planned = ends[random.below(ends.len())].iter().rev().copied().collect();
        }
        match planned.pop() {
            Some(next) if allowed.contains(&next) => token = next,
            _ => planned.clear(),
        }
        match token.checked_sub(BYTES) {
            None => text.push(token as u8),
            Some(number) => text.extend(calls.special[number as usize].as_bytes()),
        }
        if calls.constraint.accept(token).unwrap() {
            return Some(String::from_utf8_lossy(&text).into_owned());
        }
    }
    None
}

/// What begins a call in a dialect, behind text.
fn beginning(dialect: &Dialect) -> String {
    let mark = dialect.call_mark();
    match dialect.messages {
        Some(format) if format.headers.call.open.is_empty() => "get_time\n".to_owned(),
        Some(format) if format.headers.text.starts_with(format.headers.call.open) => {
            format!("{}get_time{}", format.headers.call.open, format.headers.call.close)
        }
        Some(format) => format.headers.call.open.to_owned(),
        None if !mark.is_empty() => format!("Let me see.\n{mark}"),
        None if support::name(dialect) == "llama-4" => "[get_time(".to_owned(),
        None => "{\"name\": \"get_time\"".to_owned(),
    }
}

/// Checks that calls which begin in a dialect are read back.
fn check_dialect(dialect: Dialect, special: Vec<String>) {
    let name = support::name(&dialect);
    let mut random = Random(7);
    let tools = ["get_weather", "get_time"].map(|name| json!({"name": name, "parameters": schema()}));
    let ends: Vec<Vec<u32>> = ends_of_text(&dialect).iter().map(|end| tokens(end, &special)).collect();
    let mut finished = 0;
    for strict in [true, false, true, false] {
        let Some(mut calls) = Calls::new(dialect, special.clone(), strict, true) else {
            panic!("{name} has no grammar of calls");
        };
        let begin = beginning(&dialect);
        calls.take(&begin);
        assert!(calls.constraint.restricts(), "{name}: {begin:?} begins no call");
        let Some(text) = walk(&mut calls, &begin, &ends, &mut random) else {
            continue;
        };
        finished += 1;
        let mut reader = AnswerReader::new(dialect, Functions::of_tools(&tools), "");
        let mut pieces = reader.push(&text);
        pieces.extend(reader.finish());
        let names: Vec<&str> = pieces
            .iter()
            .filter_map(|piece| match piece {
                AnswerPiece::Call { name, .. } => Some(name.as_str()),
                _ => None,
            })
            .collect();
        assert!(!names.is_empty(), "{name}: {text:?} has no call");
        assert!(
            names.iter().all(|name| ["get_weather", "get_time"].contains(name)),
            "{name}: {text:?}"
        );
        let rest: String = pieces
            .iter()
            .filter_map(|piece| match piece {
                AnswerPiece::Text(text) => Some(text.as_str()),
                _ => None,
            })
            .collect();
        assert!(
            rest.is_empty() || rest.trim() == "Let me see.",
            "{name}: {text:?} leaves {rest:?}"
        );
    }
    assert!(finished > 0, "{name}: no walk ended");
}

#[test]
fn calls_of_every_dialect_are_read_back() {
    std::thread::scope(|scope| {
        for dialect in Dialect::all() {
            scope.spawn(move || {
                check_dialect(dialect, special_tokens(&dialect));
                check_dialect(dialect, vec![]);
            });
        }
    });
}
