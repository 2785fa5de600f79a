//! Models from a Hugging Face hub, here a fake one on this computer.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::fake_hub::{COMMIT, FakeHub, HubFault, etag};
use crate::support::{Outcome, fixture, refrain};

const REPO: &str = "acme/tiny";

/// A hub with one of the fixtures, and a user with an empty cache.
struct World {
    hub: FakeHub,
    cache: TempDir,
    files: Vec<(String, Vec<u8>)>,
}

impl World {
    fn new(fixture_name: &str) -> Self {
        let wanted = |path: &Path| !path.ends_with("logits.safetensors") && !path.ends_with("tokens.json");
        let entries = fs::read_dir(fixture(fixture_name))
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let file = |path: PathBuf| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, fs::read(path).unwrap())
        };
        Self::with(entries.filter(|path| wanted(path)).map(file).collect())
    }

    fn with(files: Vec<(String, Vec<u8>)>) -> Self {
        let borrowed: Vec<(&str, &[u8])> = files
            .iter()
            .map(|(name, content)| (name.as_str(), &content[..]))
            .collect();
        Self {
            hub: FakeHub::new(REPO, &borrowed),
            cache: tempfile::tempdir().unwrap(),
            files,
        }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = refrain(arguments);
        command
            .env("REFRAIN_DEVICE", "cpu")
            .env("HF_HUB_CACHE", self.cache.path())
            .env("HF_ENDPOINT", &self.hub.address)
            .env("HF_HUB_OFFLINE", "0")
            .env("HF_HUB_DOWNLOAD_TIMEOUT", "0.5")
            .env("REFRAIN_RETRY_WAIT", "0.02");
        command
    }

    fn run(&self, arguments: &[&str]) -> Outcome {
        self.command(arguments).output().unwrap().into()
    }

    /// The names that `refrain list` shows. Checks that each listed model has all its files, byte for byte.
    #[track_caller]
    fn listed(&self) -> Vec<String> {
        let list = self.run(&["list", "--json"]).json();
        let models = list["models"].as_array().unwrap().clone();
        let name = |model: &Value| {
            let path = PathBuf::from(model["path"].as_str().unwrap());
            let folder = if path.is_dir() { &path } else { path.parent().unwrap() };
            for (name, content) in &self.files {
                assert!(fs::read(folder.join(name)).unwrap() == *content, "{name} is not whole");
            }
            model["name"].as_str().unwrap().to_owned()
        };
        models.iter().map(name).collect()
    }
}

#[test]
fn first_run_downloads_a_model_for_all_commands() {
    let world = World::new("qwen3-bf16");
    let options = ["The cat", "--raw", "--temp", "0", "-n", "4"];
    let run = |model: &str| world.run(&[&["run", model], &options[..]].concat());
    let first = run(REPO);
    assert!(first.stderr.contains("pulling acme/tiny: "), "{first:?}");
    let local = fixture("qwen3-bf16");
    let expected = run(local.to_str().unwrap()).done();
    assert_eq!(first.done(), expected);
    assert_eq!(world.listed(), [REPO]);

    world.hub.take_requests();
    for name in [REPO, "tiny", "Acme/Tiny", "acme/tiny@main"] {
        let again = run(name);
        assert!(!again.stderr.contains("pulling"), "{again:?}");
        assert_eq!(again.done(), expected);
    }
    let ids = |model: &str| world.run(&["tokenize", model, "The cat"]).done();
    assert_eq!(ids("tiny"), ids(local.to_str().unwrap()));
    assert!(world.run(&["inspect", "tiny", "--no-device"]).done().contains("qwen3"));
    assert_eq!(world.hub.take_requests().len(), 0);
}

#[test]
fn selects_a_gguf_file_by_quantisation() {
    let (q4, q8) = (
        fixture("qwen3-gguf-q4_0/model.gguf"),
        fixture("qwen3-gguf-q8_0/model.gguf"),
    );
    let file = |name: &str, path: &Path| (name.to_owned(), fs::read(path).unwrap());
    let world = World::with(vec![file("m-Q4_0.gguf", &q4), file("m-Q8_0.gguf", &q8)]);
    let pulled = world.run(&["pull", REPO]);
    assert!(
        pulled.stderr.contains("using Q4_0") && pulled.stderr.contains("Q8_0"),
        "{pulled:?}"
    );
    let path = pulled.done();
    assert_eq!(fs::read(path.trim_end()).unwrap(), world.files[0].1);
    world.run(&["pull", "acme/tiny:q8_0", "--quiet"]).done();
    assert_eq!(world.listed(), ["acme/tiny:Q4_0", "acme/tiny:Q8_0"]);
    let text = world.run(&["list"]).done();
    assert!(text.contains("GGUF Q8_0"), "{text}");
    world
        .run(&["pull", "acme/tiny:Q2_K"])
        .failed(1, &["Q2_K", "Q4_0, Q8_0"]);
    let shown = world.run(&["inspect", "tiny:q8_0", "--no-device"]).done();
    assert!(shown.contains("Q8_0") && !shown.contains("Q4_0"), "{shown}");
}

/// Starts a pull and kills it when `when` returns true, unless it ends first.
fn pull_and_kill(world: &World, when: impl Fn() -> bool) {
    let mut command = world.command(&["pull", REPO]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while child.try_wait().unwrap().is_none() && !when() {
        thread::sleep(Duration::from_micros(200));
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn resumes_a_killed_download_and_never_lists_a_partial_one() {
    let world = World::new("llama-bf16-sharded");
    let (name, content) = world.files.iter().max_by_key(|(_, content)| content.len()).unwrap();
    let blobs = world.cache.path().join("models--acme--tiny/blobs");
    let partial = blobs.join(etag(content) + ".incomplete");
    let size = || fs::metadata(&partial).map_or(0, |found| found.len() as usize);
    for eighth in 1..8 {
        world.hub.fail(name, HubFault::Slow(content.len() / 50));
        pull_and_kill(&world, || size() >= content.len() * eighth / 8);
        assert_eq!(world.listed(), [""; 0]);
    }
    world.hub.take_requests();
    world.run(&["pull", REPO]).done();
    let seen = world.hub.take_requests();
    assert!(
        seen.iter()
            .any(|seen| seen.path.ends_with(name.as_str()) && seen.range.is_some()),
        "{seen:?}"
    );
    assert_eq!(world.listed(), [REPO]);
    assert!(
        fs::read_dir(blobs)
            .unwrap()
            .all(|entry| entry.unwrap().path().extension().is_none())
    );
}

#[test]
fn killed_download_leaves_a_complete_model_or_none() {
    let world = World::new("llama-bf16-sharded");
    let start = Instant::now();
    pull_and_kill(&world, || false);
    let whole = start.elapsed();
    assert_eq!(world.listed(), [REPO]);
    let mut found = 0;
    for step in 0..12 {
        fs::remove_dir_all(world.cache.path().join("models--acme--tiny")).unwrap_or_default();
        let start = Instant::now();
        pull_and_kill(&world, || start.elapsed() > whole * step / 10);
        found += world.listed().len();
        let refs = world.cache.path().join("models--acme--tiny/refs/main");
        assert_eq!(
            refs.exists(),
            world.run(&["inspect", REPO, "--no-device"]).code == Some(0)
        );
    }
    assert!(found < 12);
    world.run(&["pull", REPO]).done();
    assert_eq!(world.listed(), [REPO]);
}

#[test]
fn removes_models_after_confirmation() {
    let world = World::new("qwen3-bf16");
    world.run(&["pull", REPO]).done();
    world.run(&["rm", REPO]).failed(2, &["--yes", REPO]);
    assert_eq!(world.listed(), [REPO]);
    world
        .run(&["rm", "acme/other", "--yes"])
        .failed(1, &["acme/other", "refrain list"]);
    let removed = world.run(&["rm", "tiny", "--yes"]);
    assert!(removed.stderr.contains("removed acme/tiny ("), "{removed:?}");
    assert_eq!(world.listed(), [""; 0]);
    assert!(world.run(&["list"]).done().contains("no models in"));
}

#[test]
fn offline_mode_makes_no_requests() {
    let world = World::new("qwen3-bf16");
    for offline in [&["pull", REPO, "--offline"], &["run", "--offline", REPO]] {
        world.run(offline).failed(1, &[REPO, "offline"]);
    }
    let output = world
        .command(&["pull", REPO])
        .env("HF_HUB_OFFLINE", "1")
        .output()
        .unwrap();
    Outcome::from(output).failed(1, &["offline"]);
    assert_eq!(world.hub.take_requests().len(), 0);
    let path = world.run(&["pull", REPO]).done();
    assert!(path.trim_end().ends_with(COMMIT), "{path}");
    assert_eq!(world.run(&["pull", REPO, "--offline"]).done(), path);
}

#[test]
fn only_run_and_pull_download() {
    let world = World::new("qwen3-bf16");
    for command in [&["inspect", REPO][..], &["tokenize", REPO, "x"], &["bench", REPO]] {
        world.run(command).failed(1, &[REPO, "refrain pull acme/tiny"]);
    }
    for path in ["./acme/tiny", "acme/tiny.gguf", "a/b/c", "tiny"] {
        world.run(&["run", path, "hi"]).failed(1, &[path, "model not found"]);
    }
    assert_eq!(world.hub.take_requests().len(), 0);
}

#[test]
fn doctor_checks_a_hub_model_without_downloading_it() {
    if !refrain_testing::drawn(12) {
        return;
    }
    let models = [
        ("qwen3-bf16", ""),
        ("llama-bf16-sharded", ""),
        ("qwen3-mlx4", ""),
        ("llama-gguf-q4_0", "model.gguf"),
    ];
    for (name, file) in refrain_testing::sample(models, 6) {
        let world = World::new(name);
        let remote = world.run(&["doctor", REPO, "--json"]).json();
        let here = fixture(name).join(file);
        let known = world.run(&["doctor", here.to_str().unwrap(), "--json"]).json();
        for key in ["weight_bytes", "needed_bytes", "read_bytes_per_token", "context"] {
            assert_eq!(remote["model"][key], known["model"][key], "{name}: {key}");
        }
        assert_eq!(world.listed(), [""; 0], "{name}");
        assert!(fs::read_dir(world.cache.path()).unwrap().next().is_none(), "{name}");
        assert_eq!(known["model"]["download"], Value::Null, "{name}");
        world.run(&["pull", REPO, "--quiet"]).done();
        let list = world.run(&["list", "--json"]).json();
        assert_eq!(
            remote["model"]["download"]["bytes"], list["models"][0]["bytes"],
            "{name}"
        );
    }
    let world = World::new("qwen3-bf16");
    world
        .run(&["doctor", "acme/unknown"])
        .failed(1, &["acme/unknown", "spelling"]);
    world.run(&["doctor", REPO, "--offline"]).failed(1, &[REPO, "offline"]);
    world.run(&["pull", REPO]).done();
    world.hub.take_requests();
    world.run(&["doctor", REPO]).done();
    assert_eq!(
        world.hub.take_requests().len(),
        0,
        "downloaded models are not requested"
    );
}

#[test]
fn hub_errors_say_what_to_do() {
    let world = World::new("qwen3-bf16");
    world
        .run(&["pull", "acme/unknown"])
        .failed(1, &["acme/unknown", "spelling"]);
    world
        .hub
        .fail("/api/", HubFault::Status(401, "X-Error-Code: GatedRepo\r\n"));
    world.run(&["run", REPO, "hi"]).failed(1, &["licence", "HF_TOKEN"]);
    for name in ["acme/", "acme/tiny:", "a b", "a/b/c"] {
        world.run(&["pull", name]).failed(2, &[name, "ORG/NAME"]);
    }
}
