//! Cache directories.

use std::fs;
use std::path::{Path, PathBuf};

/// A cache directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CacheFolder {
    /// What it stores.
    pub what: &'static str,
    /// `None` if the system defines no directory for it.
    pub path: Option<PathBuf>,
    pub files: usize,
    pub bytes: u64,
    /// Why it cannot be written, if so.
    pub fault: Option<String>,
}

impl CacheFolder {
    /// Inspects a directory, and creates it if missing, as the first run would.
    pub fn inspect(what: &'static str, path: Option<PathBuf>) -> Self {
        let (files, bytes) = path.as_deref().map_or((0, 0), size);
        let fault = match &path {
            None => Some("no home directory is known; set XDG_CACHE_HOME".to_owned()),
            Some(path) => try_writing(path).err().map(|error| error.to_string()),
        };
        Self {
            what,
            path,
            files,
            bytes,
            fault,
        }
    }
}

/// Number of files in a directory tree, and their bytes.
fn size(folder: &Path) -> (usize, u64) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let sizes = entries.filter_map(|entry| {
        let data = entry.metadata().ok()?;
        Some(if data.is_dir() {
            size(&entry.path())
        } else {
            (1, data.len())
        })
    });
    sizes.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
}

fn try_writing(folder: &Path) -> std::io::Result<()> {
    fs::create_dir_all(folder)?;
    let path = folder.join(format!(".written-by-doctor-{}", std::process::id()));
    let written = fs::write(&path, [0; 4096]);
    // Removed even if it was written only in part.
    let removed = fs::remove_file(&path);
    written.and(removed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_files_and_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("below")).unwrap();
        fs::write(folder.path().join("below/a"), [0; 10]).unwrap();
        fs::write(folder.path().join("b"), [0; 5]).unwrap();
        let inspect = || CacheFolder::inspect("shaders", Some(folder.path().to_owned()));
        for _ in 0..2 {
            let cache = inspect();
            assert_eq!((cache.files, cache.bytes, cache.fault), (2, 15, None));
        }
    }

    #[test]
    fn reports_a_directory_that_is_not_writable() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(
            CacheFolder::inspect("shaders", Some(file.join("cache")))
                .fault
                .is_some()
        );
        assert!(
            CacheFolder::inspect("shaders", None)
                .fault
                .unwrap()
                .contains("XDG_CACHE_HOME")
        );
    }
}
