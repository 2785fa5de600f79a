//! `refrain tokenize` and `refrain template`.

use std::fs;

use serde_json::{Value, json};

use crate::support::{Copy, fixture, run, run_with_input};

fn tokenizer_only() -> Copy {
    let copy = Copy::of("qwen3-bf16");
    for file in ["config.json", "generation_config.json", "model.safetensors"] {
        copy.remove(file);
    }
    copy
}

#[test]
fn tokenizes_with_tokenizer_files_only() {
    let (whole, part) = (fixture("qwen3-bf16"), tokenizer_only());
    let text = "The cat\nsat — 狐.";
    let ids = run(&["tokenize", part.path(), text]).json();
    assert!(ids.as_array().unwrap().len() > 5);
    assert_eq!(ids, run(&["tokenize", whole.to_str().unwrap(), text]).json());
}

#[test]
fn reads_text_from_argument_file_or_standard_input() {
    let copy = tokenizer_only();
    let text = "two lines\r\nand a newline at the end\n";
    copy.write("text.txt", text);
    let from_argument = run(&["tokenize", copy.path(), text]).done();
    let file = copy.file("text.txt");
    assert_eq!(
        run(&["tokenize", copy.path(), "--file", file.to_str().unwrap()]).done(),
        from_argument
    );
    assert_eq!(
        run_with_input(&["tokenize", copy.path()], text.as_bytes()).done(),
        from_argument
    );
}

#[test]
fn prints_pieces_line_by_line() {
    let copy = tokenizer_only();
    let text = "The boat\n<|im_end|>";
    let ids = run(&["tokenize", copy.path(), text, "--no-bos"]).json();
    let lines = run(&["tokenize", copy.path(), text, "--no-bos", "--pieces"]).done();
    let read = |line: &str| -> (u64, String) {
        let (id, piece) = line.trim_start().split_once(' ').unwrap();
        (id.parse().unwrap(), serde_json::from_str(piece).unwrap())
    };
    let (found, pieces): (Vec<u64>, Vec<String>) = lines.lines().map(read).unzip();
    assert_eq!(json!(found), ids);
    assert_eq!(pieces.concat(), text);
    assert_eq!(pieces.last().unwrap(), "<|im_end|>");
    run(&["tokenize", copy.path(), text, "--no-bos", "--no-special"]).failed(2, &["--no-special"]);
}

#[test]
fn model_without_vocabulary_accepts_token_ids() {
    let copy = Copy::of("qwen3-gguf-q4_0");
    let out = copy.file("logits-by-refrain.safetensors");
    let (model, tokens) = (copy.file("model.gguf"), copy.file("tokens.json"));
    let paths = [&model, &tokens, &out].map(|path| path.to_str().unwrap());
    let logits = || {
        run(&["logits", paths[0], "--tokens", paths[1], "--out", paths[2]]).done();
        fs::read(&out).unwrap()
    };
    let before = logits();
    copy.change("model.gguf", |bytes| {
        let key = b"tokenizer.ggml.model";
        let at = bytes.windows(key.len()).position(|window| window == key).unwrap() + key.len();
        // A type of four bytes, a length of eight, and a text of the same length.
        let text = &mut bytes[at + 12..at + 16];
        assert_eq!(text, b"gpt2");
        text.copy_from_slice(b"none");
    });
    assert_eq!(logits(), before);
    for command in ["run", "tokenize"] {
        run(&[command, paths[0], "hello"]).failed(1, &["has no vocabulary", "logits"]);
    }
}

#[test]
fn recognises_special_tokens_unless_disabled() {
    let copy = tokenizer_only();
    let special = run(&["tokenize", copy.path(), "a<|im_end|>"]).json();
    assert!(special.as_array().unwrap().contains(&json!(306)), "{special}");
    let plain = run(&["tokenize", copy.path(), "a<|im_end|>", "--no-special"]).json();
    assert!(!plain.as_array().unwrap().contains(&json!(306)), "{plain}");
}

#[test]
fn renders_a_conversation_exactly() {
    let copy = tokenizer_only();
    let messages = json!([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi <é>"}]);
    copy.write("messages.json", messages.to_string());
    let file = copy.file("messages.json");
    let arguments = ["template", copy.path(), "--messages", file.to_str().unwrap()];
    let expected = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi <é><|im_end|>\n";
    assert_eq!(run(&arguments).done(), format!("{expected}<|im_start|>assistant\n"));
    assert_eq!(
        run(&[&arguments[..], &["--no-generation-prompt"]].concat()).done(),
        expected
    );
}

#[test]
fn custom_template_sees_the_models_special_tokens() {
    let copy = tokenizer_only();
    copy.write(
        "messages.json",
        r#"{"messages": [{"role": "user", "content": "x"}], "mood": "fine"}"#,
    );
    copy.write("own.jinja", "{{ messages[0].content }}{{ eos_token }}{{ mood }}");
    let (messages, template) = (copy.file("messages.json"), copy.file("own.jinja"));
    let paths = [&messages, &template].map(|path| path.to_str().unwrap());
    let rendered = run(&["template", copy.path(), "--messages", paths[0], "--template", paths[1]]).done();
    assert_eq!(rendered, "x<|im_end|>fine");
    copy.change_json("tokenizer_config.json", |config| {
        config.as_object_mut().unwrap().remove("chat_template");
    });
    run(&["template", copy.path(), "--messages", paths[0]]).failed(1, &["no chat template", "--template"]);
}

#[test]
fn reads_the_tokenizer_of_a_gguf_file() {
    let file = fixture("qwen3-gguf-q8_0/model.gguf");
    let path = file.to_str().unwrap();
    if fs::metadata(&file).is_err() {
        panic!("the fixture is missing");
    }
    let outcome = run(&["tokenize", path, "hello"]);
    let ids: Value = outcome.json();
    assert!(!ids.as_array().unwrap().is_empty());
}
