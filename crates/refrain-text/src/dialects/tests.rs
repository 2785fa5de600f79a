//! Reading answers: what streams, what stays text, and notations that no published template writes.

mod cuts;
mod details;

use serde_json::{Value, json};

use super::message_formats::MESSAGE_FORMATS;
use super::notations::{BY_TEXT, HERMES, NOTATIONS, REASONING};
use super::{AnswerPiece, AnswerReader, Dialect, Functions, Notation};

const THINK: Dialect = Dialect {
    reasoning: Some(REASONING[0]),
    calls: Some(&HERMES),
    text_lead: "",
    messages: None,
};

fn notation(name: &str) -> &'static Notation {
    let mut all = NOTATIONS
        .into_iter()
        .chain(BY_TEXT.iter().map(|(_, notation)| *notation));
    all.find(|notation| notation.name == name)
        .expect("a notation of that name")
}

fn of_notation(name: &str) -> Dialect {
    Dialect {
        reasoning: None,
        calls: Some(notation(name)),
        text_lead: "",
        messages: None,
    }
}

fn of_messages(name: &str) -> Dialect {
    let format = MESSAGE_FORMATS.into_iter().find(|format| format.name == name);
    Dialect {
        reasoning: None,
        calls: None,
        text_lead: "",
        messages: Some(format.expect("a format of that name")),
    }
}

fn functions() -> Functions {
    let schema = json!({"properties": {"x": {"type": "integer"}, "s": {"type": "string"}}});
    Functions::new(["f", "g"].map(|name| (name.to_owned(), schema.clone())))
}

/// Reasoning, text, and calls as `NAME ARGUMENTS`.
type Read = (String, String, Vec<String>);

fn read_pieces(dialect: Dialect, prompt: &str, pieces: &[&str]) -> Read {
    let mut reader = AnswerReader::new(dialect, functions(), prompt);
    let mut found: Vec<AnswerPiece> = pieces.iter().flat_map(|piece| reader.push(piece)).collect();
    found.extend(reader.finish());
    joined(found)
}

fn joined(found: Vec<AnswerPiece>) -> Read {
    let (mut reasoning, mut text, mut calls) = (String::new(), String::new(), vec![]);
    for piece in found {
        match piece {
            AnswerPiece::Reasoning(more) => reasoning.push_str(&more),
            AnswerPiece::Text(more) => text.push_str(&more),
            AnswerPiece::Call { name, .. } => calls.push(format!("{name} ")),
            AnswerPiece::Arguments(more) => calls.last_mut().expect("a call").push_str(&more),
        }
    }
    (reasoning, text, calls)
}

/// Reads a text, which must be read alike however it is cut.
fn read(dialect: Dialect, prompt: &str, text: &str) -> Read {
    let whole = read_pieces(dialect, prompt, &[text]);
    for (at, _) in text.char_indices() {
        let (left, right) = text.split_at(at);
        assert_eq!(
            read_pieces(dialect, prompt, &[left, right]),
            whole,
            "{left:?} and {right:?}"
        );
    }
    whole
}

fn is(reasoning: &str, text: &str, calls: &[&str]) -> Read {
    let calls = calls.iter().map(|&call| compact_call(call)).collect();
    (reasoning.to_owned(), text.to_owned(), calls)
}

/// `NAME ARGUMENTS` with compact arguments.
fn compact_call(call: &str) -> String {
    let (name, arguments) = call.split_once(' ').expect("arguments");
    format!("{name} {}", super::json::compact(arguments))
}

#[test]
fn reasoning_text_and_calls_are_separated() {
    let text = "<think>\nTwo.\n\nOr < three?\n</think>\n\nLet me see.\n<tool_call>\n{\"name\": \"f\", \"arguments\": \
                {\"x\": 1}}\n</tool_call>\n<tool_call>{\"name\": \"g\", \"arguments\": {}}</tool_call>";
    let expected = is("Two.\n\nOr < three?", "Let me see.", &["f {\"x\": 1}", "g {}"]);
    assert_eq!(read(THINK, "A:", text), expected);
    assert_eq!(read(THINK, "A:<think>\n", "Hm.\n</think>\n\n4"), is("Hm.", "4", &[]));
    assert_eq!(read(THINK, "A:", "<think>\n\n</think>\n\n4\n"), is("", "4\n", &[]));
    assert_eq!(
        read(THINK, "A:", "<think>a</think>\n<think>b</think>\n\nc"),
        is("a\n\nb", "c", &[])
    );
    assert_eq!(read(THINK, "A:", "<think>so <b </thin"), is("so <b </thin", "", &[]));
}

#[test]
fn text_without_marks_stays_as_it_is() {
    for text in [
        "",
        " Hello\n",
        "Write <think> before </think>.",
        "<thin",
        "  \n",
        "a < b <tool",
        "{\"name\": 1}",
    ] {
        assert_eq!(read(THINK, "A:", text), is("", text, &[]), "{text:?}");
    }
}

#[test]
fn marks_in_prose_are_text_and_do_not_hold_the_stream_back() {
    let text = "Models write <tool_call> before calls and </tool_call> behind. <tool_call>nonsense</tool_call> x";
    assert_eq!(read(THINK, "A:", text), is("", text, &[]));
    let mut reader = AnswerReader::new(THINK, functions(), "A:");
    let found = reader.push("Models write <tool_call> before calls");
    let text = |piece: &AnswerPiece| match piece {
        AnswerPiece::Text(text) => text.clone(),
        other => panic!("{other:?} is no text"),
    };
    assert_eq!(
        found.iter().map(text).collect::<String>(),
        "Models write <tool_call> before calls"
    );
    let call = "<tool_call>{\"name\": \"f\", \"arguments\": {\"s\": \"</tool_call> \\\" {\"}}</tool_call>";
    let both = format!("The mark <tool_call> begins one: {call}");
    let expected = is(
        "",
        "The mark <tool_call> begins one:",
        &["f {\"s\": \"</tool_call> \\\" {\"}"],
    );
    assert_eq!(read(THINK, "A:", &both), expected);
}

#[test]
fn names_and_arguments_are_handed_out_as_they_are_written() {
    let mut reader = AnswerReader::new(THINK, functions(), "A:");
    assert_eq!(reader.push("<tool_call>\n{\"name\": \"f\", \"argu"), []);
    let name = "f".to_owned();
    let arguments = |text: &str| AnswerPiece::Arguments(text.to_owned());
    let begun = reader.push("ments\": {\"s\": \"a");
    assert_eq!(begun, [AnswerPiece::Call { name, id: None }, arguments("{\"s\":\"a")]);
    assert_eq!(reader.push("b\"}"), [arguments("b\"}")]);
    assert_eq!(reader.push("}\n</tool_call>"), []);
    let mut reader = AnswerReader::new(of_notation("qwen-xml"), functions(), "A:");
    let begun = reader.push("<tool_call>\n<function=f>\n<parameter=x>\n1\n</parameter>\n<parameter=s>\n2");
    assert_eq!(begun[1..], [arguments("{\"x\":1")]);
    assert_eq!(reader.push("\n</parameter>\n</function>"), [arguments(",\"s\":\"2\"}")]);
}

#[test]
fn calls_that_end_early_keep_what_was_written() {
    assert_eq!(read(THINK, "A:", "<tool_call>{\"name\": \"f\"}"), is("", "", &["f {}"]));
    let begun = "<tool_call>{\"name\": \"f\"";
    assert_eq!(read(THINK, "A:", begun), is("", begun, &[]));
    let cut = "<tool_call>{\"name\": \"f\", \"arguments\": {\"s\": \"a";
    assert_eq!(read(THINK, "A:", cut), is("", "", &["f {\"s\": \"a"]));
    assert_eq!(
        read(THINK, "A:", "<tool_call>{\"name\":"),
        is("", "<tool_call>{\"name\":", &[])
    );
}

#[test]
fn calls_in_reasoning_that_never_ends_are_found() {
    let call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";
    let (_, text, calls) = read(THINK, "A:<think>\n", &format!("I call it.\n{call}"));
    assert_eq!((text.as_str(), calls), ("", vec!["f {}".to_owned()]));
    let (_, text, calls) = read(THINK, "A:<think>\n", &format!("I could {call}.\n</think>\n\nNo."));
    assert_eq!((text.as_str(), calls), ("No.", vec![]));
}

#[test]
fn arguments_come_under_other_keys_in_any_order_and_as_strings() {
    let cases = [
        (r#"{"name": "f", "parameters": {"x": 1}}"#, "f {\"x\": 1}"),
        (r#"{"arguments": {"x": 1}, "name": "f"}"#, "f {\"x\": 1}"),
        (r#"{"name": "f", "arguments": "{\"x\": 1}"}"#, "f {\"x\": 1}"),
        (r#"{"name": "f", "arguments": null}"#, "f {}"),
        (
            r#"{"id": "a", "name": "f", "arguments": {"x": 12345678901234567890123}, "type": "function"}"#,
            "f {\"x\": 12345678901234567890123}",
        ),
    ];
    for (written, call) in cases {
        let text = format!("<tool_call>{written}</tool_call>");
        assert_eq!(read(THINK, "A:", &text), is("", "", &[call]), "{text}");
    }
}

#[test]
fn values_are_typed_by_the_schema() {
    let text = "<tool_call>\n<function=f>\n<parameter=x>\n12\n</parameter>\n<parameter=s>\n12\n</parameter>\n\
                <parameter=u>\n[1, null]\n</parameter>\n</function>\n</tool_call>";
    let expected = is("", "", &["f {\"x\": 12, \"s\": \"12\", \"u\": [1, null]}"]);
    assert_eq!(read(of_notation("qwen-xml"), "A:", text), expected);
    let inner =
        "<tool_call>\n<function=f>\n<parameter=s>\na </parameter> b\nc\n</parameter>\n</function>\n</tool_call>";
    assert_eq!(
        read(of_notation("qwen-xml"), "A:", inner),
        is("", "", &["f {\"s\": \"a </parameter> b\\nc\"}"])
    );
}

#[test]
fn notations_that_no_published_template_writes_are_read() {
    let cases = [
        (
            "llama-4",
            "[f(x=1, s='a, \"b\")]'), g()]",
            &["f {\"x\": 1, \"s\": \"a, \\\"b\\\")]\"}", "g {}"][..],
        ),
        ("llama-4", "<|python_start|>[f(x=1)]<|python_end|>", &["f {\"x\": 1}"]),
        (
            "llama-3",
            r#"{"name": "f", "parameters": {"x": 1}}; {"name": "g", "parameters": {}}"#,
            &["f {\"x\": 1}", "g {}"],
        ),
        (
            "llama-3",
            "<|python_tag|>{\"name\": \"f\", \"parameters\": {}}",
            &["f {}"],
        ),
        (
            "phi-4-mini",
            r#"<|tool_call|>[{"name": "f", "arguments": {"x": 1}}]<|/tool_call|>"#,
            &["f {\"x\": 1}"],
        ),
        (
            "granite-3",
            r#"<|tool_call|>[{"name": "f", "arguments": {"x": 1}}, {"name": "g", "arguments": {}}]"#,
            &["f {\"x\": 1}", "g {}"],
        ),
        (
            "lfm2",
            "<|tool_call_start|>[f(x=1), g()]<|tool_call_end|>",
            &["f {\"x\": 1}", "g {}"],
        ),
        (
            "mistral",
            r#"[TOOL_CALLS][{"name": "f", "arguments": {"x": 1}}]"#,
            &["f {\"x\": 1}"],
        ),
        (
            "mistral",
            r#"[TOOL_CALLS]f[ARGS]{"x": 1}[TOOL_CALLS]g[ARGS]{}"#,
            &["f {\"x\": 1}", "g {}"],
        ),
    ];
    for (name, text, calls) in cases {
        assert_eq!(read(of_notation(name), "A:", text), is("", "", calls), "{name}");
    }
}

#[test]
fn unmarked_calls_are_calls_of_known_functions_alone() {
    for text in [
        r#"{"name": "unknown", "parameters": {}}"#,
        r#"{"answer": 4}"#,
        "[1, 2, 3]",
        "[f (x)]",
    ] {
        assert_eq!(read(of_notation("llama-3"), "A:", text), is("", text, &[]), "{text}");
        assert_eq!(read(of_notation("llama-4"), "A:", text), is("", text, &[]), "{text}");
    }
}

#[test]
fn channels_and_recipients_of_harmony_are_read() {
    let harmony = of_messages("harmony");
    let prompt = "<|start|>user<|message|>Hi<|end|><|start|>assistant";
    let text = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary<|message|>Let me \
                see.<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"x\": \
                1}<|call|>";
    assert_eq!(read(harmony, prompt, text), is("Hm.", "Let me see.", &["f {\"x\": 1}"]));
    let text = " to=functions.g<|channel|>commentary json<|message|>{}<|call|>";
    assert_eq!(read(harmony, prompt, text), is("", "", &["g {}"]));
    let text = "<|channel|>analysis<|message|>One.<|end|><|start|>assistant<|channel|>analysis<|message|>Two.<|end|>\
                <|start|>assistant<|channel|>final<|message|>Four.<|return|>";
    assert_eq!(read(harmony, prompt, text), is("One.\n\nTwo.", "Four.", &[]));
    assert_eq!(read(harmony, prompt, "Plain text."), is("", "Plain text.", &[]));
    let begun = "<|start|>assistant<|channel|>analysis<|message|>";
    assert_eq!(
        read(
            harmony,
            begun,
            "Hm.<|end|><|start|>assistant<|channel|>final<|message|>4"
        ),
        is("Hm.", "4", &[])
    );
}

#[test]
fn no_text_makes_a_reader_panic_or_lose_what_is_no_call() {
    let fragments = [
        "<tool_call>",
        "</tool_call>",
        "{\"name\": \"f\"",
        ", \"arguments\": ",
        "{",
        "}",
        "[",
        "]",
        "\"",
        "f(",
        "x=1",
        ")",
        "<function=f>",
        "<parameter=x>",
        "</parameter>",
        "[TOOL_CALLS]",
        "[ARGS]",
        "é",
        " ",
        "\n",
        "<think>",
        "</think>",
        "<|channel|>",
        "<|message|>",
        "<|end|>",
        "call:f{x:1}",
        "<|\"|>",
        ">>>",
        ",",
        ";",
        ":",
        "f\n",
    ];
    let dialects: Vec<Dialect> = NOTATIONS
        .into_iter()
        .chain(BY_TEXT.iter().map(|(_, notation)| *notation))
        .map(|notation| Dialect {
            calls: Some(notation),
            ..THINK
        })
        .chain(MESSAGE_FORMATS.into_iter().map(|format| Dialect {
            messages: Some(format),
            ..THINK
        }))
        .collect();
    let mut state = 1u64;
    let mut next = |bound: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % bound
    };
    for dialect in dialects {
        for _ in 0..60 {
            let text: String = (0..next(12)).map(|_| fragments[next(fragments.len())]).collect();
            let whole = read_pieces(dialect, "A:", &[&text]);
            let letters: Vec<String> = text.chars().map(String::from).collect();
            let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
            assert_eq!(read_pieces(dialect, "A:", &letters), whole, "{dialect:?} of {text:?}");
        }
    }
}

#[test]
fn schemas_of_tools_are_found_in_every_interface_s_form() {
    let tools = [
        json!({"type": "function", "function": {"name": "a", "parameters": {"properties": {"x": {"type": "string"}}}}}),
        json!({"name": "b", "input_schema": {"properties": {"x": {"type": "string"}}}}),
        json!({"type": "function", "name": "c", "parameters": Value::Null}),
    ];
    let functions = Functions::of_tools(&tools);
    assert!(["a", "b", "c"].iter().all(|name| functions.contains(name)) && !functions.contains("d"));
    assert_eq!(functions.typed("b", "x", "1"), "\"1\"");
    assert_eq!(functions.typed("c", "x", "1"), "1");
}

#[test]
fn models_whose_template_knows_no_tools_may_call_in_any_notation_of_the_mark() {
    let dialect = Dialect::PLAIN.with_calls();
    for (text, call) in [
        (
            "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call>",
            "f {\"x\": 1}",
        ),
        (
            "<tool_call>\n<function=f>\n<parameter=x>\n1\n</parameter>\n</function>\n</tool_call>",
            "f {\"x\": 1}",
        ),
        (
            "<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>1</arg_value>\n</tool_call>",
            "f {\"s\": \"1\"}",
        ),
    ] {
        for cut in (0..text.len()).filter(|cut| text.is_char_boundary(*cut)) {
            let (reasoning, rest, calls) = read_pieces(dialect, "", &["Hm. ", &text[..cut], &text[cut..]]);
            assert_eq!(
                (&*reasoning, rest.trim(), &*calls),
                ("", "Hm.", &[compact_call(call)][..]),
                "{text} {cut}"
            );
        }
    }
    for text in [
        "The mark <tool_call>\nis a mark.",
        "<tool_call>\nother\n</tool_call>",
        "<tool_call><function",
    ] {
        assert_eq!(read(dialect, "", text), (String::new(), text.to_owned(), vec![]));
    }
    assert_eq!(THINK.with_calls(), THINK);
}

#[test]
fn channels_are_recognised_where_the_template_writes_no_calls() {
    let source = "{% for m in messages %}<|start|>{{ m.role }}{% if m.thinking %}<|channel|>analysis<|message|>\
        {{ m.thinking }}<|end|>{% endif %}<|message|>{{ m.content }}<|end|>{% endfor %}<|start|>assistant";
    let template = crate::ChatTemplate::new(source, std::collections::BTreeMap::new());
    assert_eq!(Dialect::of(&template, None), of_messages("harmony"));
}
