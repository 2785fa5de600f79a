//! The prompt of `refrain run`, and its summary line.

use std::fs;

use crate::support::{Outcome, run, run_with_input};

const ANSWER: &str = "12 + 30 = 42\n";

/// Prompt tokens and generated text.
fn tokens_and_text(outcome: Outcome) -> (u64, String) {
    let json = outcome.json();
    (json["prompt_tokens"].as_u64().unwrap(), json["text"].to_string())
}

#[test]
fn joins_several_words() {
    assert_eq!(
        run(&["run", "demo", "What", "is", "12", "+", "30?", "--temp", "0"]).done(),
        ANSWER
    );
    assert_eq!(
        run(&["run", "demo", "--temp", "0", "What is", "12 + 30?"]).done(),
        ANSWER
    );
}

#[test]
fn appends_piped_input() {
    let short = ["-n", "8", "--temp", "0", "--json"];
    let piped = |arguments: &[&str], text: &str| {
        tokens_and_text(run_with_input(
            &[&["run", "demo"], arguments, &short[..]].concat(),
            text.as_bytes(),
        ))
    };
    let whole = tokens_and_text(run(&[&["run", "demo", "Once upon\n\na time"], &short[..]].concat()));
    assert_eq!(piped(&["Once", "upon"], "a time\n"), whole);
    // Empty or blank piped input changes nothing.
    let alone = tokens_and_text(run(&[&["run", "demo", "Once upon"], &short[..]].concat()));
    assert_eq!(piped(&["Once upon"], " \n"), alone);
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "Once upon\n").unwrap();
    let path = file.path().to_str().unwrap();
    assert_eq!(piped(&["-f", path], "a time"), whole);
    // With --raw, nothing is inserted and nothing removed.
    let raw = tokens_and_text(run(
        &[&["run", "demo", "--raw", "Once upon a time\n"], &short[..]].concat()
    ));
    assert_eq!(piped(&["--raw", "Once upon"], " a time\n"), raw);
}

#[test]
fn accepts_model_prompt_and_file_options_of_other_programs() {
    let question = "What is 12 + 30?";
    for arguments in [
        &["-m", "demo", "-p", question][..],
        &["demo", "-p", question],
        &["--model", "demo", "--prompt", question],
        &["-m", "demo", question],
        &["-m", "demo", "What", "is", "12 + 30?"],
        &["demo", question, "-c", "200", "-t", "2", "--temperature", "0"],
    ] {
        assert_eq!(
            run(&[&["run", "--top-k", "1"], arguments].concat()).done(),
            ANSWER,
            "{arguments:?}"
        );
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), question).unwrap();
    let path = file.path().to_str().unwrap();
    assert_eq!(run(&["run", "demo", "-f", path, "--temp", "0"]).done(), ANSWER);
}

#[test]
fn a_prompt_may_begin_with_a_hyphen() {
    let ask = |arguments: &[&str]| {
        tokens_and_text(run(
            &[&["run", "demo", "-n", "4", "--temp", "0", "--json"], arguments].concat()
        ))
    };
    for prompt in [
        "- a list",
        "-- dashes",
        "---\ntitle: x\n---",
        "--what is it?",
        "-5 degrees",
    ] {
        assert_eq!(ask(&[prompt]), ask(&["--", prompt]), "{prompt}");
        assert_eq!(ask(&["-p", prompt]), ask(&["--", prompt]), "{prompt}");
    }
    assert_eq!(ask(&["- a", "list", "-- b"]), ask(&["--", "- a list -- b"]));
    assert_eq!(
        ask(&["hi", "--system", "- be brief"]),
        ask(&["hi", "--system=- be brief"])
    );
    assert_eq!(
        run(&["tokenize", "demo", "- a"]).done(),
        run(&["tokenize", "demo", "--", "- a"]).done()
    );
    run(&["run", "- a list"]).failed(2, &["\"- a list\"", "model comes before the prompt"]);
    run(&["run", "demo", "hi", "--temperture", "0"]).failed(2, &["--temperture"]);
}

#[test]
fn usage_errors_say_what_to_type() {
    let refused = |arguments: &[&str], words: &[&str]| run(&[&["run"], arguments].concat()).failed(2, words);
    refused(
        &["What is 2 + 2?"],
        &["What is 2 + 2?", "model comes before the prompt"],
    );
    refused(&["demo", "hi", "-p", "hi"], &["given twice"]);
    refused(&["demo"], &["prompt is empty", "-f FILE"]);
    refused(&["demo", "hi", "--raw", "--no-think"], &["--no-think", "--raw"]);
    run(&["run", "demo", "hi", "-ngl", "99"]).failed(2, &["leave -ngl out"]);
    run(&["run", "demo", "hi", "-f", "no/such/file"]).failed(1, &["no/such/file"]);
}

#[test]
fn accepts_a_template_and_variables() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("own.jinja");
    let source = "{{ '<|im_start|>user\\n' + question ~ '<|im_end|>\\n<|im_start|>assistant\\n' }}";
    fs::write(&path, source).unwrap();
    for option in ["--template", "--chat-template-file"] {
        let arguments = ["run", "demo", "-", "--temp", "0", option, path.to_str().unwrap()];
        let output = |more: &[&str]| run_with_input(&[&arguments, more].concat(), b"anything").done();
        assert_eq!(output(&["--template-arg", "question=What is 12 + 30?"]), ANSWER);
        assert_eq!(
            output(&["--template-arg", r#"{"question": "What is 12 + 30?"}"#]),
            ANSWER
        );
    }
}

#[test]
fn prints_one_summary_line() {
    let output = run(&["run", "demo", "What is 12 + 30?", "--temp", "0"]);
    let figures = output
        .stderr
        .lines()
        .filter(|line| line.contains("tokens (") || line.contains("memory:"));
    assert_eq!(figures.count(), 1, "{output:?}");
}
