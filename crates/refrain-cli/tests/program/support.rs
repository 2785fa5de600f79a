//! Runs the program, and makes damaged copies of fixtures.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// Exit code and output of a run.
#[derive(Debug)]
pub struct Outcome {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Outcome {
    /// Checks for success; returns the standard output.
    #[track_caller]
    pub fn done(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.stdout
    }

    /// Checks for failure with this exit code, one error message that contains all of `words`, and empty standard
    /// output.
    #[track_caller]
    pub fn failed(self, code: i32, words: &[&str]) {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert_eq!(self.stdout, "", "{self:?}");
        let errors = self.stderr.lines().filter(|line| line.starts_with("error: "));
        assert_eq!(errors.count(), 1, "{self:?}");
        assert!(!self.stderr.contains("has a bug"), "{self:?}");
        for word in words {
            assert!(self.stderr.contains(word), "no {word:?} in {:?}", self.stderr);
        }
    }

    pub fn json(self) -> Value {
        serde_json::from_str(&self.done()).expect("the standard output is one JSON value")
    }
}

impl From<Output> for Outcome {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("the program writes UTF-8");
        Self {
            code: output.status.code(),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }
}

/// The program without the user's settings and with empty standard input.
pub fn refrain(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_refrain"));
    command.args(arguments).stdin(Stdio::null());
    for name in [
        "REFRAIN_DEVICE",
        "REFRAIN_DISABLE",
        "NO_COLOR",
        "HF_HUB_CACHE",
        "HF_HOME",
        "HF_TOKEN",
    ] {
        command.env_remove(name);
    }
    command.env("NO_PROXY", "127.0.0.1");
    command.env("HF_HUB_OFFLINE", "1");
    // Shared by the tests, so that each shader is compiled once, by Mesa too.
    for name in ["XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "MESA_SHADER_CACHE_DIR"] {
        command.env(name, env!("CARGO_TARGET_TMPDIR"));
    }
    command
}

/// Runs the program on the CPU executor.
#[track_caller]
pub fn run(arguments: &[&str]) -> Outcome {
    refrain(arguments).env("REFRAIN_DEVICE", "cpu").output().unwrap().into()
}

/// Runs the program on the CPU executor with `input` on standard input.
pub fn run_with_input(arguments: &[&str], input: &[u8]) -> Outcome {
    let mut command = refrain(arguments);
    command.env("REFRAIN_DEVICE", "cpu").stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap().into()
}

/// The path of a fixture.
pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/fixtures")
        .join(name)
}

/// A copy of a fixture that a test may damage; dropping it removes it.
pub struct Copy(TempDir);

impl Copy {
    pub fn of(name: &str) -> Self {
        let copy = tempfile::tempdir().unwrap();
        for entry in fs::read_dir(fixture(name)).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
        }
        Self(copy)
    }

    pub fn path(&self) -> &str {
        self.0.path().to_str().unwrap()
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn remove(&self, name: &str) {
        fs::remove_file(self.file(name)).unwrap();
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.file(name), content).unwrap();
    }

    pub fn change(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = fs::read(self.file(name)).unwrap();
        change(&mut bytes);
        self.write(name, bytes);
    }

    pub fn change_json(&self, name: &str, change: impl FnOnce(&mut Value)) {
        let mut value = serde_json::from_slice(&fs::read(self.file(name)).unwrap()).unwrap();
        change(&mut value);
        self.write(name, value.to_string());
    }

    /// Changes the header of a safetensors file and keeps its data.
    pub fn change_header(&self, name: &str, change: impl FnOnce(&mut Value)) {
        self.change(name, |bytes| {
            let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
            let mut header = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
            change(&mut header);
            let header = header.to_string().into_bytes();
            let data = bytes.split_off(8 + length);
            *bytes = [&(header.len() as u64).to_le_bytes()[..], &header, &data].concat();
        });
    }

    /// Computes logits of the fixture's tokens with the copy.
    #[track_caller]
    pub fn logits(&self, model: &str) -> Outcome {
        let model = self.file(model);
        let (tokens, out) = (self.file("tokens.json"), self.file("out.safetensors"));
        let paths = [&model, &tokens, &out].map(|path| path.to_str().unwrap());
        run(&["logits", paths[0], "--tokens", paths[1], "--out", paths[2]])
    }
}
