//! Files that are written atomically.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use super::partial::{self, Readers};
use super::target::{parent, sync_directory};
use crate::Error;

/// A file that is written atomically. [`AtomicFile::finish`] syncs it to disk and renames it to its path. Dropping it
/// before that removes it.
///
/// Pipes and devices such as `/dev/stdout` are written to directly.
#[derive(Debug)]
pub struct AtomicFile {
    path: PathBuf,
    /// `path` with symbolic links resolved.
    target: PathBuf,
    writer: BufWriter<AtomicFileInner>,
}

#[derive(Debug)]
enum AtomicFileInner {
    Beside(NamedTempFile),
    Itself(File),
}

impl AtomicFile {
    /// Starts writing a file.
    ///
    /// # Errors
    /// If the file cannot be created, or an existing one is not writable. The error names the file.
    pub fn create(path: &Path) -> Result<Self, Error> {
        Self::begin(path, Readers::Default)
    }

    fn begin(path: &Path, readers: Readers) -> Result<Self, Error> {
        let made = || -> io::Result<Self> {
            let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
            let inner = match fs::metadata(&target) {
                Ok(found) if !found.is_file() => AtomicFileInner::Itself(File::options().write(true).open(path)?),
                Ok(found) => {
                    // A file without write permission must not be replaced either.
                    File::options().write(true).open(&target)?;
                    let file = partial::temporary_file(parent(&target), readers)?;
                    if readers == Readers::Default {
                        file.as_file().set_permissions(found.permissions())?;
                    }
                    AtomicFileInner::Beside(file)
                }
                Err(_) => AtomicFileInner::Beside(partial::temporary_file(parent(&target), readers)?),
            };
            Ok(Self {
                path: path.to_owned(),
                target,
                writer: BufWriter::new(inner),
            })
        };
        made().map_err(|source| failed(path, source))
    }

    /// Checks that a file can be created at `path`. For a check before the work.
    ///
    /// # Errors
    /// As [`AtomicFile::create`].
    pub fn try_create(path: &Path) -> Result<(), Error> {
        Self::create(path).map(drop)
    }

    /// Writes a complete file.
    ///
    /// # Errors
    /// If it cannot be written. The error names the file.
    pub fn write(path: &Path, bytes: &[u8]) -> Result<(), Error> {
        let mut file = Self::create(path)?;
        file.append(bytes)?;
        file.finish()
    }

    /// Writes a complete file that only this user may read.
    ///
    /// # Errors
    /// If it cannot be written. The error names the file.
    pub fn write_private(path: &Path, bytes: &[u8]) -> Result<(), Error> {
        let mut file = Self::begin(path, Readers::Owner)?;
        file.append(bytes)?;
        file.finish()
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// If they cannot be written. The error names the file.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.writer
            .write_all(bytes)
            .map_err(|source| failed(&self.path, source))
    }

    /// Syncs the file and renames it to its path.
    ///
    /// # Errors
    /// If it cannot be synced or renamed. The error names the file.
    pub fn finish(self) -> Result<(), Error> {
        let Self { path, target, writer } = self;
        let finished = || -> io::Result<()> {
            if let AtomicFileInner::Beside(file) = writer.into_inner()? {
                file.as_file().sync_all()?;
                file.persist(&target)?;
                sync_directory(parent(&target));
            }
            Ok(())
        };
        finished().map_err(|source| failed(&path, source))
    }
}

impl Write for AtomicFileInner {
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
    fn unfinished_files_leave_the_old_content() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let mut file = AtomicFile::create(&path).unwrap();
        file.append(&[1; 100_000]).unwrap();
        assert!(!path.exists());
        drop(file);
        assert_eq!(names(folder.path()), [""; 0]);
        AtomicFile::write(&path, b"old").unwrap();
        let mut file = AtomicFile::create(&path).unwrap();
        file.append(&[1; 100_000]).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        file.finish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), [1; 100_000]);
        assert_eq!(names(folder.path()), ["a"]);
    }

    #[test]
    fn private_files_stay_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        AtomicFile::write(&path, b"for all").unwrap();
        for text in [b"secret", b"newer!"] {
            AtomicFile::write_private(&path, text).unwrap();
            assert_eq!(fs::read(&path).unwrap(), text);
            assert!(crate::is_private(&path));
        }
    }

    #[test]
    fn errors_name_the_file() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["no/a", ""] {
            let path = folder.path().join(name);
            let error = AtomicFile::write(&path, b"a").unwrap_err().to_string();
            let begin = format!("cannot write {}: ", path.display());
            assert!(error.starts_with(&begin) && error.len() < begin.len() + 50, "{error}");
        }
    }
}
