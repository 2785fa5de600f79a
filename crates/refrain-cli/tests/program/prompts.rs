//! What `refrain run` takes for a prompt, and how it answers.

use std::fs;

use crate::support::{Outcome, run, run_with_input};

const ANSWER: &str = "12 + 30 = 42\n";

/// Tokens of the prompt, and the text that the demo model goes on with.
fn asked(outcome: Outcome) -> (u64, String) {
    let json = outcome.json();
    (json["prompt_tokens"].as_u64().unwrap(), json["text"].to_string())
}

#[test]
fn several_words_are_one_prompt() {
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
fn what_is_piped_joins_the_prompt() {
    let short = ["-n", "8", "--temp", "0", "--json"];
    let piped = |arguments: &[&str], text: &str| {
        asked(run_with_input(
            &[&["run", "demo"], arguments, &short[..]].concat(),
            text.as_bytes(),
        ))
    };
    let whole = asked(run(&[&["run", "demo", "Once upon\n\na time"], &short[..]].concat()));
    assert_eq!(piped(&["Once", "upon"], "a time\n"), whole);
    // Nothing piped, or blanks alone, change nothing.
    let alone = asked(run(&[&["run", "demo", "Once upon"], &short[..]].concat()));
    assert_eq!(piped(&["Once upon"], " \n"), alone);
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "Once upon\n").unwrap();
    let path = file.path().to_str().unwrap();
    assert_eq!(piped(&["-f", path], "a time"), whole);
    // Nothing is put between, and nothing taken off, where the prompt is to stay as it is.
    let raw = asked(run(
        &[&["run", "demo", "--raw", "Once upon a time\n"], &short[..]].concat()
    ));
    assert_eq!(piped(&["--raw", "Once upon"], " a time\n"), raw);
}

#[test]
fn model_prompt_and_files_are_taken_as_other_programs_take_them() {
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
fn what_cannot_be_meant_says_what_to_type() {
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
fn a_template_and_its_variables_may_come_from_the_command_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("own.jinja");
    let source = "{{ '<|im_start|>user\\n' + question ~ '<|im_end|>\\n<|im_start|>assistant\\n' }}";
    fs::write(&path, source).unwrap();
    for option in ["--template", "--chat-template-file"] {
        let arguments = ["run", "demo", "-", "--temp", "0", option, path.to_str().unwrap()];
        let told = |more: &[&str]| run_with_input(&[&arguments, more].concat(), b"anything").done();
        assert_eq!(told(&["--template-arg", "question=What is 12 + 30?"]), ANSWER);
        assert_eq!(told(&["--template-arg", r#"{"question": "What is 12 + 30?"}"#]), ANSWER);
    }
}

#[test]
fn one_line_tells_what_an_answer_cost() {
    let told = run(&["run", "demo", "What is 12 + 30?", "--temp", "0"]);
    let figures = told
        .stderr
        .lines()
        .filter(|line| line.contains("tokens (") || line.contains("memory:"));
    assert_eq!(figures.count(), 1, "{told:?}");
}
