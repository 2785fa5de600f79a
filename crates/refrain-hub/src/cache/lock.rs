//! Locks that keep programs from writing the same part of the cache: the lock on each blob, shared with
//! `huggingface_hub`, and this crate's own lock on a repository.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};

use fs4::{FileExt, TryLockError};

use crate::{Error, Watcher};

/// A lock that is held until it is dropped. The operating system releases it when the process ends.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    /// Waits for the lock. Sends a notice if another program holds it.
    pub fn wait(path: &Path, waiting_for: &str, watcher: &dyn Watcher) -> Result<Self, Error> {
        if let Some(lock) = Self::take(path)? {
            return Ok(lock);
        }
        watcher.notice(&format!("another program is downloading {waiting_for}; waiting for it"));
        let file = open(path)?;
        FileExt::lock(&file).map_err(Error::io("lock", path))?;
        Ok(Self { _file: file })
    }

    /// Takes the lock. Returns `None` if another program holds it.
    pub fn take(path: &Path) -> Result<Option<Self>, Error> {
        let file = open(path)?;
        match FileExt::try_lock(&file) {
            Ok(()) => Ok(Some(Self { _file: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(Error::io("lock", path)(error)),
        }
    }

    /// Takes all locks of a folder except `but`. Returns `None` if another program holds one of them.
    pub fn take_all(folder: &Path, but: &Path) -> Result<Option<Vec<Self>>, Error> {
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Some(Vec::new())),
            Err(error) => return Err(Error::io("read", folder)(error)),
        };
        let paths: Result<Vec<PathBuf>, _> = entries.map(|entry| Ok(entry?.path())).collect();
        let paths = paths.map_err(Error::io("read", folder))?;
        let is_lock = |path: &&PathBuf| path.extension().is_some_and(|ending| ending == "lock") && *path != but;
        let locks = paths.iter().filter(is_lock);
        locks.map(|path| Self::take(path)).collect()
    }
}

fn open(path: &Path) -> Result<File, Error> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path);
    file.map_err(Error::io("lock", path))
}
