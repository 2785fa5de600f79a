//! Temporary files and directories for writing. They are in the target's folder, under names that no reader takes for
//! a checkpoint. Dropping one removes it unless it was renamed to the target. The next writer in the same folder
//! removes what killed processes have left.

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
pub struct PartialDirectory {
    directory: TempDir,
    /// InMemory while the writer is alive.
    _lock: Option<File>,
}

impl PartialDirectory {
    /// Its temporary path.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Keeps the directory: it was renamed or removed.
    pub(super) fn keep(self) {
        let _ = self.directory.keep();
    }
}

/// Who may read a file that is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Readers {
    /// As the system gives new files.
    Default,
    /// Only this user.
    Owner,
}

/// Creates a temporary file in `folder`.
pub(super) fn temporary_file(folder: &Path, readers: Readers) -> io::Result<NamedTempFile> {
    remove_abandoned(folder);
    // Opened here so that an error does not name the temporary file, which the user never chose.
    let open = |path: &Path| {
        let mut options = File::options();
        options.read(true).create_new(true);
        match readers {
            Readers::Default => options.write(true).open(path),
            Readers::Owner => platform::private_file(path, &mut options),
        }
    };
    create_locked(|| {
        let file = named(PREFIX, SUFFIX).make_in(folder, open)?;
        // Without locks, no other process treats it as abandoned either.
        let _ = FileExt::try_lock(file.as_file());
        let there = file.path().exists();
        Ok((file, there))
    })
}

/// Creates a temporary directory in `folder`.
pub(super) fn temporary_directory(folder: &Path) -> io::Result<PartialDirectory> {
    remove_abandoned(folder);
    create_locked(|| {
        let directory = public_directory(PREFIX, SUFFIX, folder)?;
        let lock = platform::lockable_directory(directory.path()).ok();
        if let Some(lock) = &lock {
            let _ = FileExt::try_lock(lock);
        }
        let there = directory.path().exists();
        let made = PartialDirectory { directory, _lock: lock };
        Ok((made, there))
    })
}

/// Creates a directory in `folder` for replaced contents, under a name that no other writer removes.
pub(super) fn backup_directory(folder: &Path) -> io::Result<TempDir> {
    public_directory(PREFIX, ".replaced", folder)
}

/// Repeats `make` until its result still exists after locking: before that, another writer may take it for abandoned.
fn create_locked<T>(make: impl Fn() -> io::Result<(T, bool)>) -> io::Result<T> {
    for _ in 0..16 {
        if let (made, true) = make()? {
            return Ok(made);
        }
    }
    Err(io::Error::other("other programs keep removing temporary files here"))
}

fn public_directory(prefix: &str, suffix: &str, folder: &Path) -> io::Result<TempDir> {
    let mut builder = named(prefix, suffix);
    platform::make_public(&mut builder);
    let made = builder.tempdir_in(folder);
    made.map_err(|error| io::Error::from(error.kind()))
}

/// Returns a builder of temporary names with default permissions.
fn named<'a>(prefix: &'a str, suffix: &'a str) -> tempfile::Builder<'a, 'a> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(prefix).suffix(suffix);
    builder
}

/// Removes what dead writers have left, recognised by their free locks. Ignores errors: leftovers only cost space.
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
    fn removes_only_leftovers_of_dead_writers() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        // Leftovers of a killed process.
        fs::write(at(".refrain-a.partial"), "weights").unwrap();
        fs::create_dir(at(".refrain-b.partial")).unwrap();
        fs::write(at(".refrain-b.partial/model.safetensors"), "weights").unwrap();
        // Files of others with similar names.
        fs::create_dir(at(".refrain-c.partial")).unwrap();
        fs::write(at(".refrain-c.partial/thesis.txt"), "kept").unwrap();
        fs::write(at("refrain-d.partial"), "kept").unwrap();
        let living = (
            temporary_file(folder.path(), Readers::Default).unwrap(),
            temporary_directory(folder.path()).unwrap(),
        );
        let other = temporary_file(folder.path(), Readers::Owner).unwrap();
        let left = |name: &str| at(name).exists();
        assert!(!left(".refrain-a.partial"));
        // Windows cannot lock directories.
        assert!(!left(".refrain-b.partial") || cfg!(windows));
        assert!(left(".refrain-c.partial/thesis.txt") && left("refrain-d.partial"));
        assert!(living.0.path().exists() && living.1.path().exists() && other.path().exists());
    }
}
