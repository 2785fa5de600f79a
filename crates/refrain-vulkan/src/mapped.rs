//! Host-mapped device memory.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

/// A range of mapped, coherent memory. It does not track its lifetime: the owner of the block keeps it mapped.
/// [`Mapped::write`] and [`Mapped::read`] copy in atomic words. If another thread or the device accesses the same bytes
/// concurrently, the result is a mixture of old and new bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mapped {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the address is valid in every thread and not tied to thread-local state.
unsafe impl Send for Mapped {}
// SAFETY: as above. Accesses are atomic, except through an exclusive slice.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Wraps a mapped range.
    ///
    /// # Safety
    /// `start..start + bytes` is readable and writable until its block is freed.
    pub unsafe fn new(start: NonNull<u8>, bytes: usize) -> Self {
        Self { start, bytes }
    }

    /// Returns a part of the range, truncated at its end.
    pub fn part(&self, offset: u64, bytes: u64) -> Self {
        let offset = usize::try_from(offset).map_or(self.bytes, |offset| offset.min(self.bytes));
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).min(self.bytes - offset);
        // SAFETY: offset is at most the length of the range.
        Self {
            start: unsafe { self.start.add(offset) },
            bytes,
        }
    }

    /// Whether the range has at least this many bytes.
    pub fn holds(&self, bytes: usize) -> bool {
        self.bytes >= bytes
    }

    /// Copies `data` to the start of the range.
    ///
    /// # Panics
    /// Panics if `data` is longer than the range. Callers check against the size of the buffer first.
    pub fn write(&self, data: &[u8]) {
        assert!(data.len() <= self.bytes, "write beyond mapped memory");
        let (head, words) = data.split_at(self.before_words().min(data.len()));
        let (words, tail) = words.as_chunks::<4>();
        let (middle, end) = (head.len(), data.len() - tail.len());
        for (at, byte) in (0..).zip(head).chain((end..).zip(tail)) {
            self.byte(at).store(*byte, Ordering::Relaxed);
        }
        for (at, word) in (middle..).step_by(4).zip(words) {
            self.word(at).store(u32::from_ne_bytes(*word), Ordering::Relaxed);
        }
    }

    /// Copies from the start of the range into `data`.
    ///
    /// # Panics
    /// Panics if `data` is longer than the range. Callers check against the size of the buffer first.
    pub fn read(&self, data: &mut [u8]) {
        assert!(data.len() <= self.bytes, "read beyond mapped memory");
        let length = data.len();
        let (head, words) = data.split_at_mut(self.before_words().min(length));
        let (words, tail) = words.as_chunks_mut::<4>();
        let (middle, end) = (head.len(), length - tail.len());
        for (at, byte) in (0..).zip(head).chain((end..).zip(tail)) {
            *byte = self.byte(at).load(Ordering::Relaxed);
        }
        for (at, word) in (middle..).step_by(4).zip(words) {
            *word = self.word(at).load(Ordering::Relaxed).to_ne_bytes();
        }
    }

    /// Number of bytes before the first aligned word.
    fn before_words(&self) -> usize {
        self.start.as_ptr().align_offset(align_of::<u32>())
    }

    fn byte(&self, at: usize) -> &AtomicU8 {
        debug_assert!(at < self.bytes);
        // SAFETY: the byte lies within the range, which is mapped.
        unsafe { AtomicU8::from_ptr(self.start.as_ptr().add(at)) }
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        debug_assert!(at + 4 <= self.bytes);
        // SAFETY: the word lies within the range, which is mapped, and is aligned: callers count from `before_words`.
        unsafe { AtomicU32::from_ptr(self.start.as_ptr().add(at).cast()) }
    }

    /// Returns the range as a slice.
    ///
    /// # Safety
    /// Until the slice is dropped, nothing else may access the range, and its block must stay mapped.
    pub unsafe fn as_mut_slice<'a>(self) -> &'a mut [u8] {
        // SAFETY: the range is valid, u8 has no invalid values, and the caller has exclusive access.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_exactly_the_given_range() {
        let mut memory = [0u32; 8];
        let start = NonNull::from(&mut memory).cast();
        // SAFETY: the memory outlives the test.
        let mapped = unsafe { Mapped::new(start, 32) };
        for offset in 0..9 {
            for length in 0..16 {
                let data: Vec<u8> = (1..=length).collect();
                mapped.write(&[0xee; 32]);
                mapped.part(offset, length.into()).write(&data);
                let mut all = [0; 32];
                mapped.read(&mut all);
                let (from, to) = (offset as usize, offset as usize + data.len());
                assert_eq!(all[from..to], data);
                assert!(all[..from].iter().chain(&all[to..]).all(|byte| *byte == 0xee));
                let mut back = vec![0; data.len()];
                mapped.part(offset, length.into()).read(&mut back);
                assert_eq!(back, data);
            }
        }
    }
}
