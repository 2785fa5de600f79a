//! `refrain ps` and `refrain stop`.

use std::path::Path;

use serde_json::Value;

use super::Server;
use crate::support::{Outcome, refrain};

/// Runs the program with a folder of its own for what runs.
fn outcome(folder: &Path, arguments: &[&str]) -> Outcome {
    let mut command = refrain(arguments);
    command.env("XDG_RUNTIME_DIR", folder).output().expect("runs").into()
}

fn names(folder: &Path) -> Vec<String> {
    let Value::Array(servers) = outcome(folder, &["ps", "--json"]).json() else {
        panic!("not a list");
    };
    let name = |server: &Value| server["model"].as_str().expect("a name").to_owned();
    servers.iter().map(name).collect()
}

#[test]
fn servers_are_listed_and_ended_by_name_and_those_that_were_killed_are_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    outcome(folder, &["stop"]).failed(1, &["no server"]);
    assert!(outcome(folder, &["ps"]).done().contains("refrain serve"));
    let start = |name: &str| {
        let mut command = refrain(&["serve", "demo", "--port", "0", "--device", "cpu", "-q", "--alias", name]);
        command.env("XDG_RUNTIME_DIR", folder);
        Server::of(command)
    };
    let (mut one, two) = (start("one"), start("two"));
    let mut both = names(folder);
    both.sort();
    assert_eq!(both, ["one", "two"]);
    let listed = outcome(folder, &["ps"]).done();
    assert!(listed.contains(&one.address) && listed.contains("just now"), "{listed}");
    outcome(folder, &["stop"]).failed(2, &["several servers", "--all"]);
    outcome(folder, &["stop", "three"]).failed(1, &["three", "refrain ps"]);
    let port = one.address.rsplit(':').next().unwrap();
    assert!(outcome(folder, &["stop", port]).stderr.contains("stopped one"));
    assert!(one.child.wait().unwrap().success());
    assert_eq!(names(folder), ["two"]);
    two.end("-KILL");
    assert!(names(folder).is_empty());
    assert_eq!(std::fs::read_dir(folder.join("refrain")).unwrap().count(), 0);
}
