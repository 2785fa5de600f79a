//! Files and directories that are being written: beside their target, under names that no reader takes for a
//! checkpoint. They go away unless they are given the target's name; what a writer that was killed has left, the
//! next one in the same folder removes.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use fs4::FileExt;
use tempfile::{NamedTempFile, TempDir};

use super::contents;
use crate::platform;

const PREFIX: &str = ".refrain-";
const SUFFIX: &str = ".partial";

/// A directory that is being written.
pub struct UnfinishedDirectory {
    directory: TempDir,
    /// Says that its writer lives.
    _lock: Option<File>,
}

impl UnfinishedDirectory {
    /// Where it lies for now.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Leaves it alone: it has another name now, or is gone.
    pub(super) fn keep(self) {
        let _ = self.directory.keep();
    }
}

/// A file in `folder`, which goes away unless it is given a name.
pub(super) fn file_in(folder: &Path) -> io::Result<NamedTempFile> {
    remove_abandoned(folder);
    // Opened here, so that an error does not name the unfinished file, which the user never chose.
    let open = |path: &Path| File::options().read(true).write(true).create_new(true).open(path);
    once_locked(|| {
        let file = named(PREFIX, SUFFIX).make_in(folder, open)?;
        // Where the system has no locks, nobody takes it for abandoned either.
        let _ = FileExt::try_lock(file.as_file());
        let there = file.path().exists();
        Ok((file, there))
    })
}

/// A directory in `folder`, which goes away unless it is given a name.
pub(super) fn directory_in(folder: &Path) -> io::Result<UnfinishedDirectory> {
    remove_abandoned(folder);
    once_locked(|| {
        let directory = public_directory(PREFIX, SUFFIX, folder)?;
        let lock = platform::lockable_directory(directory.path()).ok();
        if let Some(lock) = &lock {
            let _ = FileExt::try_lock(lock);
        }
        let there = directory.path().exists();
        let made = UnfinishedDirectory { directory, _lock: lock };
        Ok((made, there))
    })
}

/// A directory in `folder` for what is replaced, until that is certain: one that nobody else removes.
pub(super) fn aside_in(folder: &Path) -> io::Result<TempDir> {
    public_directory(PREFIX, ".replaced", folder)
}

/// Makes something until it is still there once it is locked: before that, another writer may take it for abandoned.
fn once_locked<T>(make: impl Fn() -> io::Result<(T, bool)>) -> io::Result<T> {
    for _ in 0..16 {
        if let (made, true) = make()? {
            return Ok(made);
        }
    }
    Err(io::Error::other("other programs keep removing what is begun here"))
}

fn public_directory(prefix: &str, suffix: &str, folder: &Path) -> io::Result<TempDir> {
    let mut builder = named(prefix, suffix);
    platform::make_public(&mut builder);
    let made = builder.tempdir_in(folder);
    made.map_err(|error| io::Error::from(error.kind()))
}

/// Names of what is unfinished, which gets the permissions that new files get.
fn named<'a>(prefix: &'a str, suffix: &'a str) -> tempfile::Builder<'a, 'a> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(prefix).suffix(suffix);
    builder
}

/// Removes what writers have left that are gone: nobody holds its lock any more. As good as it goes: what cannot be
/// removed takes up room, and nothing else.
fn remove_abandoned(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let ours = name
            .to_str()
            .is_some_and(|name| name.starts_with(PREFIX) && name.ends_with(SUFFIX));
        let Some(kind) = entry.file_type().ok().filter(|_| ours) else {
            continue;
        };
        let path = entry.path();
        let opened = match kind {
            kind if kind.is_dir() => platform::lockable_directory(&path),
            kind if kind.is_file() => File::options().read(true).write(true).open(&path),
            _ => continue,
        };
        if let Ok(lock) = opened
            && FileExt::try_lock(&lock).is_ok()
        {
            let _ = if kind.is_dir() {
                contents::remove(&path)
            } else {
                fs::remove_file(&path)
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_writers_left_that_are_gone_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        // As a program leaves them that is killed.
        fs::write(at(".refrain-a.partial"), "weights").unwrap();
        fs::create_dir(at(".refrain-b.partial")).unwrap();
        fs::write(at(".refrain-b.partial/model.safetensors"), "weights").unwrap();
        // What may look so, and is somebody's.
        fs::create_dir(at(".refrain-c.partial")).unwrap();
        fs::write(at(".refrain-c.partial/thesis.txt"), "kept").unwrap();
        fs::write(at("refrain-d.partial"), "kept").unwrap();
        let living = (file_in(folder.path()).unwrap(), directory_in(folder.path()).unwrap());
        let other = file_in(folder.path()).unwrap();
        let left = |name: &str| at(name).exists();
        assert!(!left(".refrain-a.partial"));
        // Elsewhere, directories cannot be locked.
        assert!(!left(".refrain-b.partial") || cfg!(windows));
        assert!(left(".refrain-c.partial/thesis.txt") && left("refrain-d.partial"));
        assert!(living.0.path().exists() && living.1.path().exists() && other.path().exists());
    }
}
