//! Ctrl-C: ends a generation after its current token, and everything else at once.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

/// The exit code of a program ended by Ctrl-C (128 + SIGINT).
pub(crate) const EXIT_CODE: u8 = 130;

const AT_ONCE: u8 = 0;
const AFTER_TOKEN: u8 = 1;
const REQUESTED: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(AT_ONCE);

/// While it lives, the first Ctrl-C only makes [`requested`] true. A second one ends the program.
pub(crate) struct Deferred(());

/// Defers Ctrl-C from now on.
///
/// # Errors
/// If the system does not let the program listen to it.
pub(crate) fn defer() -> anyhow::Result<Deferred> {
    // The system takes one listener, for good.
    static LISTENING: OnceLock<Result<(), ctrlc::Error>> = OnceLock::new();
    let listening = LISTENING.get_or_init(|| {
        ctrlc::set_handler(|| {
            let deferred = STATE.compare_exchange(AFTER_TOKEN, REQUESTED, Ordering::SeqCst, Ordering::SeqCst);
            if deferred.is_err() {
                // Drivers' own clean-up must not run beside a thread that is still calling them. Nothing is lost:
                // what is written goes out at once, and files get their names when they are whole.
                refrain_formats::end_at_once(EXIT_CODE);
            }
        })
    });
    if let Err(error) = listening {
        anyhow::bail!("cannot listen to Ctrl-C: {error}");
    }
    STATE.store(AFTER_TOKEN, Ordering::SeqCst);
    Ok(Deferred(()))
}

/// Whether Ctrl-C was pressed.
pub(crate) fn requested() -> bool {
    STATE.load(Ordering::SeqCst) == REQUESTED
}

impl Drop for Deferred {
    fn drop(&mut self) {
        STATE.store(AT_ONCE, Ordering::SeqCst);
    }
}
