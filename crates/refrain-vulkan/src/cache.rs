//! Files that spare the next start work. They are only ever a help: what is missing, damaged or
//! from elsewhere is ignored, and what cannot be written is a warning.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, Once};
use std::time::Duration;

use xxhash_rust::xxh3::{Xxh3, xxh3_128};

const MAGIC: &[u8; 8] = b"refrain1";

/// How the names of files begin that are not whole yet.
const UNFINISHED: &str = ".tmp";
/// Nobody takes that long to write one.
const ABANDONED: Duration = Duration::from_secs(3600);

/// Removes what writers that were killed have left behind.
fn sweep(directory: &Path, age: Duration) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let unfinished = entry.file_name().to_string_lossy().starts_with(UNFINISHED);
        let written = entry.metadata().and_then(|data| data.modified()).ok();
        if unfinished
            && written
                .and_then(|written| written.elapsed().ok())
                .is_some_and(|since| since >= age)
        {
            // Another process may do the same.
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// A hash of parts; where one ends and the next begins counts.
pub(crate) fn hash(parts: &[&[u8]]) -> u128 {
    let mut state = Xxh3::new();
    for part in parts {
        state.update(&(part.len() as u64).to_le_bytes());
        state.update(part);
    }
    state.digest128()
}

/// A directory of checksummed files. Writers replace whole files, so processes may share it.
pub(crate) struct DiskCache {
    directory: Option<PathBuf>,
    warnings: Mutex<Vec<String>>,
    /// Done when something is first stored.
    swept: Once,
}

impl DiskCache {
    /// The cache in a directory, created on the first write; without one, nothing is kept.
    pub fn new(directory: Option<PathBuf>) -> Self {
        Self {
            directory,
            warnings: Mutex::default(),
            swept: Once::new(),
        }
    }

    /// The content stored under a name, if it is whole.
    pub fn load(&self, name: &str) -> Option<Vec<u8>> {
        let file = fs::read(self.directory.as_ref()?.join(name)).ok()?;
        let content = file.strip_prefix(MAGIC)?;
        let (checksum, content) = content.split_at_checked(16)?;
        (checksum == xxh3_128(content).to_le_bytes()).then(|| content.to_vec())
    }

    /// Stores content under a name. The first failure is noted among the warnings.
    pub fn store(&self, name: &str, content: &[u8]) {
        let Some(directory) = &self.directory else {
            return;
        };
        let write = || -> std::io::Result<()> {
            fs::create_dir_all(directory)?;
            self.swept.call_once(|| sweep(directory, ABANDONED));
            let mut file = tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(directory)?;
            file.write_all(MAGIC)?;
            file.write_all(&xxh3_128(content).to_le_bytes())?;
            file.write_all(content)?;
            file.persist(directory.join(name))?;
            Ok(())
        };
        if let Err(error) = write() {
            let mut warnings = self.warnings.lock().unwrap_or_else(|broken| broken.into_inner());
            if warnings.is_empty() {
                warnings.push(format!(
                    "cannot write the shader cache in {} ({error}); every start compiles anew",
                    directory.display()
                ));
            }
        }
    }

    /// What went wrong so far.
    pub fn warnings(&self) -> Vec<String> {
        self.warnings
            .lock()
            .unwrap_or_else(|broken| broken.into_inner())
            .clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_stored_is_loaded() {
        let directory = tempfile::tempdir().unwrap();
        let cache = DiskCache::new(Some(directory.path().join("made/later")));
        assert_eq!(cache.load("a"), None);
        cache.store("a", b"content");
        cache.store("empty", b"");
        assert_eq!(cache.load("a").unwrap(), b"content");
        assert_eq!(cache.load("empty").unwrap(), b"");
        assert!(cache.warnings().is_empty());
    }

    #[test]
    fn a_damaged_or_foreign_file_is_ignored() {
        let directory = tempfile::tempdir().unwrap();
        let cache = DiskCache::new(Some(directory.path().to_owned()));
        cache.store("a", b"content");
        let path = directory.path().join("a");
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x10;
            fs::write(&path, &damaged).unwrap();
            assert_eq!(cache.load("a"), None, "byte {at} changed");
            fs::write(&path, &whole[..at]).unwrap();
            assert_eq!(cache.load("a"), None, "cut at {at}");
        }
        assert!(cache.warnings().is_empty());
    }

    #[test]
    fn what_a_killed_writer_left_is_removed_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        for name in [".tmpOld", "a.spv", ".hidden"] {
            fs::write(path(name), "").unwrap();
        }
        sweep(directory.path(), ABANDONED);
        assert!(path(".tmpOld").exists(), "somebody may still be writing it");
        sweep(directory.path(), Duration::ZERO);
        assert!(!path(".tmpOld").exists() && path("a.spv").exists() && path(".hidden").exists());
        DiskCache::new(Some(directory.path().to_owned())).store("b", b"content");
        let leftovers = fs::read_dir(directory.path()).unwrap().flatten();
        assert!(
            leftovers
                .into_iter()
                .all(|entry| !entry.file_name().to_string_lossy().starts_with(UNFINISHED))
        );
    }

    #[test]
    fn an_unwritable_directory_is_one_warning() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let cache = DiskCache::new(Some(file.path().join("below a file")));
        cache.store("a", b"content");
        cache.store("b", b"content");
        assert_eq!(cache.warnings().len(), 1);
        assert!(cache.warnings()[0].contains("below a file"));
        assert_eq!(cache.load("a"), None);
    }

    #[test]
    fn where_a_part_ends_changes_the_hash() {
        assert_ne!(hash(&[b"ab", b"c"]), hash(&[b"a", b"bc"]));
        assert_eq!(hash(&[b"ab"]), hash(&[b"ab"]));
    }
}
