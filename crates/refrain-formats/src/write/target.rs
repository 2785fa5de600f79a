//! The target of a written checkpoint: checks, progress, and the final rename.

use std::fs::{self, File};
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::NamedTempFile;

use super::contents::{self, CONFIG, DirectoryContents};
use super::partial::{self, PartialDirectory, Readers};
use crate::files::FileSet;
use crate::{Error, platform};

/// Progress of writing, in bytes of weights.
#[derive(Debug, Clone, Copy)]
pub struct WriteProgress {
    /// Bytes written so far.
    pub done: u64,
    /// Bytes in total.
    pub total: u64,
}

/// Kind of checkpoint to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetKind {
    /// A GGUF file.
    File,
    /// A directory of config.json and safetensors files.
    Directory,
}

/// The target path and the progress of writing it.
pub struct Target<'a> {
    /// Path as the user gave it.
    out: &'a Path,
    /// Path with symbolic links resolved.
    target: PathBuf,
    kind: TargetKind,
    replace: bool,
    done: u64,
    total: u64,
    progress: &'a dyn Fn(WriteProgress) -> ControlFlow<()>,
}

impl<'a> Target<'a> {
    /// Creates a target at `out`. `replace` allows replacing an existing checkpoint. `progress` is called after every
    /// chunk, and may break to stop.
    ///
    /// # Errors
    /// If `out` exists and must not be replaced.
    pub fn new(
        out: &'a Path,
        kind: TargetKind,
        replace: bool,
        progress: &'a dyn Fn(WriteProgress) -> ControlFlow<()>,
    ) -> Result<Self, Error> {
        let target = Target {
            out,
            target: fs::canonicalize(out).unwrap_or_else(|_| out.to_owned()),
            kind,
            replace,
            done: 0,
            total: 0,
            progress,
        };
        target.check()?;
        Ok(target)
    }

    /// Checks that the target is free, or a checkpoint that may be replaced.
    fn check(&self) -> Result<(), Error> {
        if self.out.symlink_metadata().is_err() {
            return Ok(());
        }
        if !self.replace {
            return Err(Error::Exists {
                path: self.out.to_owned(),
            });
        }
        let refused = match self.io(self.target.metadata())? {
            found if found.is_dir() && self.kind == TargetKind::Directory => {
                self.io(replacement_error(&self.target))?
            }
            found if found.is_file() && self.kind == TargetKind::File => {
                let known = found.len() == 0 || self.io(is_gguf(&self.target))?;
                (!known).then(|| "it is not a GGUF file".to_owned())
            }
            found if found.is_dir() => Some("it is a directory".to_owned()),
            found if found.is_file() => Some("it is a file, not a directory".to_owned()),
            _ => Some("it is neither a file nor a directory".to_owned()),
        };
        match refused {
            Some(reason) => {
                let reason = format!("{reason}; choose another name");
                self.io(Err(io::Error::new(io::ErrorKind::AlreadyExists, reason)))
            }
            None => Ok(()),
        }
    }

    /// Sets the total number of bytes.
    pub fn expect(&mut self, total: u64) {
        self.total = total;
    }

    /// Adds the target's path to an error.
    ///
    /// # Errors
    /// The error of `result`, as an error of writing.
    pub fn io<T>(&self, result: io::Result<T>) -> Result<T, Error> {
        result.map_err(|source| Error::Write {
            path: self.out.to_owned(),
            source,
        })
    }

    /// Adds `bytes` to the progress and reports it.
    ///
    /// # Errors
    /// If the progress callback stops writing.
    pub fn advance(&mut self, bytes: usize) -> Result<(), Error> {
        self.done += bytes as u64;
        let progress = WriteProgress {
            done: self.done.min(self.total),
            total: self.total,
        };
        match (self.progress)(progress) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Error::Stopped {
                path: self.out.to_owned(),
            }),
        }
    }

    /// Creates a temporary file in the target's folder. It is removed unless it is finished.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn temporary_file(&self) -> Result<NamedTempFile, Error> {
        self.io(partial::temporary_file(parent(&self.target), Readers::Default))
    }

    /// Creates a temporary directory in the target's folder. It is removed unless it is finished.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn temporary_directory(&self) -> Result<PartialDirectory, Error> {
        self.io(partial::temporary_directory(parent(&self.target)))
    }

    /// Renames a complete, synced file to the target.
    ///
    /// # Errors
    /// Errors of the operating system, or if the target exists and must not be replaced.
    pub fn finish_file(&self, file: NamedTempFile) -> Result<(), Error> {
        self.check()?;
        let named = if self.replace {
            file.persist(&self.target)
        } else {
            file.persist_noclobber(&self.target)
        };
        self.io(named.map_err(|error| error.error))?;
        sync_directory(parent(&self.target));
        Ok(())
    }

    /// Renames a complete directory with synced files to the target.
    ///
    /// # Errors
    /// Errors of the operating system, or if the target exists and must not be replaced.
    pub fn finish_directory(&self, directory: PartialDirectory) -> Result<(), Error> {
        sync_directory(directory.path());
        self.check()?;
        match self.target.symlink_metadata() {
            Err(_) => {
                self.io(fs::rename(directory.path(), &self.target))?;
                directory.keep();
            }
            Ok(_) => self.io(self.swap(directory))?,
        }
        sync_directory(parent(&self.target));
        Ok(())
    }

    /// Replaces the existing directory with the new one, and removes the old checkpoint.
    fn swap(&self, directory: PartialDirectory) -> io::Result<()> {
        if platform::swap_paths(directory.path(), &self.target).is_ok() {
            // The new directory is in place; failing to remove the old one is not an error.
            let _ = contents::remove(directory.path());
            directory.keep();
            return Ok(());
        }
        let aside = partial::backup_directory(parent(&self.target))?;
        let replaced = aside.path().join("replaced");
        fs::rename(&self.target, &replaced)?;
        if let Err(error) = fs::rename(directory.path(), &self.target) {
            // Restore the old directory.
            return Err(match fs::rename(&replaced, &self.target) {
                Ok(()) => error,
                Err(_) => {
                    let kept = aside.keep().join("replaced");
                    io::Error::other(format!("{error}; the previous contents are now at {}", kept.display()))
                }
            });
        }
        directory.keep();
        if contents::remove(&replaced).is_err() {
            let _ = aside.keep();
        }
        Ok(())
    }
}

/// Returns why a directory must not be replaced; `None` if it is empty or only holds a checkpoint.
fn replacement_error(directory: &Path) -> io::Result<Option<String>> {
    let found = DirectoryContents::of(directory)?;
    if found.is_empty() {
        return Ok(None);
    }
    if let [first, rest @ ..] = &found.unknown[..] {
        const MAX_NAMED: usize = 3;
        let mut named = vec![first.display().to_string()];
        named.extend(rest.iter().take(MAX_NAMED - 1).map(|path| path.display().to_string()));
        let more = match found.unknown.len().saturating_sub(MAX_NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        return Ok(Some(format!(
            "it is a directory that holds {}{more}, which is not part of a checkpoint",
            named.join(", ")
        )));
    }
    let config = FileSet::Directory(directory.to_owned()).json(CONFIG);
    let model = config.is_ok_and(|config| {
        let name = config.as_ref().and_then(|config| config.get("model_type"));
        name.is_some_and(Value::is_string)
    });
    Ok((!model).then(|| "it is a directory without a model's config.json".to_owned()))
}

fn is_gguf(path: &Path) -> io::Result<bool> {
    use std::io::Read;

    let mut start = Vec::new();
    File::open(path)?.take(4).read_to_end(&mut start)?;
    Ok(start == b"GGUF")
}

/// The directory of `out`.
pub(super) fn parent(out: &Path) -> &Path {
    match out.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

/// Syncs a directory's entries to disk. Ignores errors: some systems cannot, and those do not need it.
pub(super) fn sync_directory(path: &Path) {
    if let Ok(directory) = File::open(path) {
        let _ = directory.sync_all();
    }
}
