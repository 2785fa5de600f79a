//! The hub's cache on disk, as `huggingface_hub` lays it out:
//!
//! ```text
//! models--ORG--NAME/blobs/HASH               contents, named by their hash
//! models--ORG--NAME/snapshots/COMMIT/PATH    links to them, as the repository was at a commit
//! models--ORG--NAME/refs/BRANCH              which commit a branch or tag means
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

use crate::select::{self, NoChoice, WeightsKind};
use crate::{Error, ModelName};

/// The prefix of repositories that hold models; data sets have another.
const PREFIX: &str = "models--";

/// The models that are on this computer. Nothing here makes a request.
#[derive(Debug, Clone)]
pub struct HubCache {
    root: PathBuf,
}

/// A model in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachedModel {
    /// A name by which it is found again.
    pub name: ModelName,
    /// What it is stored as.
    pub kind: WeightsKind,
    /// What to open: the snapshot's directory, or a GGUF file in it (the first part of a split one).
    pub path: PathBuf,
    /// Bytes of its files.
    pub size: u64,
    /// When its newest file arrived.
    pub modified: Option<SystemTime>,
    /// Whether all of it is here.
    pub is_whole: bool,
    /// What the user should know about a choice that was made for them.
    pub notice: Option<String>,
}

impl HubCache {
    /// The cache in this directory, which need not exist yet.
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// The directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The model of this name, if all of it is here. A name without organisation is found if only one
    /// model has it.
    ///
    /// # Errors
    /// If several models fit, or the cache cannot be read.
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
            Err(NoChoice::Missing(_)) => return Ok(None),
            Err(NoChoice::Ambiguous(reason)) => {
                let repo = repository.name().to_owned();
                return Err(Error::Choice { repo, reason });
            }
        };
        let name = ModelName {
            repo: repository.name().to_owned(),
            ..name.clone()
        };
        let model = repository.model(name, &commit, &selection);
        Ok(Some(model).filter(|model| model.is_whole))
    }

    /// The repository of exactly this name, which need not exist yet.
    pub(crate) fn repository(&self, repo: &str) -> Repository {
        Repository::new(&self.root, repo)
    }

    /// Repositories that a user who writes `repo` may mean: the one of that name; else those whose name
    /// differs in the case of letters only; for a name without slash, those of any organisation.
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
