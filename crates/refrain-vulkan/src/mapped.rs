//! Memory that host and device both see.

use std::ptr::NonNull;

/// A range of mapped, coherent memory. It says nothing of its lifetime: whoever holds the block
/// keeps it mapped. Accesses are plain copies; the runtime sees to it that the device does not
/// touch the same bytes meanwhile.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mapped {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the address is valid in every thread, and no thread-local state hangs on it.
unsafe impl Send for Mapped {}
// SAFETY: as above; concurrent access to the same bytes is excluded by the runtime.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// # Safety
    /// `start..start + bytes` is readable and writable until its block is freed.
    pub unsafe fn new(start: NonNull<u8>, bytes: usize) -> Self {
        Self { start, bytes }
    }

    /// A part of the range, cut off at its end.
    pub fn part(&self, offset: u64, bytes: u64) -> Self {
        let offset = usize::try_from(offset).map_or(self.bytes, |offset| offset.min(self.bytes));
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).min(self.bytes - offset);
        // SAFETY: offset is at most the length of the range.
        Self {
            start: unsafe { self.start.add(offset) },
            bytes,
        }
    }

    /// Copies `data` to the start of the range.
    ///
    /// # Panics
    /// If `data` is longer than the range: callers check against the buffer's size first.
    pub fn write(&self, data: &[u8]) {
        assert!(data.len() <= self.bytes, "write beyond mapped memory");
        // SAFETY: both ranges are valid for data.len() bytes, and a borrowed slice of ordinary
        // memory does not overlap device memory.
        unsafe { self.start.as_ptr().copy_from_nonoverlapping(data.as_ptr(), data.len()) }
    }

    /// Copies from the start of the range into `data`.
    ///
    /// # Panics
    /// If `data` is longer than the range: callers check against the buffer's size first.
    pub fn read(&self, data: &mut [u8]) {
        assert!(data.len() <= self.bytes, "read beyond mapped memory");
        // SAFETY: as in `write`.
        unsafe {
            self.start
                .as_ptr()
                .copy_to_nonoverlapping(data.as_mut_ptr(), data.len())
        }
    }

    /// The range as a slice.
    ///
    /// # Safety
    /// Until the slice is dropped, nothing else touches the range and its block stays mapped.
    pub unsafe fn as_mut_slice<'a>(self) -> &'a mut [u8] {
        // SAFETY: the range is valid, u8 has no invalid values, and the caller has it alone.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}
