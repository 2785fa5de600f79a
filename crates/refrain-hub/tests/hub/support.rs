//! A fresh cache for each test.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use refrain_hub::{AccessToken, CachedModel, Error, Hub, HubCache, HubSettings, ModelName, Watcher};
use tempfile::TempDir;

use crate::fake::FakeHub;

pub const REPO: &str = "acme/tiny";

/// Pseudo-random bytes.
pub fn random_bytes(length: usize, seed: u32) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as u8
    };
    (0..length).map(|_| next()).collect()
}

/// A user's settings and cache.
pub struct TestUser {
    pub settings: HubSettings,
    home: TempDir,
}

impl TestUser {
    pub fn of(hub: &FakeHub) -> Self {
        let home = tempfile::tempdir().unwrap();
        let settings = HubSettings {
            endpoint: hub.address.clone(),
            cache: home.path().join("hub"),
            token: None,
            offline: false,
            links: true,
            read_timeout: Duration::from_millis(300),
            initial_backoff: Duration::from_millis(10),
        };
        Self { settings, home }
    }

    pub fn with_token(mut self) -> Self {
        let (value, source) = ("hf_secret".to_owned(), "HF_TOKEN".to_owned());
        self.settings.token = Some(AccessToken { value, source });
        self
    }

    pub fn pull(&self, name: &str) -> Result<CachedModel, Error> {
        self.pull_watched(name, &())
    }

    pub fn pull_watched(&self, name: &str, watcher: &dyn Watcher) -> Result<CachedModel, Error> {
        let hub = Hub::new(self.settings.clone());
        let plan = hub.plan(&name.parse::<ModelName>().unwrap(), watcher)?;
        hub.download(&plan, watcher)
    }

    pub fn find(&self, name: &str) -> Option<CachedModel> {
        self.cache().find(&name.parse().unwrap()).unwrap()
    }

    pub fn cache(&self) -> HubCache {
        HubCache::new(&self.settings.cache)
    }

    pub fn repository(&self) -> PathBuf {
        self.settings.cache.join("models--acme--tiny")
    }

    pub fn blob(&self, etag: &str) -> PathBuf {
        self.repository().join("blobs").join(etag)
    }

    /// Every path below the cache except locks, with the targets of links.
    pub fn tree(&self) -> Vec<String> {
        let mut found = Vec::new();
        walk(&self.settings.cache, &self.settings.cache, &mut found);
        found.sort();
        found
    }

    pub fn home(&self) -> &Path {
        self.home.path()
    }
}

fn walk(root: &Path, folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.strip_prefix(root).unwrap().display().to_string();
        match fs::read_link(&path) {
            Ok(target) => found.push(format!("{name} -> {}", target.display())),
            Err(_) if name == ".locks" => {}
            Err(_) if path.is_dir() => walk(root, &path, found),
            Err(_) => found.push(name),
        }
    }
}

/// Records all reports.
#[derive(Default)]
pub struct RecordingWatcher {
    pub lines: Mutex<Vec<String>>,
    pub positions: Mutex<Vec<(u64, u64)>>,
}

impl Watcher for RecordingWatcher {
    fn progress(&self, done: u64, total: u64) {
        self.positions.lock().unwrap().push((done, total));
    }

    fn notice(&self, line: &str) {
        self.lines.lock().unwrap().push(line.to_owned());
    }
}
