//! One repository of the cache.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{CachedModel, PREFIX, link};
use crate::Error;
use crate::name::{ModelName, is_commit};
use crate::select::{File, INDEX, Selection, WeightsKind};

/// A repository's folder in the cache, and the folder of its locks.
#[derive(Debug, Clone)]
pub(crate) struct Repository {
    name: String,
    pub(super) folder: PathBuf,
    pub(super) locks: PathBuf,
}

impl Repository {
    pub(super) fn new(root: &Path, repo: &str) -> Self {
        let folder = format!("{PREFIX}{}", repo.replace('/', "--"));
        Self {
            name: repo.to_owned(),
            folder: root.join(&folder),
            locks: root.join(".locks").join(&folder),
        }
    }

    /// ORG/NAME.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Folder of the blobs.
    pub fn blobs(&self) -> PathBuf {
        self.folder.join("blobs")
    }

    /// The lock that `huggingface_hub` holds while it downloads this blob.
    pub fn blob_lock(&self, blob: &str) -> PathBuf {
        self.locks.join(format!("{blob}.lock"))
    }

    /// The lock held during the download of a model.
    pub fn lock(&self) -> PathBuf {
        self.locks.join("refrain.lock")
    }

    pub(super) fn snapshot(&self, commit: &str) -> PathBuf {
        self.folder.join("snapshots").join(commit)
    }

    /// Resolves a revision to a commit of the cache.
    pub fn commit(&self, revision: &str) -> Result<Option<String>, Error> {
        if is_commit(revision) {
            return Ok(self.snapshot(revision).is_dir().then(|| revision.to_owned()));
        }
        let path = self.folder.join("refs").join(revision);
        match fs::read_to_string(&path) {
            Ok(commit) => Ok(Some(commit.trim().to_owned()).filter(|commit| is_commit(commit))),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::IsADirectory) => Ok(None),
            Err(error) => Err(Error::io("read", &path)(error)),
        }
    }

    /// Lists the files of a snapshot whose contents are cached, sorted by path.
    pub fn files(&self, commit: &str) -> Result<Vec<File>, Error> {
        let root = self.snapshot(commit);
        let mut files = Vec::new();
        let mut folders = vec![String::new()];
        while let Some(folder) = folders.pop() {
            for name in names(&root.join(&folder))? {
                let path = format!("{folder}{name}");
                // This follows links: a dangling link is not a file.
                match fs::metadata(root.join(&path)) {
                    Ok(found) if found.is_dir() => folders.push(format!("{path}/")),
                    Ok(found) => files.push(File {
                        size: found.len(),
                        path,
                    }),
                    Err(_) => {}
                }
            }
        }
        files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        Ok(files)
    }

    /// Returns the model of a selection of a snapshot's files.
    pub fn model(&self, name: ModelName, commit: &str, selection: &Selection) -> CachedModel {
        let root = self.snapshot(commit);
        let found: Vec<fs::Metadata> = selection
            .files
            .iter()
            .filter_map(|path| fs::metadata(root.join(path)).ok())
            .collect();
        let shards_are_here = match selection.kind {
            WeightsKind::Safetensors => shards(&root).iter().all(|shard| root.join(shard).is_file()),
            WeightsKind::Gguf(_) => true,
        };
        CachedModel {
            name,
            kind: selection.kind.clone(),
            path: match selection.entry() {
                "" => root,
                entry => root.join(entry),
            },
            size: found.iter().map(fs::Metadata::len).sum(),
            modified: found.iter().filter_map(|file| file.modified().ok()).max(),
            is_complete: found.len() == selection.files.len() && shards_are_here,
            notice: selection.notice.clone(),
        }
    }

    /// Makes a blob a file of a snapshot: by a symbolic link if `links`, else by moving it.
    pub fn publish(&self, blob: &Path, commit: &str, path: &str, links: bool) -> Result<(), Error> {
        let pointer = self.pointer(commit, path);
        if links {
            link::link(blob, &pointer, 2 + path.matches('/').count())
        } else {
            link::move_blob(blob, &pointer)
        }
    }

    /// Copies a file of a snapshot to another path with the same content, on systems without links.
    pub fn copy(&self, commit: &str, from: &str, to: &str) -> Result<(), Error> {
        let (from, to) = (self.pointer(commit, from), self.pointer(commit, to));
        link::copy(&from, &to)
    }

    /// The path of a file in a snapshot.
    pub fn pointer(&self, commit: &str, path: &str) -> PathBuf {
        self.snapshot(commit).join(path)
    }

    /// Points a branch or tag to a commit: the last step of a download.
    pub fn set_ref(&self, revision: &str, commit: &str) -> Result<(), Error> {
        if is_commit(revision) {
            return Ok(());
        }
        let path = self.folder.join("refs").join(revision);
        let folder = path.parent().unwrap_or(&path);
        fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
        let new = folder.join(format!(".{}.new", std::process::id()));
        let written = fs::File::create(&new).and_then(|mut file| {
            file.write_all(commit.as_bytes())?;
            file.sync_all()
        });
        written
            .and_then(|()| fs::rename(&new, &path))
            .map_err(Error::io("write", &path))?;
        link::sync_folder(folder);
        Ok(())
    }

    /// Syncs the snapshot's links to disk.
    pub fn sync(&self, commit: &str) {
        link::sync_folder(&self.blobs());
        link::sync_folder(&self.snapshot(commit));
    }

    /// Lists the cached commits, sorted.
    pub fn commits(&self) -> Result<Vec<String>, Error> {
        let mut commits = names(&self.folder.join("snapshots"))?;
        commits.retain(|name| is_commit(name));
        commits.sort_unstable();
        Ok(commits)
    }

    /// Lists the cached branches and tags, sorted.
    pub fn refs(&self) -> Result<Vec<String>, Error> {
        let root = self.folder.join("refs");
        let mut refs = Vec::new();
        let mut folders = vec![String::new()];
        while let Some(folder) = folders.pop() {
            for name in names(&root.join(&folder))? {
                let path = format!("{folder}{name}");
                if name.starts_with('.') {
                    continue;
                }
                if root.join(&path).is_dir() {
                    folders.push(format!("{path}/"))
                } else {
                    refs.push(path)
                }
            }
        }
        refs.sort_unstable();
        Ok(refs)
    }
}

/// Lists the names in a folder; empty if there is no such folder. Skips names that are not UTF-8, which this crate
/// never writes.
pub(super) fn names(folder: &Path) -> Result<Vec<String>, Error> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::io("read", folder)(error)),
    };
    let name = |entry: io::Result<fs::DirEntry>| Ok(entry?.file_name().into_string().ok());
    let names: io::Result<Vec<Option<String>>> = entries.map(name).collect();
    Ok(names
        .map_err(Error::io("read", folder))?
        .into_iter()
        .flatten()
        .collect())
}

/// Reads a small file. Returns an empty vector if it is missing, not a regular file, or too large.
pub(super) fn read_text(path: &Path) -> Vec<u8> {
    /// Same limit as the header of a safetensors file.
    const MAX_BYTES: u64 = 100_000_000;
    // Check the type before opening: opening a pipe would block.
    match fs::metadata(path) {
        Ok(found) if found.is_file() && found.len() <= MAX_BYTES => fs::read(path).unwrap_or_default(),
        _ => Vec::new(),
    }
}

/// Lists the weight files of the index, if there is a readable one.
fn shards(snapshot: &Path) -> BTreeSet<String> {
    if snapshot.join("model.safetensors").is_file() {
        return BTreeSet::new();
    }
    let text = read_text(&snapshot.join(INDEX));
    let index: Value = serde_json::from_slice(&text).unwrap_or_default();
    let map = index.get("weight_map").and_then(Value::as_object);
    let files = map.into_iter().flatten().filter_map(|(_, file)| file.as_str());
    files.map(str::to_owned).collect()
}
