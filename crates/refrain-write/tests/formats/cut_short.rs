//! Files that are truncated by another process while they are read.

#![cfg(unix)]

use std::fs::File;
use std::process::Command;

use refrain_formats::report_truncated_files;
use refrain_models::Checkpoint;
use refrain_write::synthetic;

/// Names the file for [`child_reads_a_truncated_file`].
const FILE: &str = "REFRAIN_TEST_CUT_SHORT";

/// The child process of [`truncated_files_end_the_program_with_a_message`]; passes if run on its own.
#[test]
fn child_reads_a_truncated_file() {
    let Some(path) = std::env::var_os(FILE) else { return };
    report_truncated_files();
    // Another file, which stays whole, must not be blamed.
    let other = Checkpoint::synthetic("tiny:f16").unwrap();
    let checkpoint = Checkpoint::open(path.as_ref()).unwrap();
    File::options().write(true).open(&path).unwrap().set_len(4096).unwrap();
    for checkpoint in [&other, &checkpoint] {
        for info in checkpoint.tensors() {
            let _ = checkpoint.tensor(&info.name).unwrap().dequantise();
        }
    }
    println!("read all");
}

#[test]
fn truncated_files_end_the_program_with_a_message() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    synthetic::write("tiny:q8_0", &path, &|_| std::ops::ControlFlow::Continue(())).unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "cut_short::child_reads_a_truncated_file", "--nocapture"])
        .env(FILE, &path)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let message = String::from_utf8(output.stderr).unwrap();
    let expected = format!(
        "error: cannot read {}: it was truncated while it was being read",
        path.display()
    );
    assert!(message.lines().any(|line| line == expected), "{message}");
}
