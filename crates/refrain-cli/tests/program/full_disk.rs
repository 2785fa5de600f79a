//! Disks without room: `/dev/full` is one, and a limit on the size of files acts like one.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::{Outcome, refrain, run, run_with_input};

const FULL: &str = "/dev/full";

/// Checks that what could not be written is named, with the reason; returns the standard output.
#[track_caller]
fn told(outcome: Outcome, path: &str, reason: &str) -> String {
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    let message = format!("error: cannot write {path}: {reason}");
    assert!(
        outcome.stderr.lines().any(|line| line.starts_with(&message)),
        "{outcome:?}"
    );
    outcome.stdout
}

#[test]
fn a_full_disk_is_told_after_the_result_that_does_not_fit() {
    let reason = "No space left on device";
    let prompt = ["run", "demo", "What is 2 + 2?", "--temp", "0", "-n", "3"];
    let expected = run(&prompt).done();
    let saving = [&prompt[..], &["--save-state", FULL]].concat();
    assert_eq!(told(run(&saving), FULL, reason), expected);
    let bench = ["bench", "demo", "-p", "4", "-n", "2", "-r", "1", "--report", FULL];
    assert!(told(run(&bench), FULL, reason).contains("tg2"));
    let tokens = tempfile::NamedTempFile::new().unwrap();
    fs::write(tokens.path(), r#"{"input_ids": [[1, 2]]}"#).unwrap();
    let tokens = tokens.path().to_str().unwrap();
    told(
        run(&["logits", "demo", "--tokens", tokens, "--out", FULL]),
        FULL,
        reason,
    );
    let chat = run_with_input(&["chat", "demo"], format!("/save {FULL}\n").as_bytes());
    told(chat, FULL, reason);
    for printed in [&["tokenize", "demo", "x"][..], &["--help"], &["--version"]] {
        let outcome = with_standard_output_to(refrain(printed), FULL);
        assert_eq!(outcome.code, Some(1), "{printed:?}");
        assert!(
            outcome.stderr.contains("cannot write to the standard output"),
            "{outcome:?}"
        );
    }
}

fn with_standard_output_to(mut command: Command, path: &str) -> Outcome {
    let file = fs::File::options().write(true).open(path).unwrap();
    command.stdout(file).output().unwrap().into()
}

/// Runs the program where files may have no more than 256 KiB.
fn with_small_files(arguments: &[&str]) -> Outcome {
    let program = refrain(arguments);
    let mut shell = Command::new("sh");
    shell
        .args(["-c", "trap '' XFSZ; ulimit -f 512; exec \"$0\" \"$@\""])
        .arg(program.get_program())
        .args(program.get_args())
        .env("REFRAIN_DEVICE", "cpu");
    shell.output().unwrap().into()
}

#[test]
fn checkpoints_that_do_not_fit_leave_nothing() {
    let folder = tempfile::tempdir().unwrap();
    for (command, model, format) in [
        ("convert", "demo", "q8_0"),
        ("convert", "demo", "mlx8"),
        ("synth", "tiny:q8_0", ""),
        ("synth", "tiny:f16", ""),
    ] {
        let name = if model.ends_with("q8_0") || format == "q8_0" {
            "m.gguf"
        } else {
            "m"
        };
        let path = folder.path().join(name);
        let path = path.to_str().unwrap();
        let mut arguments = vec![command, model, path];
        if !format.is_empty() {
            arguments.extend(["--format", format]);
        }
        let out = told(with_small_files(&arguments), path, "File too large");
        assert_eq!(out, "");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "{arguments:?}");
    }
    let state = folder.path().join("state");
    let prompt = "sum ".repeat(100);
    let arguments = [
        "run",
        "demo",
        &prompt,
        "-n",
        "1",
        "--save-state",
        state.to_str().unwrap(),
    ];
    // Only a state is replaced by a state.
    run(&[
        "run",
        "demo",
        "Hello",
        "-n",
        "1",
        "--save-state",
        state.to_str().unwrap(),
    ])
    .done();
    let old = fs::read(&state).unwrap();
    let out = told(with_small_files(&arguments), state.to_str().unwrap(), "File too large");
    assert_ne!(out, "");
    assert!(fs::read(&state).unwrap() == old, "the old state was touched");
}

#[test]
fn a_device_is_not_replaced() {
    run(&["convert", "demo", FULL, "--format", "f16", "--force"]).failed(1, &[FULL, "neither a file nor a directory"]);
    assert!(!Path::new(FULL).is_file());
}
