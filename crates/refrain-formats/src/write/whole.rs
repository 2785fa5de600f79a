//! Files that are there whole or not at all.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use super::target::{parent, sync_directory};
use super::unfinished;
use crate::Error;

/// A file that is being written. It has its name, and what it replaces is gone, only once it is whole and on
/// the disk; before that, it goes away with this value.
///
/// What is no regular file, such as a pipe or `/dev/stdout`, is written to as it is.
#[derive(Debug)]
pub struct WholeFile {
    path: PathBuf,
    /// What `path` leads to, through symbolic links.
    target: PathBuf,
    writer: BufWriter<WholeFileInner>,
}

#[derive(Debug)]
enum WholeFileInner {
    Beside(NamedTempFile),
    Itself(File),
}

impl WholeFile {
    /// Begins a file.
    ///
    /// # Errors
    /// Naming the file, if there can be none, or what is there must not be written to.
    pub fn create(path: &Path) -> Result<Self, Error> {
        let made = || -> io::Result<Self> {
            let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
            let inner = match fs::metadata(&target) {
                Ok(found) if !found.is_file() => WholeFileInner::Itself(File::options().write(true).open(path)?),
                Ok(found) => {
                    // Whoever may not write to a file may not replace it either.
                    File::options().write(true).open(&target)?;
                    let file = unfinished::file_in(parent(&target))?;
                    file.as_file().set_permissions(found.permissions())?;
                    WholeFileInner::Beside(file)
                }
                Err(_) => WholeFileInner::Beside(unfinished::file_in(parent(&target))?),
            };
            Ok(Self {
                path: path.to_owned(),
                target,
                writer: BufWriter::new(inner),
            })
        };
        made().map_err(|source| failed(path, source))
    }

    /// Tries whether a file can be begun there: before work whose result is to go into it.
    ///
    /// # Errors
    /// As [`WholeFile::create`].
    pub fn try_create(path: &Path) -> Result<(), Error> {
        Self::create(path).map(drop)
    }

    /// Writes a file at once.
    ///
    /// # Errors
    /// Naming the file, if it cannot be written.
    pub fn write(path: &Path, bytes: &[u8]) -> Result<(), Error> {
        let mut file = Self::create(path)?;
        file.append(bytes)?;
        file.finish()
    }

    /// Adds bytes at its end.
    ///
    /// # Errors
    /// Naming the file, if they cannot be written.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.writer
            .write_all(bytes)
            .map_err(|source| failed(&self.path, source))
    }

    /// Lets it be found by its name.
    ///
    /// # Errors
    /// Naming the file, if it cannot be brought onto the disk or be given its name.
    pub fn finish(self) -> Result<(), Error> {
        let Self { path, target, writer } = self;
        let finished = || -> io::Result<()> {
            if let WholeFileInner::Beside(file) = writer.into_inner()? {
                file.as_file().sync_all()?;
                file.persist(&target)?;
                sync_directory(parent(&target));
            }
            Ok(())
        };
        finished().map_err(|source| failed(&path, source))
    }
}

impl Write for WholeFileInner {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Beside(file) => file.as_file_mut().write(bytes),
            Self::Itself(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Beside(file) => file.as_file_mut().flush(),
            Self::Itself(file) => file.flush(),
        }
    }
}

fn failed(path: &Path, source: io::Error) -> Error {
    Error::Write {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    #[test]
    fn a_file_that_is_not_finished_leaves_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let mut file = WholeFile::create(&path).unwrap();
        file.append(&[1; 100_000]).unwrap();
        assert!(!path.exists());
        drop(file);
        assert_eq!(names(folder.path()), [""; 0]);
        WholeFile::write(&path, b"old").unwrap();
        let mut file = WholeFile::create(&path).unwrap();
        file.append(&[1; 100_000]).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        file.finish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), [1; 100_000]);
        assert_eq!(names(folder.path()), ["a"]);
    }

    #[test]
    fn files_that_cannot_be_written_are_named() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["no/a", ""] {
            let path = folder.path().join(name);
            let error = WholeFile::write(&path, b"a").unwrap_err().to_string();
            let begin = format!("cannot write {}: ", path.display());
            assert!(error.starts_with(&begin) && error.len() < begin.len() + 50, "{error}");
        }
    }
}
