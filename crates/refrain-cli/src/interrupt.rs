//! Ctrl-C handling: stops generation after the current token, and ends everything else at once.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};

/// The exit code of a program ended by Ctrl-C (128 + SIGINT).
pub(crate) const EXIT_CODE: u8 = 130;

const AT_ONCE: u8 = 0;
const AFTER_TOKEN: u8 = 1;
const REQUESTED: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(AT_ONCE);
/// Wakes those who wait for Ctrl-C.
static PRESSED: (Mutex<()>, Condvar) = (Mutex::new(()), Condvar::new());

/// While this guard lives, the first Ctrl-C only makes [`requested`] return true. A second one ends the program.
pub(crate) struct Deferred(());

/// Defers Ctrl-C until the guard is dropped.
///
/// # Errors
/// If the signal handler cannot be installed.
pub(crate) fn defer() -> anyhow::Result<Deferred> {
    // A handler can be installed only once per process.
    static HANDLER: OnceLock<Result<(), ctrlc::Error>> = OnceLock::new();
    let handler = HANDLER.get_or_init(|| {
        ctrlc::set_handler(|| {
            let deferred = STATE.compare_exchange(AFTER_TOKEN, REQUESTED, Ordering::SeqCst, Ordering::SeqCst);
            if deferred.is_err() {
                // Driver clean-up must not run while another thread is calling the driver. Nothing is lost: output is
                // flushed at once, and files are renamed into place only when complete.
                refrain_formats::exit_immediately(EXIT_CODE);
            }
            let _waiting = PRESSED.0.lock().unwrap_or_else(PoisonError::into_inner);
            PRESSED.1.notify_all();
        })
    });
    if let Err(error) = handler {
        anyhow::bail!("cannot install the Ctrl-C handler: {error}");
    }
    STATE.store(AFTER_TOKEN, Ordering::SeqCst);
    Ok(Deferred(()))
}

/// Whether Ctrl-C was pressed.
pub(crate) fn requested() -> bool {
    STATE.load(Ordering::SeqCst) == REQUESTED
}

/// Blocks until Ctrl-C is pressed while it is deferred.
pub(crate) fn wait() {
    let guard = PRESSED.0.lock().unwrap_or_else(PoisonError::into_inner);
    let _pressed = PRESSED.1.wait_while(guard, |()| !requested());
}

impl Drop for Deferred {
    fn drop(&mut self) {
        STATE.store(AT_ONCE, Ordering::SeqCst);
    }
}
