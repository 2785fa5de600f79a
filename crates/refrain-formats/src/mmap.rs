//! Memory-mapped files.

use std::fs::{self, File};
use std::ops::Range;
use std::path::Path;

use memmap2::{Mmap, MmapOptions};

use crate::Error;
use crate::platform::{self, Watched};

/// A file mapped read-only.
///
/// The file must not be truncated while it is mapped: access to the missing pages then ends the process, as for every
/// program that maps files. [`crate::report_truncated_files`] turns that into an error message.
#[derive(Debug)]
pub(crate) struct MappedFile(Option<(Mmap, Watched)>);

impl MappedFile {
    /// Maps the file at `path`. An empty file gives an empty mapping.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let read = |source| Error::Read {
            path: path.to_owned(),
            source,
        };
        let regular = |metadata: fs::Metadata| {
            if metadata.is_file() {
                Ok(metadata.len())
            } else {
                Err(read(std::io::Error::other("not a regular file")))
            }
        };
        // Check the type before opening: opening a pipe would block.
        regular(fs::metadata(path).map_err(read)?)?;
        let file = File::open(path).map_err(read)?;
        if regular(file.metadata().map_err(read)?)? == 0 {
            return Ok(MappedFile(None));
        }
        // SAFETY: the mapping is private, read-only and only exposed as `&[u8]`, for which every bit pattern is
        // valid. The type's documentation requires that nobody truncates the file.
        let map = unsafe { MmapOptions::new().map(&file) }.map_err(read)?;
        let watched = platform::watch(&map, path);
        Ok(MappedFile(Some((map, watched))))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], |(map, _)| map)
    }

    /// Lets the operating system drop the pages inside `range`; they are read again on access. Ignores failures,
    /// since this is only a hint.
    pub(crate) fn discard(&self, range: Range<usize>) {
        if let Some((map, _)) = &self.0 {
            const PAGE: usize = 64 * 1024;
            let start = range.start.next_multiple_of(PAGE);
            let end = if range.end >= map.len() {
                map.len()
            } else {
                range.end / PAGE * PAGE
            };
            if start < end {
                platform::drop_pages(map, start..end);
            }
        }
    }
}
