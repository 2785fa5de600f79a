//! Client programs of `tests/clients` against the server, with the packages that `ci/setup` puts below `target`.

mod agents;
mod frameworks;
mod schemathesis;

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Server;
use crate::support::run;

/// A folder of installed packages below `target`.
#[derive(Debug, Clone, Copy)]
struct Packages {
    folder: &'static str,
    /// The file of `tests/clients` that pins them.
    pins: &'static str,
    /// Its copy in `folder`, which `ci/setup` makes last.
    installed: &'static str,
}

/// Python clients, the newest version of each.
const PYTHON: Packages = Packages {
    folder: "clients",
    pins: "requirements.txt",
    installed: "requirements.txt",
};

/// Python clients that need version 2 of OpenAI's.
const PYTHON_OPENAI_2: Packages = Packages {
    folder: "clients-openai-2",
    pins: "requirements-openai-2.txt",
    installed: "requirements-openai-2.txt",
};

/// JavaScript clients, and coding agents.
const NPM: Packages = Packages {
    folder: "clients-npm",
    pins: "npm/package-lock.json",
    installed: "installed.json",
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

impl Packages {
    fn path(self) -> PathBuf {
        root().join("target").join(self.folder)
    }

    /// Whether these packages, as they are pinned now, and some programs are installed. It is an error in CI if they
    /// are not.
    fn are_installed_with(self, programs: &[&str]) -> bool {
        let is_there = |program: &&str| Command::new(program).arg("--version").output().is_ok();
        let missing = programs.iter().find(|program| !is_there(program)).copied();
        let installed = fs::read(self.path().join(self.installed)).ok();
        let is_current = installed == fs::read(root().join("tests/clients").join(self.pins)).ok();
        let missing = missing.map(str::to_owned);
        let missing = missing.or((!is_current).then(|| format!("target/{} in its pinned version", self.folder)));
        if let Some(missing) = &missing {
            refrain_testing::skip(&format!("{missing} is missing (run ci/setup)"));
        }
        missing.is_none()
    }

    /// A Python script of `tests/clients` with these packages. `None`, which is an error in CI, if a program or package
    /// that it needs is missing.
    fn script(self, script: &str, programs: &[&str]) -> Option<Command> {
        if !self.are_installed_with(&[&["python3"], programs].concat()) {
            return None;
        }
        let mut command = Command::new("python3");
        command.arg(root().join("tests/clients").join(script));
        command.env("PYTHONPATH", self.path());
        Some(command)
    }
}

#[track_caller]
fn succeeds(mut command: Command) -> String {
    let outcome = command.output().expect("the program runs");
    let reply = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (reply(&outcome.stdout), reply(&outcome.stderr));
    assert!(outcome.status.success(), "{stdout}{stderr}");
    stdout
}

#[test]
fn chat_page_works_in_a_browser() {
    if !refrain_testing::drawn(12) {
        return;
    }
    let Some(mut page) = PYTHON.script("page.py", &["chromium"]) else {
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
    if !refrain_testing::drawn(12) {
        return;
    }
    let Some(mut interfaces) = PYTHON.script("interfaces.py", &[]) else {
        return;
    };
    let server = Server::start(&["--api-key", "SECRET"]);
    interfaces.arg(format!("http://{}", server.address)).arg("SECRET");
    succeeds(interfaces);
}

#[test]
fn gateway_routes_by_prefix_and_survives_a_lost_replica() {
    if !refrain_testing::drawn(6) {
        return;
    }
    let Some(mut gateway) = PYTHON.script("gateway.py", &[]) else {
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
