//! The dialect of a directory's own chat template and tokenizer.

use refrain_text::TokenizerFiles;
use refrain_text::dialects::{AnswerPiece, AnswerReader, Dialect, Functions};
use serde_json::json;

/// Writes calls as Qwen3.5 does.
const XML: &str = "{% for tool in tools or [] %}{{ tool|tojson }}{% endfor %}\
    {% for m in messages %}<|im_start|>{{ m.role }}\n\
    {% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}{{ m.content or '' }}\
    {% for call in m.tool_calls or [] %}\n<tool_call>\n<function={{ call.function.name }}>\n\
    {% for key, value in call.function.arguments|items %}<parameter={{ key }}>\n\
    {{ value if value is string else value|tojson }}\n</parameter>\n{% endfor %}</function>\n</tool_call>{% endfor %}\
    <|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// Knows neither tools nor reasoning.
const PLAIN: &str = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}";

/// Opens a directory of a tokenizer with the marks as added tokens, and these templates.
fn open(templates: &[(&str, &str)]) -> (tempfile::TempDir, TokenizerFiles) {
    let directory = tempfile::tempdir().unwrap();
    let added = |(id, content): (usize, &str)| {
        json!({"id": id + 2, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
               "normalized": false, "special": false})
    };
    let marks = ["<think>", "</think>", "<tool_call>", "</tool_call>"];
    let added: Vec<_> = marks.into_iter().enumerate().map(added).collect();
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": null,
        "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": {"a": 0, "b": 1}, "unk_token": "a"},
    });
    std::fs::create_dir(directory.path().join("additional_chat_templates")).unwrap();
    let files = [
        ("tokenizer.json", tokenizer.to_string()),
        ("tokenizer_config.json", "{}".to_owned()),
    ];
    for (name, text) in files {
        std::fs::write(directory.path().join(name), text).unwrap();
    }
    for (name, text) in templates {
        std::fs::write(directory.path().join(name), text).unwrap();
    }
    let files = TokenizerFiles::open(directory.path()).unwrap();
    (directory, files)
}

fn dialect(templates: &[(&str, &str)]) -> Dialect {
    let (_directory, files) = open(templates);
    let template = files.chat_template().unwrap().unwrap();
    Dialect::of(&template, Some(&files.tokenizer().unwrap()))
}

#[test]
fn the_template_decides_how_answers_are_read() {
    let tools = [json!({"type": "function", "function": {"name": "f", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}}})];
    let xml = dialect(&[("chat_template.jinja", XML)]);
    assert!(xml.reasons() && xml.has_calls());
    let mut reader = AnswerReader::new(xml, Functions::of_tools(&tools), "");
    let answer = "<think>\nHm.\n</think>\n\nYes.\n<tool_call>\n<function=f>\n<parameter=city>\n7\n</parameter>\n\
                  <parameter=days>\n7\n</parameter>\n</function>\n</tool_call>";
    let mut pieces = reader.push(answer);
    pieces.extend(reader.finish());
    let (mut reasoning, mut text, mut name, mut arguments) =
        (String::new(), String::new(), String::new(), String::new());
    for piece in pieces {
        match piece {
            AnswerPiece::Reasoning(more) => reasoning.push_str(&more),
            AnswerPiece::Text(more) => text.push_str(&more),
            AnswerPiece::Call { name: called, .. } => name.push_str(&called),
            AnswerPiece::Arguments(more) => arguments.push_str(&more),
        }
    }
    assert_eq!((reasoning.as_str(), text.trim(), name.as_str()), ("Hm.", "Yes.", "f"));
    let arguments: serde_json::Value = serde_json::from_str(&arguments).unwrap();
    assert_eq!(arguments, json!({"city": "7", "days": 7}));
}

#[test]
fn a_vocabulary_with_marks_is_not_enough() {
    let plain = dialect(&[("chat_template.jinja", PLAIN)]);
    assert!(!plain.reasons() && !plain.has_calls());
}

#[test]
fn the_template_for_tools_decides_how_calls_are_read() {
    let templates = [
        ("chat_template.jinja", PLAIN),
        ("additional_chat_templates/tool_use.jinja", XML),
    ];
    let both = dialect(&templates);
    assert!(both.has_calls());
    let xml = dialect(&[("chat_template.jinja", XML)]);
    assert_eq!(both.calls, xml.calls);
}
