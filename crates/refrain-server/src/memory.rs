//! Returns memory to the system after large work.
//!
//! The C library's allocator keeps what was freed, in an arena of each thread. Large bodies, long texts, grammars and
//! many connections would otherwise leave a server with hundreds of megabytes that nothing uses.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

/// Work on fewer bytes than this, since the last time, leaves little behind.
const MIN_BYTES: usize = 1 << 20;
/// Memory that compiling a grammar takes, at least, in bytes.
pub(crate) const GRAMMAR_BYTES: usize = MIN_BYTES;
/// Time between large work and the return of its memory. It is also the minimum time between two returns.
const DELAY: Duration = Duration::from_secs(2);

static WORK: AtomicUsize = AtomicUsize::new(0);
static LARGE: Notify = Notify::const_new();

/// Notes that work on this many bytes has ended, and its memory is free.
pub(crate) fn freed(bytes: usize) {
    if bytes == 0 {
        return;
    }
    let before = WORK.fetch_add(bytes, Ordering::Relaxed);
    if before.saturating_add(bytes) >= MIN_BYTES {
        LARGE.notify_one();
    }
}

/// Notes that memory is free when it is dropped.
pub(crate) struct FreedOnDrop(pub usize);

impl Drop for FreedOnDrop {
    fn drop(&mut self) {
        freed(self.0);
    }
}

/// Returns memory after each large work, for ever.
pub(crate) async fn return_freed() {
    loop {
        LARGE.notified().await;
        tokio::time::sleep(DELAY).await;
        WORK.store(0, Ordering::Relaxed);
        // It takes milliseconds for each hundred megabytes.
        let _ = tokio::task::spawn_blocking(refrain_formats::return_free_memory).await;
    }
}
