//! Others' programs ask the server: those of `tests/clients`, with what `ci/setup` puts into `target/clients`.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::Server;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A script of `tests/clients`. A test without what it needs is left out with a word, but fails in CI.
fn client(script: &str, programs: &[&str]) -> Option<Command> {
    let packages = root().join("target/clients");
    let is_there = |program: &&str| Command::new(program).arg("--version").output().is_ok();
    let missing = programs.iter().find(|program| !is_there(program)).copied();
    let missing = missing.or((!packages.join("requirements.txt").exists()).then_some("target/clients"));
    if let Some(missing) = missing {
        let in_ci = std::env::var("CI").is_ok_and(|value| value == "true");
        assert!(!in_ci, "{missing} is not here: run ci/setup");
        eprintln!("{script} is left out: {missing} is not here (ci/setup)");
        return None;
    }
    let mut command = Command::new("python3");
    command.arg(root().join("tests/clients").join(script));
    command.env("PYTHONPATH", packages);
    Some(command)
}

fn succeeds(mut command: Command) {
    let outcome = command.output().expect("python3 runs");
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        outcome.status.success(),
        "{}{}",
        said(&outcome.stdout),
        said(&outcome.stderr)
    );
}

#[test]
fn people_converse_on_the_page() {
    let Some(mut page) = client("page.py", &["python3", "chromium"]) else {
        return;
    };
    let server = Server::start(&[]);
    let folder = tempfile::tempdir().expect("a folder");
    page.arg(format!("http://{}", server.address)).arg(folder.path());
    succeeds(page);
}

#[test]
fn clients_of_every_interface_hear_the_same_answer() {
    let Some(mut interfaces) = client("interfaces.py", &["python3"]) else {
        return;
    };
    let server = Server::start(&["--api-key", "SECRET"]);
    interfaces.arg(format!("http://{}", server.address)).arg("SECRET");
    succeeds(interfaces);
}

#[test]
fn a_gateway_sends_what_began_alike_to_one_of_two_replicas_and_goes_on_without_it() {
    let Some(mut gateway) = client("gateway.py", &["python3"]) else {
        return;
    };
    gateway.arg(env!("CARGO_BIN_EXE_refrain"));
    succeeds(gateway);
}
