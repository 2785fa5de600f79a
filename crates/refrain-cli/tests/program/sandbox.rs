//! A directory in which the commands of help texts and of the guide run unchanged.

use std::fs;
use std::io::{Read, Seek};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::fake_hub::FakeHub;
use crate::support::{Outcome, fixture, refrain};

/// A user's directory with the files that the commands use, settings that keep everything inside it, and a hub that
/// serves one model under every name.
pub struct Sandbox(TempDir, FakeHub);

impl Sandbox {
    /// Creates a sandbox with models, prompts and conversations.
    pub fn new() -> Self {
        let sandbox_dir = Self(tempfile::tempdir().unwrap(), hub());
        let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../demo/model");
        for folder in ["Qwen3-0.6B", "Qwen3-0.6B-4bit", "tokenizer-files"] {
            fs::create_dir(sandbox_dir.path(folder)).unwrap();
            for file in fs::read_dir(&demo).unwrap().map(|entry| entry.unwrap().path()) {
                if folder != "tokenizer-files" || !file.to_string_lossy().ends_with("model.safetensors") {
                    fs::copy(&file, sandbox_dir.path(folder).join(file.file_name().unwrap())).unwrap();
                }
            }
        }
        fs::copy(demo.join("chat_template.jinja"), sandbox_dir.path("other.jinja")).unwrap();
        fs::copy(fixture("llama-gguf-q4_0/model.gguf"), sandbox_dir.path("model.gguf")).unwrap();
        for (name, text) in [
            ("question.txt", "What is 12 + 30?\n"),
            ("questions.txt", "What is 12 + 30?\nWhat is 5 + 4?\n"),
            ("story.txt", "Once upon a time there was a fox."),
            (
                "conversation.json",
                r#"[{"role": "user", "content": "What is 12 + 30?"}]"#,
            ),
            ("tokens.json", r#"{"input_ids": [[5, 6, 7, 8]]}"#),
        ] {
            fs::write(sandbox_dir.path(name), text).unwrap();
        }
        // `refrain launch` starts agents by name. The real ones are tested in `serve::agents`.
        let agents = sandbox_dir.path("agents");
        fs::create_dir(&agents).unwrap();
        std::os::unix::fs::symlink("/bin/true", agents.join("codex")).unwrap();
        sandbox_dir
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs a script in a shell; it ends with the first command that fails.
    pub fn shell(&self, script: &str) -> Outcome {
        let program = Path::new(env!("CARGO_BIN_EXE_refrain"));
        let path = std::env::var("PATH").unwrap_or_default();
        let folder = program.parent().unwrap().display();
        let agents = self.path("agents");
        let mut shell = Command::new("sh");
        // The environment of other tests: no user settings, the shared cache.
        for (name, value) in refrain(&[]).get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        shell.args(["-e", "-c", script]).current_dir(self.0.path());
        shell
            .env("PATH", format!("{folder}:{}:{path}", agents.display()))
            .env("REFRAIN_DEVICE", "cpu");
        shell
            .env("HOME", self.0.path())
            .env("XDG_RUNTIME_DIR", self.path("run"))
            .env("XDG_STATE_HOME", self.path("state"));
        shell.env("HF_HOME", self.path("hub")).env("HF_HUB_OFFLINE", "0");
        shell.env("HF_ENDPOINT", &self.1.address);
        outcome_of_group(&mut shell)
    }
}

/// Runs a command in its own process group and kills the group afterwards, so that a server left behind by a failing
/// script does not live on. After [`TIMEOUT`], it is killed with exit code 124, as by `timeout`.
fn outcome_of_group(command: &mut Command) -> Outcome {
    let [mut stdout, mut stderr] = [(); 2].map(|()| tempfile::tempfile().unwrap());
    command.stdin(Stdio::null()).process_group(0);
    command
        .stdout(stdout.try_clone().unwrap())
        .stderr(stderr.try_clone().unwrap());
    let mut child = command.spawn().unwrap();
    let began = Instant::now();
    let status = loop {
        match child.try_wait().unwrap() {
            None if began.elapsed() < TIMEOUT => thread::sleep(Duration::from_millis(5)),
            status => break status,
        }
    };
    let group = format!("kill -KILL -{} 2>&-", child.id());
    let _ = Command::new("sh").args(["-c", &group]).status();
    let _ = child.wait();
    let [stdout, stderr] = [&mut stdout, &mut stderr].map(|file| {
        let mut text = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut text).expect("the program writes UTF-8");
        text
    });
    let code = status.map_or(Some(124), |status| status.code());
    Outcome { code, stdout, stderr }
}

/// Time limit for a script of the documentation, on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(240);

/// A hub with a checkpoint and GGUF files of it.
fn hub() -> FakeHub {
    let checkpoint = [
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ];
    let mut files: Vec<(String, PathBuf)> = checkpoint
        .iter()
        .map(|name| ((*name).to_owned(), fixture("qwen3-bf16").join(name)))
        .collect();
    for quant in ["Q4_0", "Q8_0"] {
        let path = fixture(&format!("qwen3-gguf-{}", quant.to_lowercase())).join("model.gguf");
        files.push((format!("model-{quant}.gguf"), path));
    }
    let contents: Vec<Vec<u8>> = files.iter().map(|(_, path)| fs::read(path).unwrap()).collect();
    let named = files
        .iter()
        .zip(&contents)
        .map(|((name, _), content)| (name.as_str(), &content[..]));
    FakeHub::new(crate::fake_hub::ANY, &named.collect::<Vec<_>>())
}
