//! Marks within strings, calls of built-in tools, and values that only a schema explains.

use serde_json::json;

use super::{AnswerPiece, AnswerReader, Functions, is, of_messages, of_notation, read};

#[test]
fn a_mark_within_a_string_does_not_end_the_message() {
    let harmony = of_messages("harmony");
    let call = "<|channel|>commentary to=functions.f <|constrain|>json<|message|>";
    for mark in ["<|end|>", "<|call|>", "<|return|>", "<|start|>assistant", "<|message|>"] {
        let arguments = format!("{{\"s\":\"a {mark} b\"}}");
        let text = format!("{call}{arguments}<|call|>");
        assert_eq!(
            read(harmony, "<|start|>assistant", &text),
            is("", "", &[&format!("f {arguments}")])
        );
        let followed = format!("{text}<|start|>assistant<|channel|>final<|message|>Done.");
        assert_eq!(
            read(harmony, "<|start|>assistant", &followed),
            is("", "Done.", &[&format!("f {arguments}")])
        );
    }
}

#[test]
fn a_message_behind_arguments_that_never_ended_is_read() {
    let text = "<|channel|>commentary to=functions.f<|message|>{\"s\":\"a<|end|><|start|>assistant<|channel|>final\
                <|message|>Sorry.";
    let (_, answer, calls) = read(of_messages("harmony"), "<|start|>assistant", text);
    assert_eq!(
        (answer.as_str(), &calls[..]),
        ("Sorry.", &["f {\"s\":\"a".to_owned()][..])
    );
}

#[test]
fn tools_that_llama_knows_are_called_behind_its_mark() {
    let llama = of_notation("llama-3");
    assert_eq!(
        read(llama, "", "<|python_tag|>f.call(x=1, s=\"a (b)\")"),
        is("", "", &["f {\"x\":1,\"s\":\"a (b)\"}"])
    );
    for text in [
        "f.call(x=1)",
        "<|python_tag|>print(f.call(x=1))",
        "<|python_tag|>h.call(x=1)",
    ] {
        let (_, answer, calls) = read(llama, "", text);
        assert_eq!((answer, calls), (text.replace("<|python_tag|>", ""), vec![]), "{text}");
    }
}

/// The arguments of a call of MiniMax-M3 by the schema of its function.
fn elements(schema: serde_json::Value, body: &str) -> String {
    let text = format!(
        "]<]minimax[>[<tool_call>]<]minimax[>[<invoke name=\"f\">{}]<]minimax[>[</invoke>]<]minimax[>[</tool_call>",
        body.replace('<', "]<]minimax[>[<")
    );
    let functions = Functions::new([("f".to_owned(), schema)]);
    let mut reader = AnswerReader::new(of_notation("minimax-m3"), functions, "");
    let pieces = reader.push(&text).into_iter().chain(reader.finish());
    let arguments = pieces.filter_map(|piece| match piece {
        AnswerPiece::Arguments(piece) => Some(piece),
        _ => None,
    });
    arguments.collect()
}

#[test]
fn elements_have_the_types_of_the_schema() {
    let schema = json!({
        "properties": {
            "name": {"type": "string"},
            "count": {"type": "integer"},
            "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}},
            "deep": {"type": "object", "properties": {"code": {"type": "string"}}},
        },
        "$defs": {"tag": {"type": "string"}},
    });
    let body = "<name></name><count>3</count><tags><item>1</item><item></item></tags><deep><code>7</code></deep>";
    assert_eq!(
        elements(schema.clone(), body),
        r#"{"name":"","count":3,"tags":["1",""],"deep":{"code":"7"}}"#
    );
    assert_eq!(
        elements(schema, "<tags></tags><other></other>"),
        r#"{"tags":[],"other":null}"#
    );
    assert_eq!(
        elements(json!(null), "<name></name><count>3</count>"),
        r#"{"name":null,"count":3}"#
    );
}
