//! Where a checkpoint is written to, and how it gets its name.

use std::fs::{self, File};
use std::io;
use std::ops::ControlFlow;
use std::path::Path;

use tempfile::{NamedTempFile, TempDir};

use crate::{Error, platform};

/// How far writing has come, in bytes of weights.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// Written so far.
    pub done: u64,
    /// To be written in all.
    pub total: u64,
}

/// What is written, and how far that has come.
pub(crate) struct Target<'a> {
    out: &'a Path,
    replace: bool,
    done: u64,
    total: u64,
    progress: &'a dyn Fn(Progress) -> ControlFlow<()>,
}

impl<'a> Target<'a> {
    /// Something to be written at `out`. `replace` allows to replace a checkpoint that is there
    /// already; `progress` is told after every piece, and may break to stop.
    ///
    /// # Errors
    /// If something is at `out` that must not be replaced.
    pub(crate) fn new(
        out: &'a Path,
        replace: bool,
        progress: &'a dyn Fn(Progress) -> ControlFlow<()>,
    ) -> Result<Self, Error> {
        let target = Target {
            out,
            replace,
            done: 0,
            total: 0,
            progress,
        };
        let refused = match out.symlink_metadata() {
            Err(_) => None,
            Ok(_) if !replace => Some("it exists already; remove it, or choose another name"),
            Ok(_) if out.metadata().is_ok_and(|found| !found.is_file() && !found.is_dir()) => {
                Some("it is neither a file nor a directory; choose another name")
            }
            Ok(found) if found.is_dir() && !out.join("config.json").exists() => {
                Some("it is a directory without config.json, which is not replaced; choose another name")
            }
            Ok(_) => None,
        };
        match refused {
            Some(reason) => target.io(Err(io::Error::new(io::ErrorKind::AlreadyExists, reason))),
            None => Ok(target),
        }
    }

    /// Says how many bytes are to be written in all.
    pub(crate) fn expect(&mut self, total: u64) {
        self.total = total;
    }

    /// Gives an error its path.
    pub(crate) fn io<T>(&self, result: io::Result<T>) -> Result<T, Error> {
        result.map_err(|source| Error::Write {
            path: self.out.to_owned(),
            source,
        })
    }

    /// Counts so many bytes as written.
    pub(crate) fn advance(&mut self, bytes: usize) -> Result<(), Error> {
        self.done += bytes as u64;
        let progress = Progress {
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

    /// A file beside the target, which goes away unless it is given the target's name.
    pub(crate) fn unfinished_file(&self) -> Result<NamedTempFile, Error> {
        self.io(unfinished_file(self.out))
    }

    /// A directory beside the target, which goes away unless it is given the target's name.
    pub(crate) fn unfinished_directory(&self) -> Result<TempDir, Error> {
        let mut builder = unfinished();
        platform::make_public(&mut builder);
        let made = builder.tempdir_in(parent(self.out));
        self.io(made.map_err(|error| io::Error::from(error.kind())))
    }

    /// Gives a whole file, which is on the disk, the target's name.
    pub(crate) fn finish_file(&self, file: NamedTempFile) -> Result<(), Error> {
        if self.replace && self.out.is_dir() {
            let aside = self.set_aside()?;
            self.io(file.persist(self.out).map_err(|error| error.error))?;
            drop(aside);
        } else {
            let named = match self.replace {
                true => file.persist(self.out),
                false => file.persist_noclobber(self.out),
            };
            self.io(named.map_err(|error| error.error))?;
        }
        sync_directory(parent(self.out));
        Ok(())
    }

    /// Gives a whole directory, whose files are on the disk, the target's name.
    pub(crate) fn finish_directory(&self, directory: TempDir) -> Result<(), Error> {
        sync_directory(directory.path());
        let aside = match self.out.symlink_metadata() {
            Ok(_) if self.replace => Some(self.set_aside()?),
            _ => None,
        };
        if let Err(error) = fs::rename(directory.path(), self.out) {
            if let Some(aside) = aside {
                // What was there before is better than nothing.
                let _ = fs::rename(aside.path().join("replaced"), self.out);
            }
            return self.io(Err(error));
        }
        // The directory has another name now: there is nothing left to clean up.
        let _ = directory.keep();
        sync_directory(parent(self.out));
        Ok(())
    }

    /// Moves what the target replaces into a directory that goes away.
    fn set_aside(&self) -> Result<TempDir, Error> {
        let aside = self.unfinished_directory()?;
        self.io(fs::rename(self.out, aside.path().join("replaced")))?;
        Ok(aside)
    }
}

/// A file beside `out`, which goes away unless it is given a name.
pub(super) fn unfinished_file(out: &Path) -> io::Result<NamedTempFile> {
    // Opened here, so that an error does not name the unfinished file, which the user never chose.
    let open = |path: &Path| File::options().read(true).write(true).create_new(true).open(path);
    unfinished().make_in(parent(out), open)
}

/// The directory that `out` lies in.
pub(super) fn parent(out: &Path) -> &Path {
    match out.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

/// Brings the names in a directory onto the disk. Not every system can, and those that cannot need not.
pub(super) fn sync_directory(path: &Path) {
    if let Ok(directory) = File::open(path) {
        let _ = directory.sync_all();
    }
}

/// Names of unfinished files and directories, which get the permissions that new ones get.
fn unfinished<'a>() -> tempfile::Builder<'a, 'static> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".refrain-").suffix(".partial");
    builder
}
