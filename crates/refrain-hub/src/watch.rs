//! Progress reports of a download.

use std::sync::atomic::{AtomicU64, Ordering};

/// Receives progress reports of a download. All methods may be called from several threads.
pub trait Watcher: Sync {
    /// `done` of `total` bytes are present. `done` may shrink when something must be downloaded again.
    fn progress(&self, _done: u64, _total: u64) {}

    /// Reports a delay or a change of plan in one line: a retry, or another program that holds a lock.
    fn notice(&self, _line: &str) {}
}

/// Ignores all reports.
impl Watcher for () {}

/// Adds up the progress of concurrent downloads.
pub(crate) struct ProgressMeter<'a> {
    watcher: &'a dyn Watcher,
    done: AtomicU64,
    total: u64,
}

impl<'a> ProgressMeter<'a> {
    pub fn new(watcher: &'a dyn Watcher, done: u64, total: u64) -> Self {
        watcher.progress(done, total);
        let done = AtomicU64::new(done);
        Self { watcher, done, total }
    }

    pub fn watcher(&self) -> &'a dyn Watcher {
        self.watcher
    }

    pub fn add(&self, bytes: u64) {
        let before = self.done.fetch_add(bytes, Ordering::Relaxed);
        self.watcher.progress(before + bytes, self.total);
    }

    /// Subtracts bytes that must be downloaded again.
    pub fn subtract(&self, bytes: u64) {
        let before = self.done.fetch_sub(bytes, Ordering::Relaxed);
        self.watcher.progress(before - bytes, self.total);
    }
}
