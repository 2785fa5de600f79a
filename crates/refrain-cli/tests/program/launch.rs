//! `refrain launch`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::serve::Server;
use crate::support::{Outcome, refrain};

const AGENTS: [&str; 4] = ["claude", "codex", "opencode", "qwen"];

/// The program with `folder` for the records of running servers, and for agents.
fn launch(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = refrain(&[&["launch"], arguments].concat());
    command.env("XDG_RUNTIME_DIR", folder).env("REFRAIN_DEVICE", "cpu");
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{}:{path}", folder.display()));
    command
}

fn outcome(mut command: Command) -> Outcome {
    command.output().unwrap().into()
}

/// An agent that prints its arguments and environment, and what the server's health is.
fn write_agent(folder: &Path, name: &str) {
    let script = "#!/bin/sh\nfor word in \"$@\"; do echo \"argument $word\"; done\nenv\n\
                  test -z \"$ANTHROPIC_BASE_URL\" || curl -s \"$ANTHROPIC_BASE_URL/health\"\nexit 7\n";
    let path = folder.join(name);
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn prints_how_to_start_agents() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    outcome(launch(folder, &["claude"])).failed(2, &["no server is running"]);
    for agent in AGENTS {
        let text = outcome(launch(folder, &[agent, "demo", "--print", "--", "-p", "a b"])).done();
        let first = text.lines().next().unwrap();
        assert!(
            first.starts_with("refrain serve demo --ctx 1024 ")
                && first.contains(" --port 8080 ")
                && first.ends_with(" &"),
            "{text}"
        );
        assert!(
            text.contains("http://127.0.0.1:8080") && text.ends_with(" -p 'a b'\n"),
            "{text}"
        );
    }
    let mut command = refrain(&["serve", "demo", "--port", "0", "--device", "cpu", "-q"]);
    command.env("XDG_RUNTIME_DIR", folder);
    let server = Server::of(command);
    for agent in AGENTS {
        let text = outcome(launch(folder, &[agent, "--print"])).done();
        assert!(
            text.starts_with("# demo is served at http://") && text.contains(&server.address),
            "{text}"
        );
        assert!(
            text.contains(&format!("\n{agent}")) || text.contains(&format!("\\\n{agent}")),
            "{text}"
        );
    }
    let text = outcome(launch(folder, &["opencode", "--print"])).done();
    let config = text.split('\'').nth(1).expect("a quoted value");
    let config: Value = serde_json::from_str(config).expect(config);
    assert_eq!(config["model"], "refrain/demo");
    assert_eq!(
        config["provider"]["refrain"]["models"]["demo"]["limit"]["context"],
        1024
    );
}

#[test]
fn servers_that_need_a_key_are_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let start = |arguments: &[&str]| {
        let default = ["serve", "demo", "--port", "0", "--device", "cpu", "-q"];
        let mut command = refrain(&[&default, arguments].concat());
        command.env("XDG_RUNTIME_DIR", folder);
        Server::of(command)
    };
    let keyless = start(&[]);
    let keyed = start(&["--api-key", "SECRET"]);
    let text = outcome(launch(folder, &["qwen", "--print"])).done();
    assert!(text.contains(&keyless.address), "{text}");
    drop(keyless);
    let address = keyed.address.clone();
    outcome(launch(folder, &["qwen", "--print"])).failed(1, &[&address, "--api-key KEY"]);
}

#[test]
fn starts_an_agent_and_a_server_for_it() {
    if !refrain_testing::drawn(8) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    outcome(launch(folder, &["claude", "demo"])).failed(1, &["claude is not installed"]);
    write_agent(folder, "claude");
    let result = outcome(launch(folder, &["claude", "demo", "--", "-p", "Hi"]));
    assert_eq!(result.code, Some(7), "the agent's code: {result:?}");
    let lines: Vec<&str> = result.stdout.lines().collect();
    for line in [
        "argument --model",
        "argument demo",
        "argument -p",
        "argument Hi",
        "ANTHROPIC_AUTH_TOKEN=refrain",
    ] {
        assert!(lines.contains(&line), "no {line}: {result:?}");
    }
    assert!(
        result.stdout.contains("\"status\":\"ok\""),
        "the server answered: {result:?}"
    );
    let warning = "warning: demo has a context of 1024 tokens; agents need 32768 or more";
    assert!(result.stderr.contains(warning), "{result:?}");
    let mut listed = refrain(&["ps", "--json"]);
    listed.env("XDG_RUNTIME_DIR", folder);
    assert_eq!(outcome(listed).json(), Value::Array(vec![]), "the server has ended");
}
