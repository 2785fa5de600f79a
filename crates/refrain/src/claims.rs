//! Which arrays are being evaluated, and which states are being read or updated, so that threads that
//! evaluate at the same time do nothing twice and see states whole.
//!
//! An evaluation claims what it computes and every state that it reads or updates, before it is submitted
//! and until its arrays are ready. Another one that needs any of it waits, and then looks again at what is
//! left to do. Looking, and making ready, happen one at a time.

use std::collections::HashSet;
use std::sync::{Condvar, Mutex, MutexGuard};

use crate::Error;
use crate::storage::Storage;

/// What only one thread at a time works on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum ClaimedWork {
    /// Computing the array with this id.
    Array(u64),
    /// Reading or updating the state with this key.
    State(usize),
}

impl ClaimedWork {
    /// Work on the memory of a state.
    pub(crate) fn on(storage: &Storage) -> ClaimedWork {
        ClaimedWork::State(storage.key())
    }
}

/// The right to do some work, until it is dropped.
#[derive(Debug)]
pub(crate) struct Claim(Vec<ClaimedWork>);

#[derive(Default)]
struct Ledger {
    claimed: Mutex<Option<HashSet<ClaimedWork>>>,
    /// That claims ended.
    freed: Condvar,
}

static LEDGER: Ledger = Ledger {
    claimed: Mutex::new(None),
    freed: Condvar::new(),
};

impl Claim {
    /// Claims the work that `look` finds, once nobody else is at any of it: `look` is asked again after
    /// each wait. It sees every array and state either before or after what another thread does to it.
    ///
    /// # Errors
    /// Those of `look`.
    pub(crate) fn of<T>(look: impl Fn() -> Result<(T, Vec<ClaimedWork>), Error>) -> Result<(T, Claim), Error> {
        let mut ledger = lock();
        loop {
            let (found, work) = look()?;
            let claimed = ledger.get_or_insert_default();
            if !work.iter().any(|work| claimed.contains(work)) {
                claimed.extend(&work);
                return Ok((found, Claim(work)));
            }
            // What was found may be the last that holds other arrays: it goes before the wait.
            drop(found);
            ledger = LEDGER
                .freed
                .wait(ledger)
                .unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }

    /// Ends the claim with what others are to see all at once or not at all.
    pub(crate) fn end(self, publish: impl FnOnce()) {
        let ledger = lock();
        publish();
        drop(ledger);
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(claimed) = lock().as_mut() {
            self.0.iter().for_each(|work| {
                claimed.remove(work);
            });
        }
        LEDGER.freed.notify_all();
    }
}

fn lock() -> MutexGuard<'static, Option<HashSet<ClaimedWork>>> {
    LEDGER.claimed.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
