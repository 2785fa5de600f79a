//! Files of a snapshot: links to blobs, or the blobs themselves on systems without links.

use std::fs;
use std::io;
use std::path::Path;

use crate::Error;

/// Lets `blob` be found as `pointer`, which holds it itself where the system has no links. Both lie in the
/// same repository of the cache, and `depth` folders lead from the repository to the pointer's own.
pub(crate) fn link(blob: &Path, pointer: &Path, depth: usize) -> Result<(), Error> {
    if let (Ok(a), Ok(b)) = (fs::canonicalize(pointer), fs::canonicalize(blob))
        && a == b
    {
        return Ok(());
    }
    let name = blob.file_name().unwrap_or_default();
    let target = Path::new(&"../".repeat(depth)).join("blobs").join(name);
    place(pointer, |new| symlink(&target, new).or_else(|_| fs::rename(blob, new)))
}

/// Makes `blob` itself the `pointer`.
pub(crate) fn give(blob: &Path, pointer: &Path) -> Result<(), Error> {
    place(pointer, |new| fs::rename(blob, new))
}

/// Copies a file of a snapshot.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<(), Error> {
    place(to, |new| fs::copy(from, new).map(drop))
}

/// Makes a file under another name first: a file of the snapshot is replaced in one step.
fn place(pointer: &Path, make: impl FnOnce(&Path) -> io::Result<()>) -> Result<(), Error> {
    let folder = pointer.parent().unwrap_or(pointer);
    fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
    let new = folder.join(format!(".{}.new", std::process::id()));
    // Left by a program that was killed.
    let _ = fs::remove_file(&new);
    let placed = make(&new).and_then(|()| fs::rename(&new, pointer));
    placed.map_err(Error::io("write", pointer))
}

#[expect(
    deprecated,
    reason = "what each system has for it: the function is deprecated for not saying which kind of link"
)]
fn symlink(target: &Path, link: &Path) -> io::Result<()> {
    fs::soft_link(target, link)
}

/// Makes the names in a folder outlast a loss of power, where the system can.
pub(crate) fn sync_folder(folder: &Path) {
    // Folders cannot be opened on every system, and those keep names safe by themselves.
    if let Ok(folder) = fs::File::open(folder) {
        let _ = folder.sync_all();
    }
}
