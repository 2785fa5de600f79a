//! What a download reports while it is under way.

use std::sync::atomic::{AtomicU64, Ordering};

/// Whoever wants to know how far a download is. All methods may be called from several threads.
pub trait Watcher: Sync {
    /// So many of so many bytes are here now; the first may shrink where something must be fetched anew.
    fn progress(&self, _done: u64, _total: u64) {}

    /// Something that takes time or changes the plan: an attempt failed and will be repeated, another
    /// program holds a lock.
    fn notice(&self, _line: &str) {}
}

/// Nobody watches.
impl Watcher for () {}

/// Adds up what several downloads bring.
pub(crate) struct Meter<'a> {
    watcher: &'a dyn Watcher,
    done: AtomicU64,
    total: u64,
}

impl<'a> Meter<'a> {
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

    /// What was there must be fetched anew.
    pub fn take_back(&self, bytes: u64) {
        let before = self.done.fetch_sub(bytes, Ordering::Relaxed);
        self.watcher.progress(before - bytes, self.total);
    }
}
