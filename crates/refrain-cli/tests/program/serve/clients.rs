//! Others' programs ask the server: those of `tests/clients`, with what `ci/setup` puts into `target/clients`.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use refrain_testing::in_ci;

use super::Server;
use crate::support::run;

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
        assert!(!in_ci(), "{missing} is not here: run ci/setup");
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
    let several = super::several::two(&[]);
    page.arg(format!("http://{}", server.address)).arg(folder.path());
    page.arg(format!("http://{}", several.address));
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

#[test]
fn a_server_with_a_certificate_speaks_tls_and_waits_for_no_handshake() {
    let file = |name: &str| root().join("tests/clients/localhost").join(name).display().to_string();
    let (certificate, key) = (file("certificate.pem"), file("key.pem"));
    let refused = run(&[
        "serve",
        "demo",
        "--tls-cert",
        &key,
        "--tls-key",
        &certificate,
        "--port",
        "0",
    ]);
    assert!(
        refused.code == Some(1) && refused.stderr.contains("key.pem holds no certificate"),
        "{refused:?}"
    );
    let server = Server::start(&["--tls-cert", &certificate, "--tls-key", &key]);
    // Who says nothing keeps nobody waiting.
    let silent = TcpStream::connect(&server.address).expect("connects");
    let mut client = Command::new("python3");
    let script = "import ssl, sys, urllib.request as r\n\
                  context = ssl.create_default_context(cafile=sys.argv[2])\n\
                  assert b'ok' in r.urlopen(f'https://{sys.argv[1]}/health', context=context).read()\n\
                  try: r.urlopen(f'https://{sys.argv[1]}/health')\n\
                  except r.URLError as error: assert 'CERTIFICATE' in str(error), error\n\
                  else: raise SystemExit('whom does it trust?')";
    client.args(["-c", script, &server.address, &certificate]);
    succeeds(client);
    drop(silent);
    assert_eq!(server.end("-TERM"), Some(0));
}
