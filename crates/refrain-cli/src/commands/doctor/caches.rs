//! Where files are kept between runs.

use std::fs;
use std::path::{Path, PathBuf};

/// A folder of files that spare the next start work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CacheFolder {
    /// What is kept there.
    pub what: &'static str,
    /// `None` where the system names no folder for it.
    pub path: Option<PathBuf>,
    pub files: usize,
    pub bytes: u64,
    /// Why nothing can be written there.
    pub fault: Option<String>,
}

impl CacheFolder {
    /// Looks at a folder, and makes it if it can: as the first run would.
    pub fn examine(what: &'static str, path: Option<PathBuf>) -> Self {
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

/// Files and their bytes in a folder and below.
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
    // Nothing is left behind, also where only a part could be written.
    let removed = fs::remove_file(&path);
    written.and(removed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_a_cache_is_counted_and_nothing_is_left_in_it() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("below")).unwrap();
        fs::write(folder.path().join("below/a"), [0; 10]).unwrap();
        fs::write(folder.path().join("b"), [0; 5]).unwrap();
        let examine = || CacheFolder::examine("shaders", Some(folder.path().to_owned()));
        for _ in 0..2 {
            let cache = examine();
            assert_eq!((cache.files, cache.bytes, cache.fault), (2, 15, None));
        }
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_a_fault() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(
            CacheFolder::examine("shaders", Some(file.join("cache")))
                .fault
                .is_some()
        );
        assert!(
            CacheFolder::examine("shaders", None)
                .fault
                .unwrap()
                .contains("XDG_CACHE_HOME")
        );
    }
}
