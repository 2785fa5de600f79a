//! Removes models from the cache.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{HubCache, Lock, Repository};
use crate::select::{self, SelectError};
use crate::{Error, ModelName};

/// A planned removal.
#[derive(Debug)]
pub struct Removal {
    /// Full name of the model.
    pub name: ModelName,
    /// Bytes that the removal frees.
    pub bytes: u64,
    repository: Repository,
    scope: Scope,
}

#[derive(Debug)]
enum Scope {
    Repository,
    /// All files of a snapshot, or some.
    Snapshot {
        commit: String,
        files: Vec<String>,
        is_all: bool,
    },
}

impl HubCache {
    /// Plans the removal of a model. Removes nothing yet. Returns `None` if there is no such model.
    ///
    /// - Without quantisation and revision: everything cached of its repository.
    /// - With a revision: that snapshot.
    /// - With a quantisation: that model's files.
    ///
    /// Blobs that another snapshot uses stay.
    ///
    /// # Errors
    /// If several models match the name, or the cache cannot be read.
    pub fn removal(&self, name: &ModelName) -> Result<Option<Removal>, Error> {
        let mut repositories = self.repositories_called(&name.repo)?;
        if repositories.len() > 1 {
            return Err(Error::Ambiguous {
                name: name.to_string(),
                candidates: repositories.iter().map(|found| found.name().to_owned()).collect(),
            });
        }
        let Some(repository) = repositories.pop() else {
            return Ok(None);
        };
        let Some(scope) = scope(&repository, name)? else {
            return Ok(None);
        };
        Ok(Some(Removal {
            name: ModelName {
                repo: repository.name().to_owned(),
                ..name.clone()
            },
            bytes: freed(&repository, &scope)?,
            repository,
            scope,
        }))
    }
}

impl Removal {
    /// Removes the model. If this is interrupted, every model left is found complete or not at all.
    ///
    /// # Errors
    /// If a program is downloading the model, or the system refuses to remove a file.
    pub fn run(self) -> Result<(), Error> {
        let repository = &self.repository;
        let busy = || Error::Busy {
            repo: repository.name().to_owned(),
        };
        let _own = Lock::take(&repository.lock())?.ok_or_else(busy)?;
        let _others = Lock::take_all(&repository.locks, &repository.lock())?.ok_or_else(busy)?;
        match &self.scope {
            Scope::Repository => {
                // Remove names before contents.
                for part in ["refs", "snapshots"] {
                    remove_folder(&repository.folder.join(part))?;
                }
                remove_folder(&repository.folder)
            }
            Scope::Snapshot { commit, files, is_all } => {
                let unused = unused_blobs(repository, commit, files)?;
                if *is_all {
                    remove_refs(repository, commit)?;
                }
                for path in files {
                    remove_file(&repository.pointer(commit, path))?;
                }
                if *is_all {
                    remove_folder(&repository.snapshot(commit))?;
                }
                unused.iter().try_for_each(|blob| remove_file(blob))
            }
        }
    }
}

fn scope(repository: &Repository, name: &ModelName) -> Result<Option<Scope>, Error> {
    if name.quant.is_none() && name.revision.is_none() {
        return Ok(Some(Scope::Repository));
    }
    let Some(commit) = repository.commit(name.revision())? else {
        return Ok(None);
    };
    let present = repository.files(&commit)?;
    let files: Vec<String> = match &name.quant {
        None => present.iter().map(|file| file.path.clone()).collect(),
        Some(quant) => match select::select(&present, Some(quant)) {
            Ok(selection) => selection.files,
            Err(SelectError::Missing(_)) => return Ok(None),
            Err(SelectError::Ambiguous(reason)) => {
                let repo = repository.name().to_owned();
                return Err(Error::Selection { repo, reason });
            }
        },
    };
    let is_all = files.len() == present.len();
    Ok(Some(Scope::Snapshot { commit, files, is_all }))
}

/// Bytes that the removal frees.
fn freed(repository: &Repository, scope: &Scope) -> Result<u64, Error> {
    let own_size = |path: &Path| {
        let found = fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file);
        found.map_or(0, |found| found.len())
    };
    match scope {
        Scope::Repository => {
            let blobs = repository.blobs();
            let names = super::repository::names(&blobs)?;
            let mut bytes: u64 = names.iter().map(|name| own_size(&blobs.join(name))).sum();
            for commit in repository.commits()? {
                let files = repository.files(&commit)?;
                bytes += files
                    .iter()
                    .map(|file| own_size(&repository.pointer(&commit, &file.path)))
                    .sum::<u64>();
            }
            Ok(bytes)
        }
        Scope::Snapshot { commit, files, .. } => {
            let blobs = unused_blobs(repository, commit, files)?;
            let copies = files.iter().map(|path| own_size(&repository.pointer(commit, path)));
            Ok(copies.chain(blobs.iter().map(|blob| own_size(blob))).sum())
        }
    }
}

/// Blobs that only these files of a snapshot link to.
fn unused_blobs(repository: &Repository, commit: &str, files: &[String]) -> Result<BTreeSet<PathBuf>, Error> {
    let blob = |commit: &str, path: &str| {
        let target = fs::read_link(repository.pointer(commit, path)).ok()?;
        Some(repository.blobs().join(target.file_name()?))
    };
    let mut unused: BTreeSet<PathBuf> = files.iter().filter_map(|path| blob(commit, path)).collect();
    for other in repository.commits()? {
        for file in repository.files(&other)? {
            let goes = other == commit && files.contains(&file.path);
            if let Some(used) = blob(&other, &file.path).filter(|_| !goes) {
                unused.remove(&used);
            }
        }
    }
    Ok(unused)
}

/// Removes the branches and tags of a commit.
fn remove_refs(repository: &Repository, commit: &str) -> Result<(), Error> {
    for name in repository.refs()? {
        if repository.commit(&name)?.as_deref() == Some(commit) {
            remove_file(&repository.folder.join("refs").join(name))?;
        }
    }
    Ok(())
}

fn remove_file(path: &Path) -> Result<(), Error> {
    ignore_missing(fs::remove_file(path), path)
}

fn remove_folder(path: &Path) -> Result<(), Error> {
    ignore_missing(fs::remove_dir_all(path), path)
}

fn ignore_missing(removed: io::Result<()>, path: &Path) -> Result<(), Error> {
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::io("remove", path)(error)),
        _ => Ok(()),
    }
}
