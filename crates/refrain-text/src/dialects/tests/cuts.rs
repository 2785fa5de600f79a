//! Answers that a limit or a stop string cuts off: no marks in the text, and no arguments that the model did not write.

use super::{AnswerPiece, AnswerReader, Dialect, Read, THINK, functions, of_messages, of_notation};

/// Reads a text that was cut off, in one piece and letter by letter.
fn read_cut(dialect: Dialect, text: &str) -> Read {
    let read = |pieces: &[&str]| {
        let mut reader = AnswerReader::new(dialect, functions(), "");
        let mut found: Vec<AnswerPiece> = pieces.iter().flat_map(|piece| reader.push(piece)).collect();
        found.extend(reader.cut_off());
        super::joined(found)
    };
    let whole = read(&[text]);
    let letters: Vec<String> = text.chars().map(String::from).collect();
    let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
    assert_eq!(read(&letters), whole, "{text:?}");
    whole
}

#[test]
fn an_answer_cut_anywhere_is_a_beginning_of_the_whole() {
    let hermes = "<think>So.</think>Hm.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1, \"s\": \"<b\"}}\n\
                  </tool_call>\n<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>";
    let cases = [
        (THINK, hermes),
        (
            of_notation("qwen-xml"),
            "Hm.\n<tool_call>\n<function=f>\n<parameter=x>\n12\n</parameter>\n<parameter=s>\na </parameter> \
             b\n</parameter>\n</function>\n</tool_call>",
        ),
        (
            of_notation("glm"),
            "Hm.<tool_call>f\n<arg_key>x</arg_key>\n<arg_value>1</arg_value>\n</tool_call>",
        ),
        (
            of_notation("mistral"),
            "Hm.[TOOL_CALLS]f[ARGS]{\"x\": 1}[TOOL_CALLS]g[ARGS]{}",
        ),
        (of_notation("deepseek-v3.1"), DEEPSEEK),
        (
            of_notation("llama-3"),
            "{\"name\": \"f\", \"parameters\": {\"x\": 1}}; {\"name\": \"g\", \"parameters\": {\"s\": \"a\"}}",
        ),
        (of_notation("llama-3"), "<|python_tag|>f.call(x=1, s=\"a (b)\")"),
        (
            of_notation("llama-4"),
            "<|python_start|>[f(x=1, s='a, b'), g(x=2)]<|python_end|>",
        ),
        (
            of_notation("gemma-4"),
            "Hm.<|tool_call>call:f{x:1,s:<|\"|>a<|\"|>}<tool_call|>",
        ),
        (
            of_messages("harmony"),
            "<|channel|>analysis<|message|>So.<|end|><|start|>assistant<|channel|>commentary<|message|>Hm.<|end|>\
             <|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"x\": 1}<|call|>",
        ),
    ];
    for (dialect, text) in cases {
        let (reasoning, answer, calls) = super::read(dialect, "", text);
        assert!(!calls.is_empty(), "{text:?}");
        for (at, _) in text.char_indices() {
            let (some_reasoning, some_answer, some_calls) = read_cut(dialect, &text[..at]);
            let cut = &text[..at];
            assert!(
                reasoning.starts_with(some_reasoning.trim_end()),
                "{cut:?}: {some_reasoning:?}"
            );
            assert!(answer.starts_with(some_answer.trim_end()), "{cut:?}: {some_answer:?}");
            assert!(some_calls.len() <= calls.len(), "{cut:?}: {some_calls:?}");
            for (some, whole) in some_calls.iter().zip(&calls) {
                assert!(whole.starts_with(some.as_str()), "{cut:?}: {some:?}");
            }
        }
    }
}

const DEEPSEEK: &str = "Hm.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"x\": 1}<｜tool▁call▁end｜>\
                        <｜tool▁calls▁end｜>";

#[test]
fn an_answer_in_json_without_a_mark_is_no_call() {
    for text in ["{\"answer\": \"long", "{\"name\": \"Bob\", \"age", "[1, 2", "[\"a"] {
        for name in ["llama-3", "llama-4"] {
            assert_eq!(
                read_cut(of_notation(name), text),
                (String::new(), text.to_owned(), vec![]),
                "{name}"
            );
        }
    }
}
