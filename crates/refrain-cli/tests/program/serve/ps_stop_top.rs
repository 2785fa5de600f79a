//! `refrain ps`, `refrain stop` and `refrain top`.

use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Server, chat};
use crate::support::{Outcome, refrain};

/// Runs the program with its own runtime directory.
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
fn lists_and_stops_servers_by_name_and_forgets_killed_ones() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    outcome(folder, &["stop"]).failed(1, &["no server is running"]);
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

#[test]
fn top_prints_one_sample_without_a_terminal() {
    if !refrain_testing::drawn(8) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    assert!(outcome(folder, &["top"]).done().contains("refrain serve"));
    assert_eq!(outcome(folder, &["top", "--json"]).json(), json!([]));
    outcome(folder, &["top", "three"]).failed(1, &["three", "refrain ps"]);
    outcome(folder, &["top", "--interval", "0"]).failed(2, &["--interval"]);
    let socket = format!("unix:{}", folder.join("socket").display());
    let start = |name: &str, arguments: &[&str]| {
        let default = ["serve", "demo", "--port", "0", "--device", "cpu", "-q", "--alias", name];
        let mut command = refrain(&[&default, arguments].concat());
        command.env("XDG_RUNTIME_DIR", folder);
        command
    };
    let one = Server::of(start("one", &["--api-key", "SECRET"]));
    let child = start("two", &["--host", &socket])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut other = Server {
        child,
        address: socket.clone(),
    };
    refrain_testing::wait_until("both are listed", || names(folder).len() >= 2);
    let text = outcome(folder, &["top", "--interval", "0.1"]).done();
    let row = |word: &str| text.lines().find(|line| line.contains(word)).expect(&text).to_owned();
    assert!(
        row(&one.address).contains("--api-key KEY") && row("two").contains(&socket),
        "{text}"
    );
    assert!(text.starts_with("MODEL ") && !text.contains('\x1b'), "{text}");

    // The metrics show the requests.
    let key = "authorization: Bearer SECRET\r\n";
    let printed = thread::scope(|scope| {
        let (one, begun) = (&one, Instant::now());
        let mut question = chat("What is 12 + 30?");
        question["model"] = "one".into();
        let ask = move || one.ask("POST", "/v1/chat/completions", key, &question.to_string());
        let asks = scope.spawn(move || {
            while begun.elapsed() < Duration::from_secs(2) {
                assert_eq!(ask().0, 200);
            }
        });
        let printed = outcome(folder, &["top", "one", "--json", "--api-key", "SECRET"]).json();
        asks.join().unwrap();
        printed
    });
    assert_eq!(printed.as_array().unwrap().len(), 1, "{printed}");
    let (load, number) = (&printed[0], |name: &str| printed[0][name].as_f64().expect(name));
    assert_eq!(load["model"], "one");
    assert!(
        number("tokens_per_s") > 0.0 && number("prompt_tokens_per_s") > 0.0,
        "{load}"
    );
    assert!(number("first_token_s") > 0.0 && number("cache_use") <= 1.0, "{load}");
    assert!(outcome(folder, &["stop", "--all"]).done().is_empty());
    assert!(other.child.wait().unwrap().success());
    let gone = ["top", &socket, "--once", "--interval", "0.1"];
    outcome(folder, &gone).failed(1, &[&socket, "cannot connect"]);
}

#[test]
fn top_verifies_https_certificates() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let clients = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/clients/localhost");
    let file = |name: &str| clients.join(name).display().to_string();
    let (certificate, key) = (file("certificate.pem"), file("key.pem"));
    let default = [
        "serve",
        "demo",
        "--port",
        "0",
        "--device",
        "cpu",
        "-q",
        "--tls-cert",
        &certificate,
    ];
    let mut command = refrain(&[&default[..], &["--tls-key", &key]].concat());
    command.env("XDG_RUNTIME_DIR", folder);
    let server = Server::of(command);
    let top = |folder: &Path, arguments: &[&str]| {
        outcome(folder, &[&["top", "--interval", "0.1", "--once"], arguments].concat())
    };
    assert!(top(folder, &[]).done().contains("RUNNING"));
    // Without its record, the certificate is unknown.
    let (elsewhere, address) = (folder.join("elsewhere"), format!("https://{}", server.address));
    top(&elsewhere, &[&address]).failed(1, &["--tls-cert"]);
    let reply = top(&elsewhere, &[&address, "--tls-cert", &certificate]).done();
    assert!(reply.contains("RUNNING"), "{reply}");
    let other = folder.join("other.pem");
    let text = std::fs::read_to_string(&certificate).unwrap();
    let at = text.len() / 2;
    let letter = if &text[at..=at] == "A" { "B" } else { "A" };
    std::fs::write(&other, format!("{}{letter}{}", &text[..at], &text[at + 1..])).unwrap();
    let other = other.to_str().unwrap();
    top(&elsewhere, &[&address, "--tls-cert", other]).failed(1, &["another certificate"]);
    top(&elsewhere, &[&address, "--tls-cert", &key]).failed(1, &["holds no certificate"]);
}
