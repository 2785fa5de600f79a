//! Where a checkpoint is written to, and how it gets its name.

use std::fs::{self, File};
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::NamedTempFile;

use super::contents::{self, CONFIG, Holdings};
use super::unfinished::{self, UnfinishedDirectory};
use crate::files::FileSet;
use crate::{Error, platform};

/// How far writing has come, in bytes of weights.
#[derive(Debug, Clone, Copy)]
pub struct WriteProgress {
    /// Written so far.
    pub done: u64,
    /// To be written in all.
    pub total: u64,
}

/// What kind of checkpoint is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// A GGUF file.
    File,
    /// A directory of config.json and safetensors files.
    Directory,
}

/// What is written, and how far that has come.
pub struct Target<'a> {
    /// As the user calls it.
    out: &'a Path,
    /// What `out` leads to, through symbolic links.
    place: PathBuf,
    shape: Shape,
    replace: bool,
    done: u64,
    total: u64,
    progress: &'a dyn Fn(WriteProgress) -> ControlFlow<()>,
}

impl<'a> Target<'a> {
    /// Something to be written at `out`. `replace` allows to replace a checkpoint that is there
    /// already; `progress` is told after every piece, and may break to stop.
    ///
    /// # Errors
    /// If something is at `out` that must not be replaced.
    pub fn new(
        out: &'a Path,
        shape: Shape,
        replace: bool,
        progress: &'a dyn Fn(WriteProgress) -> ControlFlow<()>,
    ) -> Result<Self, Error> {
        let target = Target {
            out,
            place: fs::canonicalize(out).unwrap_or_else(|_| out.to_owned()),
            shape,
            replace,
            done: 0,
            total: 0,
            progress,
        };
        target.check()?;
        Ok(target)
    }

    /// Whether the target's name is free, or that of a checkpoint that may be replaced, and of nothing else.
    fn check(&self) -> Result<(), Error> {
        if self.out.symlink_metadata().is_err() {
            return Ok(());
        }
        if !self.replace {
            return Err(Error::Exists {
                path: self.out.to_owned(),
            });
        }
        let refused = match self.io(self.place.metadata())? {
            found if found.is_dir() && self.shape == Shape::Directory => self.io(why_not_replaced(&self.place))?,
            found if found.is_file() && self.shape == Shape::File => {
                let known = found.len() == 0 || self.io(begins_as_gguf(&self.place))?;
                (!known).then(|| "it is no GGUF file, and is not replaced".to_owned())
            }
            found if found.is_dir() => Some("it is a directory, which no file replaces".to_owned()),
            found if found.is_file() => Some("it is a file, which no directory replaces".to_owned()),
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

    /// Says how many bytes are to be written in all.
    pub fn expect(&mut self, total: u64) {
        self.total = total;
    }

    /// Gives an error its path.
    ///
    /// # Errors
    /// That result's, as one of writing.
    pub fn io<T>(&self, result: io::Result<T>) -> Result<T, Error> {
        result.map_err(|source| Error::Write {
            path: self.out.to_owned(),
            source,
        })
    }

    /// Counts so many bytes as written.
    ///
    /// # Errors
    /// If whoever watches stopped it.
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

    /// A file beside the target, which goes away unless it is given the target's name.
    ///
    /// # Errors
    /// What the system says.
    pub fn unfinished_file(&self) -> Result<NamedTempFile, Error> {
        self.io(unfinished::file_in(parent(&self.place)))
    }

    /// A directory beside the target, which goes away unless it is given the target's name.
    ///
    /// # Errors
    /// What the system says.
    pub fn unfinished_directory(&self) -> Result<UnfinishedDirectory, Error> {
        self.io(unfinished::directory_in(parent(&self.place)))
    }

    /// Gives a whole file, which is on the disk, the target's name.
    ///
    /// # Errors
    /// What the system says, or that something is there that may not be replaced.
    pub fn finish_file(&self, file: NamedTempFile) -> Result<(), Error> {
        self.check()?;
        let named = if self.replace {
            file.persist(&self.place)
        } else {
            file.persist_noclobber(&self.place)
        };
        self.io(named.map_err(|error| error.error))?;
        sync_directory(parent(&self.place));
        Ok(())
    }

    /// Gives a whole directory, whose files are on the disk, the target's name.
    ///
    /// # Errors
    /// What the system says, or that something is there that may not be replaced.
    pub fn finish_directory(&self, directory: UnfinishedDirectory) -> Result<(), Error> {
        sync_directory(directory.path());
        self.check()?;
        match self.place.symlink_metadata() {
            Err(_) => {
                self.io(fs::rename(directory.path(), &self.place))?;
                directory.keep();
            }
            Ok(_) => self.io(self.swap(directory))?,
        }
        sync_directory(parent(&self.place));
        Ok(())
    }

    /// Puts a whole directory in the place of the one that is there, and removes the checkpoint that that was.
    fn swap(&self, directory: UnfinishedDirectory) -> io::Result<()> {
        if platform::exchange(directory.path(), &self.place).is_ok() {
            // What cannot be removed is no reason to say that the new one is not there.
            let _ = contents::remove(directory.path());
            directory.keep();
            return Ok(());
        }
        let aside = unfinished::aside_in(parent(&self.place))?;
        let replaced = aside.path().join("replaced");
        fs::rename(&self.place, &replaced)?;
        if let Err(error) = fs::rename(directory.path(), &self.place) {
            // What was there before is better than nothing.
            return Err(match fs::rename(&replaced, &self.place) {
                Ok(()) => error,
                Err(_) => {
                    let kept = aside.keep().join("replaced");
                    io::Error::other(format!("{error}; what was there is now {}", kept.display()))
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

/// Why a directory is not replaced, if it holds anything but a checkpoint.
fn why_not_replaced(directory: &Path) -> io::Result<Option<String>> {
    let holdings = Holdings::of(directory)?;
    if holdings.is_empty() {
        return Ok(None);
    }
    if let [first, rest @ ..] = &holdings.strangers[..] {
        const NAMED: usize = 3;
        let mut named = vec![first.display().to_string()];
        named.extend(rest.iter().take(NAMED - 1).map(|path| path.display().to_string()));
        let more = match holdings.strangers.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        return Ok(Some(format!(
            "it is a directory that holds {}{more}, which no checkpoint has, so that it is not replaced",
            named.join(", ")
        )));
    }
    let config = FileSet::Directory(directory.to_owned()).json(CONFIG);
    let model = config.is_ok_and(|config| {
        let name = config.as_ref().and_then(|config| config.get("model_type"));
        name.is_some_and(Value::is_string)
    });
    Ok((!model).then(|| "it is a directory without the config.json of a model, which is not replaced".to_owned()))
}

fn begins_as_gguf(path: &Path) -> io::Result<bool> {
    use std::io::Read;

    let mut start = Vec::new();
    File::open(path)?.take(4).read_to_end(&mut start)?;
    Ok(start == b"GGUF")
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
