//! Models with reasoning.

use std::fs;

use serde_json::{Value, json};

use crate::support::{Copy, Outcome, run, run_with_input};

const QUESTION: &str = "What is 12 + 30?";

/// The demo model with reasoning tags: of its answer "12 + 30 = 42", everything before the result is reasoning.
pub fn reasoning_model() -> Copy {
    let copy = Copy::of("../../demo/model");
    copy.change_json("tokenizer.json", |tokenizer| {
        let byte_level = tokenizer["decoder"].take();
        let replace = |text: &str, by: &str| json!({"type": "Replace", "pattern": {"String": text}, "content": by});
        tokenizer["decoder"] = json!({
            "type": "Sequence",
            "decoders": [byte_level, replace("1", "<think>\n1"), replace(" =", "</think>")],
        });
    });
    // It would take precedence over the template in the configuration.
    copy.remove("chat_template.jinja");
    copy.change_json("tokenizer_config.json", |config| {
        let template = config["chat_template"].as_str().unwrap().replace(
            "assistant\\n'",
            "assistant\\n' + ('' if enable_thinking | default(true) else '<think>\\n\\n</think>\\n\\n')",
        );
        assert!(template.contains("enable_thinking"));
        config["chat_template"] = template.into();
    });
    copy
}

fn ask(copy: &Copy, more: &[&str]) -> Outcome {
    run(&[&["run", copy.path(), QUESTION, "--temp", "0"], more].concat())
}

#[test]
fn reasoning_is_left_out_of_pipes_unless_requested() {
    let copy = reasoning_model();
    assert_eq!(ask(&copy, &[]).done(), "42\n");
    assert_eq!(ask(&copy, &["--reasoning", "hide"]).done(), "42\n");
    let shown = ask(&copy, &["--thoughts", "show"]).done();
    assert_eq!(shown, "<think>\n12 + 30\n</think>\n\n42\n");
    // Without the template, the text is unchanged.
    let prompt = format!("<|im_start|>user\n{QUESTION}<|im_end|>\n<|im_start|>assistant\n");
    let raw = run(&["run", copy.path(), &prompt, "--raw", "--temp", "0"]).done();
    assert_eq!(raw, "<think>\n12 + 30</think> 42\n");
}

#[test]
fn json_separates_reasoning() {
    let copy = reasoning_model();
    let json = ask(&copy, &["--json"]).json();
    assert_eq!((&json["text"], &json["thoughts"]), (&json!("42"), &json!("12 + 30")));
    assert_eq!(json["reasoning"], json["thoughts"]);
    let json = run(&["run", "demo", QUESTION, "--temp", "0", "--json"]).json();
    assert_eq!(
        (&json["text"], &json["thoughts"]),
        (&json!("12 + 30 = 42"), &Value::Null)
    );
}

#[test]
fn reports_a_response_that_ends_during_reasoning() {
    let output = ask(&reasoning_model(), &["-n", "3"]);
    assert!(
        output.stderr.contains("generation ended during reasoning"),
        "{output:?}"
    );
    assert_eq!(output.done(), "\n");
}

#[test]
fn think_options_control_the_template() {
    let copy = reasoning_model();
    let tokens = |model: &str, more: &[&str]| {
        let arguments = [&["run", model, QUESTION, "-n", "0", "--json"], more].concat();
        run(&arguments).json()["prompt_tokens"].as_u64().unwrap()
    };
    let default = tokens(copy.path(), &[]);
    for off in [
        &["--no-think"][..],
        &["--think=false"],
        &["--template-arg", "enable_thinking=false"],
    ] {
        assert!(tokens(copy.path(), off) > default, "{off:?}");
    }
    for on in [&["--think"][..], &["--no-think", "--think"]] {
        assert_eq!(tokens(copy.path(), on), default, "{on:?}");
    }
    // --no-think has no effect on a model without reasoning; --think is an error there.
    assert_eq!(tokens("demo", &["--no-think"]), tokens("demo", &[]));
    run(&["run", "demo", QUESTION, "--think"]).failed(1, &["no switch for reasoning"]);
}

#[test]
fn saved_conversation_has_reasoning_content() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("chat.json");
    let path = path.to_str().unwrap();
    let copy = reasoning_model();
    let lines = format!("{QUESTION}\n/save {path}\n/set nothink\n/stats\n");
    let output = run_with_input(&["chat", copy.path(), "--temp", "0"], lines.as_bytes());
    assert!(output.stderr.contains("reasoning disabled"), "{output:?}");
    assert_eq!(output.done(), "42\n");
    let saved: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let answer = &saved["messages"][1];
    assert_eq!(
        (&answer["content"], &answer["reasoning_content"]),
        (&json!("42"), &json!("12 + 30"))
    );
}
