//! The systemd unit of the Debian package, and the container.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::serve::Server;
use crate::support::{refrain, run};

const PROGRAM: &str = "/usr/bin/refrain";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ci/service")
}

fn unit() -> String {
    fs::read_to_string(folder().join("refrain.service")).unwrap()
}

/// The values of a key of the unit.
fn values<'a>(unit: &'a str, key: &'a str) -> impl Iterator<Item = &'a str> {
    let lines = unit.lines().filter_map(|line| line.split_once('='));
    lines.filter(move |(name, _)| *name == key).map(|(_, value)| value)
}

#[test]
fn systemd_accepts_the_unit() {
    let sandbox_dir = tempfile::tempdir().unwrap();
    let path = sandbox_dir.path().join("refrain.service");
    // It checks that the program exists.
    fs::write(&path, unit().replace(PROGRAM, env!("CARGO_BIN_EXE_refrain"))).unwrap();
    let verify = Command::new("systemd-analyze")
        .args(["verify", "--man=no"])
        .arg(&path)
        .output();
    let found = verify.expect("systemd-analyze, which ci/setup installs");
    let printed = String::from_utf8_lossy(&found.stderr);
    assert!(found.status.success() && printed.is_empty(), "{printed}");
}

#[test]
fn installed_service_serves_and_uses_only_its_own_directories() {
    let sandbox_dir = tempfile::tempdir().unwrap();
    let below = |text: &str| {
        let specifiers = [("%S", "lib"), ("%C", "cache"), ("%t", "run")];
        specifiers.iter().fold(text.to_owned(), |text, (specifier, name)| {
            text.replace(specifier, sandbox_dir.path().join(name).to_str().unwrap())
        })
    };
    let unit = unit();
    for (key, name) in [
        ("StateDirectory", "lib"),
        ("CacheDirectory", "cache"),
        ("RuntimeDirectory", "run"),
    ] {
        let folder = sandbox_dir.path().join(name).join(values(&unit, key).next().unwrap());
        fs::create_dir_all(folder).unwrap();
    }
    let defaults = fs::read_to_string(folder().join("refrain.default")).unwrap();
    let mut command = values(&unit, "ExecStart").next().unwrap().to_owned();
    for (name, value) in defaults.lines().filter_map(|line| line.split_once('=')) {
        command = command.replace(&format!("${name}"), value.trim_matches('"'));
    }
    let arguments = command.strip_prefix(PROGRAM).unwrap().split_whitespace();
    let arguments: Vec<&str> = arguments.chain(["--port", "0", "--device", "cpu"]).collect();
    let mut command = refrain(&arguments);
    command.env_clear();
    for setting in values(&unit, "Environment").flat_map(str::split_whitespace) {
        let (name, value) = setting.split_once('=').unwrap();
        command.env(name, below(value));
    }
    let server = Server::of(command);
    assert_eq!(server.get("/health").0, 200);
    let notes = fs::read_dir(sandbox_dir.path().join("run/refrain")).unwrap().count();
    assert_eq!(notes, 1, "for `refrain ps`");
    for name in ["lib", "cache", "run"] {
        let beside = fs::read_dir(sandbox_dir.path().join(name)).unwrap();
        let names: Vec<_> = beside.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["refrain"], "{name}");
    }
}

#[test]
fn container_listens_on_the_exposed_port() {
    let file = fs::read_to_string(folder().join("../Containerfile")).unwrap();
    let value = |name: &str| file.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim();
    let words = |name: &str| -> Vec<String> { serde_json::from_str(value(name)).unwrap() };
    let command = [words("ENTRYPOINT"), words("CMD")].concat();
    assert_eq!(command[0], "refrain");
    let port = value("EXPOSE");
    let help = run(&["serve", "-h"]).done();
    assert!(help.contains(&format!("[default: {port}]")), "{help}");
    let mut arguments: Vec<&str> = command[1..].iter().map(String::as_str).collect();
    arguments.extend(["--port", "0", "--device", "cpu", "-q"]);
    let server = Server::of(refrain(&arguments));
    assert!(server.address.starts_with("0.0.0.0:"), "{}", server.address);
    assert_eq!(server.get("/health").0, 200);
}
