//! Full disks: `/dev/full`, and limits on file sizes.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::{Outcome, refrain, run, run_with_input};

const FULL: &str = "/dev/full";

/// Checks that the error names the path and the reason; returns the standard output.
#[track_caller]
fn write_error(outcome: Outcome, path: &str, reason: &str) -> String {
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    let message = format!("error: cannot write {path}: {reason}");
    assert!(
        outcome.stderr.lines().any(|line| line.starts_with(&message)),
        "{outcome:?}"
    );
    outcome.stdout
}

#[test]
fn reports_a_full_disk_after_showing_the_result() {
    let reason = "No space left on device";
    let prompt = ["run", "demo", "What is 2 + 2?", "--temp", "0", "-n", "3"];
    let expected = run(&prompt).done();
    let saving = [&prompt[..], &["--save-state", FULL]].concat();
    assert_eq!(write_error(run(&saving), FULL, reason), expected);
    let bench = ["bench", "demo", "-p", "4", "-n", "2", "-r", "1", "--report", FULL];
    assert!(write_error(run(&bench), FULL, reason).contains("tg2"));
    let tokens = tempfile::NamedTempFile::new().unwrap();
    fs::write(tokens.path(), r#"{"input_ids": [[1, 2]]}"#).unwrap();
    let tokens = tokens.path().to_str().unwrap();
    write_error(
        run(&["logits", "demo", "--tokens", tokens, "--out", FULL]),
        FULL,
        reason,
    );
    let chat = run_with_input(&["chat", "demo"], format!("/save {FULL}\n").as_bytes());
    write_error(chat, FULL, reason);
    for printed in [&["tokenize", "demo", "x"][..], &["--help"], &["--version"]] {
        let outcome = with_standard_output_to(refrain(printed), FULL);
        assert_eq!(outcome.code, Some(1), "{printed:?}");
        assert!(
            outcome.stderr.contains("cannot write to standard output"),
            "{outcome:?}"
        );
    }
}

fn with_standard_output_to(mut command: Command, path: &str) -> Outcome {
    let file = fs::File::options().write(true).open(path).unwrap();
    command.stdout(file).output().unwrap().into()
}

/// Runs the program with files limited to 256 KiB.
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
fn checkpoints_that_do_not_fit_leave_no_files() {
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
        let out = write_error(with_small_files(&arguments), path, "File too large");
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
    // Only a state file is replaced by a state file.
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
    let out = write_error(with_small_files(&arguments), state.to_str().unwrap(), "File too large");
    assert_ne!(out, "");
    assert!(fs::read(&state).unwrap() == old, "the old state was touched");
}

#[test]
fn does_not_replace_a_device() {
    run(&["convert", "demo", FULL, "--format", "f16", "--force"]).failed(1, &[FULL, "neither a file nor a directory"]);
    assert!(!Path::new(FULL).is_file());
}
