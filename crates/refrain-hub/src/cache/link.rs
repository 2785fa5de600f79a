//! Files of a snapshot: symbolic links to blobs, or the blobs themselves on systems without links.

use std::fs;
use std::io;
use std::path::Path;

use crate::Error;

/// Links `pointer` to `blob`, or moves the blob there if the system has no links. Both are in the same repository of
/// the cache. `depth` is the number of folders between the repository and `pointer`.
pub(crate) fn link(blob: &Path, pointer: &Path, depth: usize) -> Result<(), Error> {
    if let (Ok(a), Ok(b)) = (fs::canonicalize(pointer), fs::canonicalize(blob))
        && a == b
    {
        return Ok(());
    }
    let name = blob.file_name().unwrap_or_default();
    let target = Path::new(&"../".repeat(depth)).join("blobs").join(name);
    replace(pointer, |new| symlink(&target, new).or_else(|_| fs::rename(blob, new)))
}

/// Moves `blob` to `pointer`.
pub(crate) fn move_blob(blob: &Path, pointer: &Path) -> Result<(), Error> {
    replace(pointer, |new| fs::rename(blob, new))
}

/// Copies a file of a snapshot.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<(), Error> {
    replace(to, |new| fs::copy(from, new).map(drop))
}

/// Creates the file under a temporary name, then renames it, so that a file of the snapshot is replaced atomically.
fn replace(pointer: &Path, make: impl FnOnce(&Path) -> io::Result<()>) -> Result<(), Error> {
    let folder = pointer.parent().unwrap_or(pointer);
    fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
    let new = folder.join(format!(".{}.new", std::process::id()));
    // Left by a process that was killed.
    let _ = fs::remove_file(&new);
    let replaced = make(&new).and_then(|()| fs::rename(&new, pointer));
    replaced.map_err(Error::io("write", pointer))
}

#[expect(
    deprecated,
    reason = "the function picks each system's kind of link; it is deprecated for hiding which one"
)]
fn symlink(target: &Path, link: &Path) -> io::Result<()> {
    fs::soft_link(target, link)
}

/// Syncs a folder's entries to disk, where the system can.
pub(crate) fn sync_folder(folder: &Path) {
    // Some systems cannot open folders; those keep names durable by themselves.
    if let Ok(folder) = fs::File::open(folder) {
        let _ = folder.sync_all();
    }
}
