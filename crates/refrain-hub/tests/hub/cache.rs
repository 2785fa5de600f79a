//! The cache after downloads: its layout, finding, listing and removing models.

use std::fs;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use refrain_hub::{ModelName, WeightsKind};

use crate::fake::{COMMIT, FakeHub, HubFault, etag};
use crate::support::{REPO, RecordingWatcher, TestUser, random_bytes};

const LATER_COMMIT: &str = "89abcdef0123456789abcdef0123456789abcdef";

struct FakeCheckpoint {
    weights: [Vec<u8>; 2],
    index: Vec<u8>,
    config: Vec<u8>,
}

impl FakeCheckpoint {
    fn new(seed: u32) -> Self {
        let index =
            br#"{"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}"#;
        Self {
            weights: [random_bytes(40_000, seed), random_bytes(50_000, seed + 1)],
            index: index.to_vec(),
            config: br#"{"dtype": "bfloat16"}"#.to_vec(),
        }
    }

    fn files(&self) -> Vec<(&str, &[u8])> {
        vec![
            (".gitattributes", b"not wanted"),
            ("README.md", b"not wanted"),
            ("config.json", &self.config),
            ("model-00001-of-00002.safetensors", &self.weights[0]),
            ("model-00002-of-00002.safetensors", &self.weights[1]),
            ("model.safetensors.index.json", &self.index),
            ("tokenizer.json", b"{}"),
        ]
    }
}

fn remove(user: &TestUser, name: &str) -> u64 {
    let removal = user.cache().removal(&name.parse().unwrap()).unwrap().unwrap();
    let bytes = removal.bytes;
    removal.run().unwrap();
    bytes
}

fn names(user: &TestUser) -> Vec<String> {
    user.cache()
        .list()
        .unwrap()
        .models
        .iter()
        .map(|model| model.name.to_string())
        .collect()
}

/// `references/hub_cache.py` compares this layout with `huggingface_hub`'s.
#[cfg(unix)]
#[test]
fn checkpoint_layout_matches_huggingface_hub() {
    let checkpoint = FakeCheckpoint::new(1);
    let user = TestUser::of(&FakeHub::new(REPO, &checkpoint.files()));
    let model = user.pull(REPO).unwrap();
    let root = "models--acme--tiny";
    let mut expected = vec![format!("{root}/refs/main")];
    for (name, content) in checkpoint
        .files()
        .into_iter()
        .filter(|(_, content)| *content != b"not wanted")
    {
        expected.push(format!("{root}/blobs/{}", etag(content)));
        expected.push(format!(
            "{root}/snapshots/{COMMIT}/{name} -> ../../blobs/{}",
            etag(content)
        ));
    }
    expected.sort();
    assert_eq!(user.tree(), expected);
    assert_eq!(fs::read_to_string(user.repository().join("refs/main")).unwrap(), COMMIT);
    assert_eq!(
        (model.kind.clone(), model.format().as_str()),
        (WeightsKind::Safetensors, "bfloat16")
    );
    assert_eq!(model.path, user.repository().join("snapshots").join(COMMIT));
    assert_eq!(user.find(REPO), Some(model));
}

#[cfg(unix)]
#[test]
fn shards_in_folders_are_linked_and_opened_by_the_first() {
    let parts = [random_bytes(2000, 1), random_bytes(3000, 2)];
    let files = [
        ("Q8_0/m-Q8_0-00001-of-00002.gguf", &parts[0][..]),
        ("Q8_0/m-Q8_0-00002-of-00002.gguf", &parts[1]),
    ];
    let user = TestUser::of(&FakeHub::new(REPO, &files));
    let model = user.pull("acme/tiny:q8_0").unwrap();
    assert!(model.path.ends_with("Q8_0/m-Q8_0-00001-of-00002.gguf"));
    let second = model.path.with_file_name("m-Q8_0-00002-of-00002.gguf");
    assert_eq!(fs::read(second).unwrap(), parts[1]);
    assert_eq!(model.size, 5000);
    assert_eq!(names(&user), ["acme/tiny:Q8_0"]);
}

#[test]
fn without_links_snapshots_hold_the_contents() {
    let (weights, same) = (random_bytes(2000, 1), random_bytes(700, 2));
    let files = [
        ("config.json", &same[..]),
        ("model.safetensors", &weights),
        ("tokenizer.json", &same),
    ];
    let hub = FakeHub::new(REPO, &files);
    let mut user = TestUser::of(&hub);
    user.settings.links = false;
    let model = user.pull(REPO).unwrap();
    for (name, content) in files {
        let path = model.path.join(name);
        assert!(fs::symlink_metadata(&path).unwrap().is_file());
        assert_eq!(fs::read(path).unwrap(), content);
    }
    assert_eq!(user.tree().len(), 4, "three files and the branch: {:?}", user.tree());
    hub.take_requests();
    assert_eq!(user.pull(REPO).unwrap(), model);
    assert_eq!(hub.take_requests().len(), 1, "only the listing was requested");
    assert_eq!(remove(&user, &format!("{REPO}@main")), 3400);
    assert_eq!(user.tree(), Vec::<String>::new());
}

#[test]
fn names_match_in_any_case_and_without_organisation_if_unambiguous() {
    let hub = FakeHub::new(REPO, &[("m-Q4_0.gguf", &random_bytes(2000, 1))]);
    let mut user = TestUser::of(&hub);
    user.pull(REPO).unwrap();
    for name in ["tiny", "Tiny:q4_0", "ACME/tiny", "acme/tiny@main"] {
        let found = user.find(name).expect(name);
        assert_eq!(found.name.repo, REPO);
    }
    for name in ["acme/tiny:Q8_0", "acme/tin", "tiny@v1"] {
        assert_eq!(user.find(name), None, "{name}");
    }
    let other = FakeHub::new("other/tiny", &[("m-Q4_0.gguf", &random_bytes(2000, 1))]);
    user.settings.endpoint = other.address.clone();
    user.pull("other/tiny").unwrap();
    let error = user.cache().find(&"tiny".parse().unwrap()).unwrap_err().to_string();
    assert!(error.contains("acme/tiny, other/tiny"), "{error}");
    assert!(user.find(REPO).is_some());
}

#[test]
fn completes_partial_checkpoints_of_other_programs() {
    let checkpoint = FakeCheckpoint::new(1);
    let hub = FakeHub::new(REPO, &checkpoint.files());
    let user = TestUser::of(&hub);
    let model = user.pull(REPO).unwrap();
    for part in [
        "model-00002-of-00002.safetensors",
        "model-00001-of-00002.safetensors",
        "config.json",
    ] {
        fs::remove_file(model.path.join(part)).unwrap();
        assert_eq!(user.find(REPO), None, "{part}");
        assert_eq!(names(&user).len(), 0);
        hub.take_requests();
        assert_eq!(user.pull(REPO).unwrap(), model);
        assert_eq!(hub.take_requests().len(), 1, "only the listing was requested");
    }
    fs::remove_file(user.blob(&etag(&checkpoint.weights[1]))).unwrap();
    assert_eq!(user.find(REPO), None);
    user.pull(REPO).unwrap();
    assert_eq!(hub.take_requests().len(), 2);
}

#[test]
fn new_commit_downloads_only_changed_files() {
    let (old, mut new) = (FakeCheckpoint::new(1), FakeCheckpoint::new(1));
    new.weights[1] = random_bytes(60_000, 9);
    let hub = FakeHub::new(REPO, &old.files());
    let user = TestUser::of(&hub);
    user.pull(REPO).unwrap();
    hub.commit(LATER_COMMIT, &new.files());
    hub.take_requests();
    let newer = user.pull(REPO).unwrap();
    let paths: Vec<String> = hub.take_requests().into_iter().map(|seen| seen.path).collect();
    assert!(
        paths.len() == 2 && paths[1].ends_with("00002-of-00002.safetensors"),
        "{paths:?}"
    );
    assert_eq!(user.find(REPO), Some(newer));
    assert_eq!(names(&user), [format!("{REPO}@{COMMIT}"), REPO.to_owned()]);

    // Blobs that the newer commit shares stay.
    assert_eq!(remove(&user, &format!("{REPO}@{COMMIT}")), 50_000);
    assert_eq!(names(&user), [REPO]);
    assert!(user.blob(&etag(&old.weights[0])).exists() && !user.blob(&etag(&old.weights[1])).exists());
    remove(&user, REPO);
    assert_eq!(user.tree(), Vec::<String>::new());
}

#[test]
fn removing_a_quantisation_keeps_the_others() {
    let (small, large) = (random_bytes(2000, 1), random_bytes(3000, 2));
    let user = TestUser::of(&FakeHub::new(REPO, &[("m-Q4_0.gguf", &small), ("m-Q8_0.gguf", &large)]));
    user.pull("acme/tiny:Q4_0").unwrap();
    user.pull("acme/tiny:Q8_0").unwrap();
    assert_eq!(names(&user), ["acme/tiny:Q4_0", "acme/tiny:Q8_0"]);
    assert!(user.find(REPO).unwrap().notice.unwrap().contains("Q4_0"));
    assert_eq!(remove(&user, "tiny:q8_0"), 3000);
    assert_eq!(names(&user), ["acme/tiny:Q4_0"]);
    assert!(!user.blob(&etag(&large)).exists());
    let absent = user.cache().removal(&"acme/tiny:Q8_0".parse().unwrap()).unwrap();
    assert!(absent.is_none());
    assert_eq!(remove(&user, "acme/tiny:Q4_0"), 2000);
    assert_eq!(user.tree(), Vec::<String>::new());
}

#[test]
fn revisions_are_separate() {
    let hub = FakeHub::new(REPO, &[("m-Q4_0.gguf", &random_bytes(2000, 1))]);
    let user = TestUser::of(&hub);
    let model = user.pull("acme/tiny@refs/pr/1").unwrap();
    assert!(hub.take_requests()[0].path.contains("/revision/refs%2Fpr%2F1?"));
    assert_eq!(user.find(REPO), None);
    assert_eq!(names(&user), ["acme/tiny:Q4_0@refs/pr/1"]);
    let commit = format!("acme/tiny@{COMMIT}");
    assert_eq!(user.find(&commit).unwrap().path, model.path);
}

#[test]
fn model_in_download_is_neither_removed_nor_downloaded_twice() {
    let content = random_bytes(200_000, 1);
    let hub = FakeHub::new(REPO, &[("m-Q4_0.gguf", &content)]);
    let user = TestUser::of(&hub);
    hub.fail("m-Q4_0", HubFault::Slow(250));
    let first = RecordingWatcher::default();
    thread::scope(|scope| {
        scope.spawn(|| user.pull_watched(REPO, &first).unwrap());
        while first.positions.lock().unwrap().len() < 3 {
            thread::sleep(Duration::from_millis(1));
        }
        let removal = user
            .cache()
            .removal(&REPO.parse::<ModelName>().unwrap())
            .unwrap()
            .unwrap();
        let error = removal.run().unwrap_err().to_string();
        assert!(error.contains("being downloaded"), "{error}");
        let interrupted = user.cache().list().unwrap().interrupted;
        assert_eq!(interrupted.len(), 1);
        let second = RecordingWatcher::default();
        user.pull_watched(REPO, &second).unwrap();
        let lines: Mutex<Vec<String>> = second.lines;
        assert!(lines.lock().unwrap()[0].contains("waiting"));
    });
    let contents = hub
        .take_requests()
        .into_iter()
        .filter(|seen| seen.path.contains("resolve"))
        .count();
    assert_eq!(contents, 1);
    assert_eq!(fs::read(user.find(REPO).unwrap().path).unwrap(), content);
    assert!(user.home().exists());
}

#[test]
fn partial_files_are_removed_once_the_blob_is_complete() {
    let content = random_bytes(20_000, 1);
    let user = TestUser::of(&FakeHub::new(REPO, &[("m-Q4_0.gguf", &content)]));
    let leftover = |blob: &str| user.blob(&format!("{blob}.0a1b2c3d.incomplete"));
    let (known, other) = (leftover(&etag(&content)), leftover(&"0".repeat(64)));
    fs::create_dir_all(user.blob("")).unwrap();
    let interrupted = || user.cache().list().unwrap().interrupted;
    for left in [&known, &other] {
        fs::write(left, [0; 100]).unwrap();
    }
    assert_eq!(interrupted(), [(REPO.to_owned(), 200)]);
    user.pull(REPO).unwrap();
    assert!(
        !known.exists() && other.exists(),
        "only partial files of complete blobs are removed"
    );
    fs::write(&known, [0; 100]).unwrap();
    assert_eq!(interrupted(), [(REPO.to_owned(), 100)]);
    user.pull(REPO).unwrap();
    assert!(!known.exists());
}
