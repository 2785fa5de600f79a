//! The command line itself.

use crate::support::{Outcome, refrain, run};

#[test]
fn a_command_line_that_cannot_be_meant_exits_with_2() {
    for arguments in [
        &[][..],
        &["dance"],
        &["run", "--no-such-option"],
        &["run", "demo", "hi", "--temp", "-1"],
        &["run", "demo", "hi", "--top-p", "0"],
        &["run", "demo", "hi", "--min-p", "2"],
        &["run", "demo", "hi", "--repeat-penalty", "0"],
        &["run", "demo", "hi", "-n", "many"],
        &["run", "demo", "hi", "--ctx", "0"],
        &["run", "demo", "hi", "--stop", ""],
        &["run", "demo", "hi", "--raw", "--system", "x"],
        &["run", "demo", "hi", "-q", "-v"],
        &["tokenize", "demo", "text", "--file", "too"],
        &["logits", "demo"],
        &["logits", "demo", "--tokens", "a", "--out", "b", "--chunk", "0"],
        &["bench", "demo", "-p", "1000", "-n", "1000"],
    ] {
        let outcome = run(arguments);
        assert_eq!(outcome.code, Some(2), "{arguments:?}: {outcome:?}");
        assert_eq!(outcome.stdout, "", "{arguments:?}");
        assert!(!outcome.stderr.is_empty(), "{arguments:?}");
    }
}

#[test]
fn help_and_version_are_results() {
    assert!(run(&["--version"]).done().starts_with("refrain "));
    assert!(run(&["--help"]).done().contains("tokenize"));
    for command in [
        "run", "chat", "devices", "doctor", "inspect", "tokenize", "template", "logits", "synth", "bench",
    ] {
        assert!(run(&[command, "--help"]).done().contains("--device"), "{command}");
    }
}

#[test]
fn nothing_is_coloured_where_no_colour_is_wanted() {
    for arguments in [
        &["--help"][..],
        &["run", "--no-such-option"],
        &["devices"],
        &["inspect", "nowhere"],
    ] {
        let output = refrain(arguments)
            .env("NO_COLOR", "1")
            .env("CLICOLOR_FORCE", "")
            .output()
            .unwrap();
        let outcome = Outcome::from(output);
        assert!(
            !outcome.stdout.contains('\x1b') && !outcome.stderr.contains('\x1b'),
            "{outcome:?}"
        );
    }
}

#[test]
fn an_empty_setting_in_the_environment_is_none() {
    let output = refrain(&["devices"])
        .env("REFRAIN_DEVICE", "")
        .env("REFRAIN_DISABLE", "")
        .output();
    Outcome::from(output.unwrap()).done();
}

#[test]
fn inspect_describes_the_checkpoint() {
    let text = run(&["inspect", "demo", "--no-device"]).done();
    for word in [
        "qwen3",
        "7.9 M",
        "model.embed_tokens.weight",
        "MLX 8-bit/64",
        "1024 tokens",
    ] {
        assert!(text.contains(word), "no {word:?} in {text}");
    }
    let json = run(&["inspect", "demo", "--no-device", "--json"]).json();
    assert_eq!(json["tensors"].as_array().unwrap().len(), 90);
    assert_eq!(json["device"], serde_json::Value::Null);
}
