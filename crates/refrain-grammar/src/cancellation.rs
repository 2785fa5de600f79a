//! Cancels compilations, and masks that take too long.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use llguidance::CancellationHandle;

/// A request to cancel the compilation of a grammar. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Cancellation(Arc<AtomicBool>);

/// Cancels when it is dropped. An async caller holds one, so that the compilation ends with the caller.
#[derive(Debug)]
pub struct CancelOnDrop(Cancellation);

impl Cancellation {
    /// Cancels the compilation. The caller that waits for it returns within 20 ms.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether [`cancel`](Self::cancel) was called.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Returns a guard that cancels when it is dropped.
    pub fn cancel_on_drop(&self) -> CancelOnDrop {
        CancelOnDrop(self.clone())
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Interval in which deadlines are checked.
const TICK: Duration = Duration::from_millis(50);
/// Ticks without work after which the thread parks.
const IDLE_TICKS: u32 = 20;

/// Cancels matchers whose deadlines have passed.
#[derive(Default)]
struct Watchdog {
    state: Mutex<Watched>,
    wake: Condvar,
}

#[derive(Default)]
struct Watched {
    deadlines: HashMap<u64, (Instant, CancellationHandle)>,
    next: u64,
    is_parked: bool,
}

/// A deadline of one operation, which ends when this is dropped.
pub(crate) struct Deadline {
    id: u64,
    watchdog: &'static Watchdog,
}

impl Deadline {
    /// Cancels `handle` unless the result is dropped within `timeout`. Returns `None` if no thread can be started.
    pub fn start(handle: CancellationHandle, timeout: Duration) -> Option<Deadline> {
        static WATCHDOG: OnceLock<Option<&'static Watchdog>> = OnceLock::new();
        let watchdog = (*WATCHDOG.get_or_init(|| {
            let watchdog: &'static Watchdog = Box::leak(Box::default());
            let thread = std::thread::Builder::new().name("grammar-watchdog".to_owned());
            thread.spawn(|| watchdog.run()).ok().map(|_| watchdog)
        }))?;
        let mut state = watchdog.lock();
        let id = state.next;
        state.next += 1;
        state.deadlines.insert(id, (Instant::now() + timeout, handle));
        if state.is_parked {
            watchdog.wake.notify_one();
        }
        Some(Deadline { id, watchdog })
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        self.watchdog.lock().deadlines.remove(&self.id);
    }
}

impl Watchdog {
    fn lock(&self) -> MutexGuard<'_, Watched> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut idle = 0;
        let mut state = self.lock();
        loop {
            idle = if state.deadlines.is_empty() { idle + 1 } else { 0 };
            if idle > IDLE_TICKS {
                state.is_parked = true;
                state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.is_parked = false;
                idle = 0;
                continue;
            }
            let waited = self.wake.wait_timeout(state, TICK);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            let now = Instant::now();
            let passed = state.deadlines.values().filter(|(deadline, _)| *deadline <= now);
            passed.for_each(|(_, handle)| handle.cancel());
        }
    }
}
