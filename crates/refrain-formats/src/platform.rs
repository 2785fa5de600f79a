//! What only some systems have, each with what the others do instead.

use std::ops::Range;

use memmap2::Mmap;

/// Has the operating system drop the pages of a range of a mapped file; they are read again when touched. A
/// hint: failure is ignored, and other systems drop pages when they must.
pub(crate) fn drop_pages(map: &Mmap, range: Range<usize>) {
    #[cfg(unix)]
    // SAFETY: mappings are made in `mmap.rs` alone, of files, and never written to, so dropped pages come back
    // with the same contents, and references into them stay valid.
    let _ = unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, range.start, range.len()) };
    #[cfg(not(unix))]
    let _ = (map, range);
}

/// Gives a directory the permissions that new ones get (before the user's mask), where private ones differ.
pub(crate) fn make_public(builder: &mut tempfile::Builder<'_, '_>) {
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o777));
    #[cfg(not(unix))]
    let _ = builder;
}
