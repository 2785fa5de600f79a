//! What references/fetch.sh puts below `target`: too large to keep in the repository.

use std::path::{Path, PathBuf};

/// The path of `name` below `target`. A test whose file has not been fetched is left out with a word, but fails in CI.
pub fn fetched(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target").join(name);
    if path.exists() {
        return Some(path);
    }
    assert!(
        !refrain_testing::in_ci(),
        "{name} is not below target: run references/fetch.sh"
    );
    eprintln!("{name} is left out: references/fetch.sh has not been run");
    None
}
