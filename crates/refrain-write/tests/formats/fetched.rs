//! Files that references/fetch.sh puts below `target`: too large to keep in the repository.

use std::path::{Path, PathBuf};

/// Returns the path of `name` below `target`. If it has not been fetched, the test is skipped with a message, and
/// fails in CI.
pub fn fetched(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target").join(name);
    if path.exists() {
        return Some(path);
    }
    refrain_testing::skip(&format!("{name} is not below target: run references/fetch.sh"));
    None
}
