//! Tests of `bench/table.py`, with a small table on the CPU executor.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::{Outcome, refrain};

/// Runs the script with a table in `folder`; `None` without Python, which is an error in CI.
fn measure(folder: &Path, table: &Value, arguments: &[&str]) -> Option<Outcome> {
    if Command::new("python3").arg("--version").output().is_err() {
        refrain_testing::skip("python3 is not installed");
        return None;
    }
    fs::write(folder.join("table.json"), table.to_string()).unwrap();
    let mut command = Command::new("python3");
    // With the environment that tests run the program in.
    for (name, value) in refrain(&[]).get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.env("PYTHONDONTWRITEBYTECODE", "1").current_dir(folder);
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/table.py"));
    command.args(["--refrain", env!("CARGO_BIN_EXE_refrain"), "--device", "cpu"]);
    command.args(["--table", "table.json"]).args(arguments);
    Some(command.output().unwrap().into())
}

fn report(folder: &Path, name: &str) -> Value {
    serde_json::from_slice(&fs::read(folder.join(name)).unwrap()).unwrap()
}

#[test]
fn second_run_is_compared_with_the_first_and_both_are_kept() {
    if !refrain_testing::drawn(12) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let table = json!({
        "peak_tflops": { "CPU": 1000 },
        "runs": [
            { "model": "synthetic:tiny:q4_0", "arguments": "-p 16 -n 2 -b 1,2 -r 1", "wanted": { "pp16": 1, "tg2": 1e12 } },
            { "model": "synthetic:tiny:q8_0", "arguments": "-p 16 -n 0 -r 1", "seconds": 1e9, "wanted": { "pp16": 5 } },
        ],
        "times": [{ "model": "synthetic:tiny:q4_0", "batches": "tg2", "most": 1e12 }],
    });
    let Some(first) = measure(folder.path(), &table, &["--out", "first.json"]) else {
        return;
    };
    let printed = first.done();
    for line in [
        "| tiny:q4_0 pp16 | ",
        " % of 1000 TFLOP/s | ≥ 1 | met |",
        "| tiny:q4_0 tg2 b2 | ",
        " % of bandwidth | ≥ 1,000,000,000,000.0 | missed |",
        "| tiny:q4_0 tg2 b2 / tg2 | ",
        "target not measured: synthetic:tiny:q8_0 pp16: ≥ 5",
        "not measured: synthetic:tiny:q8_0 -p 16 -n 0 -r 1: takes about 1000000000.0 s",
    ] {
        assert!(printed.contains(line), "no {line:?} in {printed}");
    }
    let arguments = ["--before", "first.json", "--out", "both.json"];
    let printed = measure(folder.path(), &table, &arguments).unwrap().done();
    assert!(
        printed.contains("| row | tokens/s | before | change | share of limit |"),
        "{printed}"
    );
    let (first, both) = (report(folder.path(), "first.json"), report(folder.path(), "both.json"));
    let (rows, all) = (first["rows"].as_array().unwrap(), both["rows"].as_array().unwrap());
    assert_eq!((rows.len(), all.len()), (4, 8));
    assert_eq!(all[..4], rows[..]);
    assert_eq!(both["starts"].as_array().unwrap().len(), 2);
    assert_eq!(both["starts"][0], first["starts"][0]);
    assert!(all.iter().all(|row| row["date"].is_string()), "{all:?}");
}

#[test]
fn reports_and_fails_on_a_model_that_cannot_be_measured() {
    let folder = tempfile::tempdir().unwrap();
    let table = json!({ "runs": [
        { "model": "synthetic:tiny:none", "arguments": "-n 0" },
        { "model": "synthetic:tiny:q4_0", "arguments": "-p 16 -n 0 -r 1" },
    ] });
    let Some(outcome) = measure(folder.path(), &table, &["--out", "rows.json"]) else {
        return;
    };
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    let reply = "not measured: synthetic:tiny:none -n 0: error: ";
    assert!(outcome.stdout.contains(reply), "{outcome:?}");
    assert_eq!(report(folder.path(), "rows.json")["rows"].as_array().unwrap().len(), 1);
}
