//! The hub's cache on disk, in the layout of `huggingface_hub`:
//!
//! ```text
//! models--ORG--NAME/blobs/HASH               file contents, named by their hash
//! models--ORG--NAME/snapshots/COMMIT/PATH    links to blobs: the repository at one commit
//! models--ORG--NAME/refs/BRANCH              the commit of a branch or tag
//! .locks/models--ORG--NAME/HASH.lock         held while that blob is downloaded
//! ```

mod link;
mod list;
mod lock;
mod remove;
mod repository;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

pub use list::List;
pub(crate) use lock::Lock;
pub use remove::Removal;
pub(crate) use repository::Repository;

use crate::select::{self, SelectError, WeightsKind};
use crate::{Error, ModelName};

/// The prefix of repositories that hold models; data sets have another.
const PREFIX: &str = "models--";

/// The models on this computer. Never makes a request.
#[derive(Debug, Clone)]
pub struct HubCache {
    root: PathBuf,
}

/// A model in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachedModel {
    /// Name that finds this model again.
    pub name: ModelName,
    /// Format of the weights.
    pub kind: WeightsKind,
    /// What to open: the snapshot's directory, or a GGUF file in it (the first shard of a split one).
    pub path: PathBuf,
    /// Total size of its files in bytes.
    pub size: u64,
    /// Modification time of its newest file.
    pub modified: Option<SystemTime>,
    /// Whether all its files are present.
    pub is_complete: bool,
    /// Message for the user about a default choice, such as the quantisation.
    pub notice: Option<String>,
}

impl HubCache {
    /// Returns the cache in this directory, which need not exist yet.
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// The directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the complete model of this name. A name without organisation must match exactly one model.
    ///
    /// # Errors
    /// If several models match, or the cache cannot be read.
    pub fn find(&self, name: &ModelName) -> Result<Option<CachedModel>, Error> {
        let mut found = Vec::new();
        for repository in self.repositories_called(&name.repo)? {
            if let Some(model) = self.find_in(&repository, name)? {
                found.push(model);
            }
        }
        match found.len() {
            0 | 1 => Ok(found.pop()),
            _ => Err(Error::Ambiguous {
                name: name.to_string(),
                candidates: found.iter().map(|model| model.name.to_string()).collect(),
            }),
        }
    }

    fn find_in(&self, repository: &Repository, name: &ModelName) -> Result<Option<CachedModel>, Error> {
        let Some(commit) = repository.commit(name.revision())? else {
            return Ok(None);
        };
        let files = repository.files(&commit)?;
        let selection = match select::select(&files, name.quant.as_deref()) {
            Ok(selection) => selection,
            Err(SelectError::Missing(_)) => return Ok(None),
            Err(SelectError::Ambiguous(reason)) => {
                let repo = repository.name().to_owned();
                return Err(Error::Selection { repo, reason });
            }
        };
        let name = ModelName {
            repo: repository.name().to_owned(),
            ..name.clone()
        };
        let model = repository.model(name, &commit, &selection);
        Ok(Some(model).filter(|model| model.is_complete))
    }

    /// Returns the repository of exactly this name, which need not exist yet.
    pub(crate) fn repository(&self, repo: &str) -> Repository {
        Repository::new(&self.root, repo)
    }

    /// Returns the repositories that match `repo`: the exact name; else names that differ only in case; for a name
    /// without a slash, those of any organisation.
    fn repositories_called(&self, repo: &str) -> Result<Vec<Repository>, Error> {
        let all = self.repositories()?;
        let (exact, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|found| found.name() == repo);
        if !exact.is_empty() {
            return Ok(exact);
        }
        let fits = |found: &Repository| {
            let name = found.name();
            let last = name.rsplit('/').next().unwrap_or(name);
            name.eq_ignore_ascii_case(repo) || last.eq_ignore_ascii_case(repo)
        };
        Ok(others.into_iter().filter(fits).collect())
    }

    /// All repositories of models, sorted by name.
    fn repositories(&self) -> Result<Vec<Repository>, Error> {
        let entries = match fs::read_dir(&self.root) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(Error::io("read", &self.root)(error)),
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(Error::io("read", &self.root))?;
            let folder = entry.file_name();
            let name = folder.to_str().and_then(|folder| folder.strip_prefix(PREFIX));
            if let Some(name) = name.filter(|_| entry.path().is_dir()) {
                names.push(name.replace("--", "/"));
            }
        }
        names.sort_unstable();
        Ok(names.iter().map(|name| self.repository(name)).collect())
    }
}
