//! Files mapped into memory.

use std::fs::{self, File};
use std::ops::Range;
use std::path::Path;

use memmap2::{Mmap, MmapOptions};

use crate::Error;
use crate::platform::{self, Watched};

/// A file mapped read-only.
///
/// The file should not be cut short while it is mapped: the operating system then ends the process on access, as
/// it does for every program that maps files. [`crate::say_when_files_are_cut_short`] makes that a message.
#[derive(Debug)]
pub(crate) struct MappedFile(Option<(Mmap, Watched)>);

impl MappedFile {
    /// Map the whole of the file at `path`. An empty file gives an empty mapping.
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
        // Looked at before it is opened: opening a pipe waits for its writer.
        regular(fs::metadata(path).map_err(read)?)?;
        let file = File::open(path).map_err(read)?;
        if regular(file.metadata().map_err(read)?)? == 0 {
            return Ok(MappedFile(None));
        }
        // SAFETY: the mapping is private and read-only, and is only ever seen as `&[u8]`, for
        // which every bit pattern is valid. That nobody shortens the file meanwhile is the
        // documented condition above.
        let map = unsafe { MmapOptions::new().map(&file) }.map_err(read)?;
        let watched = platform::watch(&map, path);
        Ok(MappedFile(Some((map, watched))))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], |(map, _)| map)
    }

    /// Let the operating system drop the pages that lie wholly inside `range`; they are read from
    /// the file again when touched. A hint: failure is ignored.
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
