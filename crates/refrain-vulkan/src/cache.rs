//! Cache files that speed up the next start. A missing, damaged or foreign file is ignored. A failed write is only a
//! warning.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, Once};
use std::time::Duration;

use xxhash_rust::xxh3::{Xxh3, xxh3_128};

const MAGIC: &[u8; 8] = b"refrain1";

/// Prefix of the names of files that are still being written.
const TEMP_PREFIX: &str = ".tmp";
/// Temporary files older than this belong to a writer that was killed.
const MAX_TEMP_AGE: Duration = Duration::from_secs(3600);

/// Removes temporary files of killed writers, that is those at least `age` old.
fn remove_stale_files(directory: &Path, age: Duration) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let is_temporary = entry.file_name().to_string_lossy().starts_with(TEMP_PREFIX);
        let written = entry.metadata().and_then(|data| data.modified()).ok();
        if is_temporary
            && written
                .and_then(|written| written.elapsed().ok())
                .is_some_and(|since| since >= age)
        {
            // Another process may remove it at the same time.
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Hashes a list of byte strings. Boundaries between the strings affect the hash.
pub(crate) fn hash(parts: &[&[u8]]) -> u128 {
    let mut state = Xxh3::new();
    for part in parts {
        state.update(&(part.len() as u64).to_le_bytes());
        state.update(part);
    }
    state.digest128()
}

/// A directory of checksummed files. Writers replace whole files, so several processes may share it.
pub(crate) struct DiskCache {
    directory: Option<PathBuf>,
    warnings: Mutex<Vec<String>>,
    /// Stale files are removed before the first write.
    cleaned: Once,
}

impl DiskCache {
    /// Uses `directory`, which is created on the first write. Stores nothing if `None`.
    pub fn new(directory: Option<PathBuf>) -> Self {
        Self {
            directory,
            warnings: Mutex::default(),
            cleaned: Once::new(),
        }
    }

    /// Returns the content stored under a name, or `None` if it is missing or damaged.
    pub fn load(&self, name: &str) -> Option<Vec<u8>> {
        let file = fs::read(self.directory.as_ref()?.join(name)).ok()?;
        let content = file.strip_prefix(MAGIC)?;
        let (checksum, content) = content.split_at_checked(16)?;
        (checksum == xxh3_128(content).to_le_bytes()).then(|| content.to_vec())
    }

    /// Stores content under a name. Only the first failure adds a warning.
    pub fn store(&self, name: &str, content: &[u8]) {
        let Some(directory) = &self.directory else {
            return;
        };
        let write = || -> std::io::Result<()> {
            fs::create_dir_all(directory)?;
            self.cleaned.call_once(|| remove_stale_files(directory, MAX_TEMP_AGE));
            let mut file = tempfile::Builder::new().prefix(TEMP_PREFIX).tempfile_in(directory)?;
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
                    "cannot write the shader cache in {} ({error}); shaders are recompiled at every start",
                    directory.display()
                ));
            }
        }
    }

    /// Returns the warnings so far.
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
    fn loads_what_was_stored() {
        let directory = tempfile::tempdir().unwrap();
        let cache = DiskCache::new(Some(directory.path().join("nested/directory")));
        assert_eq!(cache.load("a"), None);
        cache.store("a", b"content");
        cache.store("empty", b"");
        assert_eq!(cache.load("a").unwrap(), b"content");
        assert_eq!(cache.load("empty").unwrap(), b"");
        assert!(cache.warnings().is_empty());
    }

    #[test]
    fn ignores_damaged_files() {
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
    fn removes_only_stale_temporary_files() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        for name in [".tmpOld", "a.spv", ".hidden"] {
            fs::write(path(name), "").unwrap();
        }
        remove_stale_files(directory.path(), MAX_TEMP_AGE);
        assert!(path(".tmpOld").exists(), "another process may still be writing it");
        remove_stale_files(directory.path(), Duration::ZERO);
        assert!(!path(".tmpOld").exists() && path("a.spv").exists() && path(".hidden").exists());
        DiskCache::new(Some(directory.path().to_owned())).store("b", b"content");
        let leftovers = fs::read_dir(directory.path()).unwrap().flatten();
        assert!(
            leftovers
                .into_iter()
                .all(|entry| !entry.file_name().to_string_lossy().starts_with(TEMP_PREFIX))
        );
    }

    #[test]
    fn warns_once_about_an_unwritable_directory() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let cache = DiskCache::new(Some(file.path().join("below a file")));
        cache.store("a", b"content");
        cache.store("b", b"content");
        assert_eq!(cache.warnings().len(), 1);
        assert!(cache.warnings()[0].contains("below a file"));
        assert_eq!(cache.load("a"), None);
    }

    #[test]
    fn hash_depends_on_part_boundaries() {
        assert_ne!(hash(&[b"ab", b"c"]), hash(&[b"a", b"bc"]));
        assert_eq!(hash(&[b"ab"]), hash(&[b"ab"]));
    }
}
