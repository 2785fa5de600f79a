//! User errors other than damaged checkpoints.

use std::fs;

use serde_json::json;

use crate::support::{Copy, fixture, refrain, run, run_with_input};

#[test]
fn rejects_a_missing_or_broken_tokenizer() {
    let copy = Copy::of("qwen3-bf16");
    copy.change_json("tokenizer.json", |tokenizer| tokenizer["model"]["vocab"] = json!(7));
    run(&["tokenize", copy.path(), "x"]).failed(1, &["tokenizer.json", "broken"]);
    copy.write("tokenizer.json", "");
    run(&["run", copy.path(), "x"]).failed(1, &["tokenizer.json", "empty"]);
    copy.remove("tokenizer.json");
    run(&["run", copy.path(), "x"]).failed(1, &["tokenizer.json"]);
}

#[test]
fn rejects_a_template_that_cannot_be_rendered() {
    if !refrain_testing::drawn(8) {
        return;
    }
    let copy = Copy::of("qwen3-bf16");
    let messages = copy.file("messages.json");
    fs::write(&messages, r#"[{"role": "user", "content": "hi"}]"#).unwrap();
    let render = |template: &str| {
        copy.write("other.jinja", template);
        let (messages, file) = (messages.to_str().unwrap(), copy.file("other.jinja"));
        run(&[
            "template",
            copy.path(),
            "--messages",
            messages,
            "--template",
            file.to_str().unwrap(),
        ])
    };
    render("{% if %}").failed(1, &["does not parse"]);
    render("{{ raise_exception('only cats') }}").failed(1, &["only cats"]);
    let endless = "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}\
                   {% endfor %}{% endfor %}{% endfor %}";
    render(endless).failed(1, &["seems to loop forever"]);
    render("{{ 'x' * 1000000000 }}").failed(1, &["a text of more than 32 MiB"]);
    assert_eq!(render("{{ messages[0].content }}").done(), "hi");
    // Output for other programs is not escaped.
    assert_eq!(render("{{ '\u{1b}[31m' }}").done(), "\u{1b}[31m");
}

#[test]
fn escapes_control_characters_from_files() {
    let copy = Copy::of("qwen3-bf16");
    let messages = copy.file("messages.json");
    fs::write(&messages, r#"[{"role": "user", "content": "hi"}]"#).unwrap();
    copy.write(
        "chat_template.jinja",
        "{{ raise_exception('\\x1b]0;owned\\x07\u{1b}[2J') }}",
    );
    let refused = run(&["template", copy.path(), "--messages", messages.to_str().unwrap()]);
    refused.failed(1, &[r"\u{1b}]0;owned\u{7}\u{1b}[2J"]);
    copy.change_json("config.json", |config| {
        config["model_type"] = json!("\u{1b}[31mqwen\u{9b}")
    });
    // The known metadata is shown all the same.
    let shown = run(&["inspect", copy.path()]);
    assert_eq!(shown.code, Some(1), "{shown:?}");
    assert!(shown.stderr.contains(r"\u{1b}[31mqwen"), "{shown:?}");
    assert!(!(shown.stdout + &shown.stderr).contains(['\u{1b}', '\u{9b}']));
}

#[test]
fn rejects_invalid_messages() {
    let model = fixture("qwen3-bf16");
    let model = model.to_str().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("messages.json");
    let path = file.to_str().unwrap();
    for (content, word) in [("{", "JSON"), ("7", "number"), ("[7]", "message 0"), ("{}", "messages")] {
        fs::write(&file, content).unwrap();
        run(&["template", model, "--messages", path]).failed(1, &[word]);
    }
    run(&["template", model, "--messages", "no/such/file"]).failed(1, &["no/such/file"]);
}

#[test]
fn rejects_invalid_token_files() {
    let copy = Copy::of("qwen3-bf16");
    for (tokens, words) in [
        (
            json!({"input_ids": [[1, 2], [3, 311]]}),
            ["row 1, position 1: 311", "311 tokens"],
        ),
        (json!({"input_ids": [[1, -2]]}), ["-2", "311"]),
        (json!({"input_ids": [[1, "a"]]}), ["\"a\"", "token id"]),
        (json!({"input_ids": [[1, 2], [3]]}), ["row 1 has 1", "the same length"]),
        (json!({"input_ids": [[], []]}), ["no token ids", "tokens.json"]),
        (json!({"input_ids": []}), ["no token ids", "tokens.json"]),
        (json!({"input_ids": [7]}), ["row 0", "list"]),
        (json!([[1, 2]]), ["input_ids", "tokens.json"]),
        (json!({"input_ids": [vec![1; 4097]]}), ["4097", "4096"]),
    ] {
        copy.write("tokens.json", tokens.to_string());
        copy.logits("").failed(1, &words);
    }
    copy.write("tokens.json", "[[1,");
    copy.logits("").failed(1, &["tokens.json", "JSON"]);
    copy.remove("tokens.json");
    copy.logits("").failed(1, &["tokens.json"]);
}

#[test]
fn names_a_file_that_cannot_be_written() {
    let tokens = fixture("qwen3-bf16/tokens.json");
    let model = fixture("qwen3-bf16");
    let (model, tokens) = (model.to_str().unwrap(), tokens.to_str().unwrap());
    let out = "/no/such/directory/out.safetensors";
    run(&["logits", model, "--tokens", tokens, "--out", out]).failed(1, &[out]);
}

#[test]
fn rejects_a_prompt_that_does_not_fit_with_a_hint() {
    let long = "one two three four five six seven eight nine ten";
    run(&["run", "demo", long, "--ctx", "8"]).failed(1, &["the context holds 8", "--ctx (up to 1024)"]);
    let input = long.repeat(200);
    run_with_input(&["run", "demo"], input.as_bytes()).failed(1, &["the context holds 1024", "shorter"]);
    run(&["run", "demo", "hi", "--ctx", "5000"]).failed(1, &["5000", "1024"]);
}

#[test]
fn rejects_an_empty_prompt() {
    run(&["run", "demo", "--raw"]).failed(2, &["prompt is empty"]);
    run(&["run", "demo", "", "--raw"]).failed(2, &["prompt is empty"]);
    run(&["run", "demo", ""]).failed(2, &["prompt is empty"]);
    run_with_input(&["run", "demo"], b"\n").failed(2, &["prompt is empty", "standard input"]);
}

#[test]
fn rejects_a_prompt_that_is_not_utf8() {
    run_with_input(&["run", "demo"], b"caf\xe9").failed(1, &["not UTF-8", "byte 3"]);
    run_with_input(&["tokenize", "demo"], b"\xff").failed(1, &["not UTF-8"]);
}

/// A copy of the fixture with a limit of two billion tokens, which exceeds any memory.
fn endless_context() -> Copy {
    let copy = Copy::of("qwen3-bf16");
    copy.change_json("config.json", |config| {
        config["max_position_embeddings"] = json!(2_000_000_000)
    });
    copy
}

#[test]
fn out_of_memory_errors_say_what_to_try() {
    let copy = endless_context();
    let arguments = ["run", copy.path(), "hi", "--ctx", "2000000000"];
    run(&arguments).failed(1, &["out of memory", "--ctx"]);
    let on_vulkan = refrain(&arguments).env("REFRAIN_DEVICE", "0").output().unwrap();
    crate::support::Outcome::from(on_vulkan).failed(1, &["out of memory", "--ctx"]);
}

#[test]
fn rejects_negative_numbers_as_values() {
    for (option, word) in [
        ("--temp", "0 or more"),
        ("--temperature", "0 or more"),
        ("--top-k", "0 or more"),
        ("--seed", "a new seed each time"),
        ("-n", "until the model ends the text"),
        ("--ctx", "-1 is not in 1"),
    ] {
        run(&["run", "demo", "x", option, "-1"]).failed(2, &["'-1'", word]);
    }
    run(&["bench", "demo", "-p", "-1"]).failed(2, &["'-1'"]);
}

#[test]
fn weight_file_as_model_names_the_directory_to_open() {
    let copy = Copy::of("qwen3-bf16");
    let weights = format!("{}/model.safetensors", copy.path());
    run(&["inspect", &weights]).failed(1, &["open that directory", copy.path()]);
}
