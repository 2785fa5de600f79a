//! Client programs of `tests/clients` against the server, with the packages that `ci/setup` puts into `target/clients`.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Server;
use crate::support::run;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A script of `tests/clients`. `None`, which is an error in CI, if a program or package that it needs is missing.
fn client(script: &str, programs: &[&str]) -> Option<Command> {
    let packages = root().join("target/clients");
    let is_there = |program: &&str| Command::new(program).arg("--version").output().is_ok();
    let missing = programs.iter().find(|program| !is_there(program)).copied();
    let missing = missing.or((!packages.join("requirements.txt").exists()).then_some("target/clients"));
    if let Some(missing) = missing {
        refrain_testing::skip(&format!("{missing} is missing (run ci/setup)"));
        return None;
    }
    let mut command = Command::new("python3");
    command.arg(root().join("tests/clients").join(script));
    command.env("PYTHONPATH", packages);
    Some(command)
}

fn succeeds(mut command: Command) {
    let outcome = command.output().expect("python3 runs");
    let reply = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        outcome.status.success(),
        "{}{}",
        reply(&outcome.stdout),
        reply(&outcome.stderr)
    );
}

#[test]
fn chat_page_works_in_a_browser() {
    let Some(mut page) = client("page.py", &["python3", "chromium"]) else {
        return;
    };
    let server = Server::start(&[]);
    let folder = tempfile::tempdir().expect("a folder");
    let multiple_models = super::multiple_models::two(&[]);
    page.arg(format!("http://{}", server.address)).arg(folder.path());
    page.arg(format!("http://{}", multiple_models.address));
    succeeds(page);
}

#[test]
fn clients_of_every_api_get_the_same_answer() {
    let Some(mut interfaces) = client("interfaces.py", &["python3"]) else {
        return;
    };
    let server = Server::start(&["--api-key", "SECRET"]);
    interfaces.arg(format!("http://{}", server.address)).arg("SECRET");
    succeeds(interfaces);
}

#[test]
fn gateway_routes_by_prefix_and_survives_a_lost_replica() {
    let Some(mut gateway) = client("gateway.py", &["python3"]) else {
        return;
    };
    gateway.arg(env!("CARGO_BIN_EXE_refrain"));
    succeeds(gateway);
}

#[test]
fn serves_tls_without_blocking_on_handshakes() {
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
    // A silent client does not block others.
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
