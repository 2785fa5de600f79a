//! Locks on arrays being evaluated and on states being read or updated.
//!
//! Several threads may evaluate at once. Each locks what it computes, and every state that it reads or updates,
//! from before the submit until its arrays are ready. A thread that needs a locked key waits, and then determines
//! anew what is left to compute. So nothing is computed twice and no state is seen half updated. Tracing and
//! publishing results happen one thread at a time.

use std::sync::{Condvar, Mutex, MutexGuard};

use crate::Error;
use crate::signature::FastSet;
use crate::storage::Storage;

/// What only one thread at a time may work on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum LockKey {
    /// The computation of the array with this id.
    Array(u64),
    /// The state with this [`Storage::key`].
    State(usize),
}

impl LockKey {
    /// The key of a state's memory.
    pub(crate) fn of_state(storage: &Storage) -> LockKey {
        LockKey::State(storage.key())
    }
}

/// Locked keys; dropping it releases them.
#[derive(Debug)]
pub(crate) struct WorkLock(Vec<LockKey>);

#[derive(Default)]
struct LockTable {
    locked: Mutex<Option<FastSet<LockKey>>>,
    /// Notified when locks are released.
    released: Condvar,
}

static LOCKS: LockTable = LockTable {
    locked: Mutex::new(None),
    released: Condvar::new(),
};

impl WorkLock {
    /// Calls `find`, which returns a value and the keys that it needs, and locks these keys. While any of them is
    /// locked by another thread, waits and then calls `find` again. `find` sees every array and state either
    /// before or after another thread's work, never in between.
    ///
    /// # Errors
    /// Returns the errors of `find`.
    pub(crate) fn acquire<T>(find: impl Fn() -> Result<(T, Vec<LockKey>), Error>) -> Result<(T, WorkLock), Error> {
        let mut table = lock();
        loop {
            let (found, keys) = find()?;
            let locked = table.get_or_insert_default();
            if !keys.iter().any(|key| locked.contains(key)) {
                locked.extend(&keys);
                return Ok((found, WorkLock(keys)));
            }
            // What was found may hold the last reference to other arrays: drop it before waiting.
            drop(found);
            table = LOCKS
                .released
                .wait(table)
                .unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }

    /// Runs `publish`, whose effects other threads see all at once, and releases the lock.
    pub(crate) fn publish(self, publish: impl FnOnce()) {
        let table = lock();
        publish();
        drop(table);
    }
}

impl Drop for WorkLock {
    fn drop(&mut self) {
        if let Some(locked) = lock().as_mut() {
            self.0.iter().for_each(|key| {
                locked.remove(key);
            });
        }
        LOCKS.released.notify_all();
    }
}

fn lock() -> MutexGuard<'static, Option<FastSet<LockKey>>> {
    LOCKS.locked.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
